"""Key-value cache: the keys and values of earlier tokens. The caller stores the cache; the model does not."""

from __future__ import annotations

import torch
from torch import Tensor

from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError
from glassformer.model.positions import token_positions


class LayerCache:
    """Cached keys and values of one layer, for the tokens so far (in order) and for the memory."""

    def __init__(
        self, shape: tuple[int, int, int, int], value_width: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.keys = torch.zeros(shape, device=device, dtype=dtype)  # (B, G, capacity, K)
        self.values = torch.zeros((*shape[:3], value_width), device=device, dtype=dtype)  # (B, G, capacity, U)
        self.memory: tuple[Tensor, Tensor] | None = None  # of the memory: keys (B, G, S, K) and values (B, G, S, U)
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append k (B, G, T, K) and v (B, G, T, U) to the cache; return all cached keys and values."""
        T = k.shape[2]
        self.keys.narrow(2, self.length, T).copy_(k)  # (B, G, T, K)
        self.values.narrow(2, self.length, T).copy_(v)  # (B, G, T, U)
        self.length += T
        return self.keys.narrow(2, 0, self.length), self.values.narrow(2, 0, self.length)


class Cache:
    """Key-value cache of a model: one `LayerCache` per layer, the positions of the tokens and their padding mask.

    Args:
        config: model settings.
        batch: B, number of rows.
        capacity: maximum number of tokens in a row, padding included.
        device: device of the model.
        dtype: data type of keys and values.
    """

    def __init__(
        self, config: ModelConfig, batch: int, capacity: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        kv_heads = [len(config.kept_kv_heads(f"dec.{layer}.self")) for layer in range(config.layers)]  # G of each layer
        self.layers = [LayerCache((batch, G, capacity, config.K), config.U, device, dtype) for G in kv_heads]
        self.attention_mask = torch.ones(batch, capacity, dtype=torch.bool, device=device)  # (B, capacity)
        self.positions = torch.arange(capacity, device=device).repeat(batch, 1)  # (B, capacity)
        self.capacity = capacity
        self.length = 0
        self.padded = False

    def extend(self, new: int, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Extend every row by `new` tokens, and return the positions and the padding mask for attention.

        Args:
            attention_mask: (B, new) bool, False at padding; None: no padding.

        Returns:
            Positions of the new tokens (B or 1, new), positions of all keys (B or 1, S), and the mask of all keys
            (B, S), False at padding; the mask is None if no attention mask has been given so far.

        Raises:
            GlassError: the cache has no room for the new tokens.
        """
        start = self.length
        end = start + new
        if end > self.capacity:
            raise GlassError(
                f"the cache has a capacity of {self.capacity} tokens, but was given {end}", "Make a larger cache."
            )
        self.length = end
        if attention_mask is None and not self.padded:  # without padding, positions are column indices
            return self.positions[:1, start:end], self.positions[:1, :end], None  # (1, new), (1, S)
        self.padded = True
        self.attention_mask[:, start:end] = True if attention_mask is None else attention_mask  # (B, new)
        past_length = self.attention_mask[:, :start].sum(dim=1, keepdim=True)  # (B, 1)
        self.positions[:, start:end] = token_positions(self.attention_mask[:, start:end], past_length)  # (B, new)
        return self.positions[:, start:end], self.positions[:, :end], self.attention_mask[:, :end]
