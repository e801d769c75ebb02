"""The key-value cache: what earlier tokens left for later ones. It belongs to whoever generates, never to the model."""

from __future__ import annotations

import torch
from torch import Tensor

from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError
from glassformer.model.positions import token_positions


class LayerCache:
    """Keys and values of one layer: of the tokens so far, filled from the left, and of the memory, made once."""

    def __init__(self, shape: tuple[int, int, int, int], device: torch.device, dtype: torch.dtype) -> None:
        self.keys = torch.zeros(shape, device=device, dtype=dtype)  # (B, G, capacity, K)
        self.values = torch.zeros(shape, device=device, dtype=dtype)  # (B, G, capacity, K)
        self.memory: tuple[Tensor, Tensor] | None = None  # keys and values of the memory, (B, G, S, K) each
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keep k and v, (B, G, T, K), and return all kept so far, (B, G, length, K)."""
        T = k.shape[2]
        self.keys.narrow(2, self.length, T).copy_(k)  # (B, G, T, K)
        self.values.narrow(2, self.length, T).copy_(v)  # (B, G, T, K)
        self.length += T
        return self.keys.narrow(2, 0, self.length), self.values.narrow(2, 0, self.length)


class Cache:
    """The cache of a whole model: one `LayerCache` for each layer, the positions of the tokens, and which are padding.

    Args:
        config: the shape of the model.
        batch: B, rows.
        capacity: most tokens of a row, padding included.
        device: of the model.
        dtype: of keys and values.
    """

    def __init__(
        self, config: ModelConfig, batch: int, capacity: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        counts = [len(config.kept_kv_heads(f"dec.{layer}.self")) for layer in range(config.layers)]  # G of each layer
        self.layers = [LayerCache((batch, G, capacity, config.K), device, dtype) for G in counts]
        self.attention_mask = torch.ones(
            batch, capacity, dtype=torch.bool, device=device
        )  # (B, capacity), where filled
        self.positions = torch.arange(capacity, device=device).repeat(batch, 1)  # (B, capacity)
        self.capacity = capacity
        self.length = 0
        self.padded = False

    def extend(self, new: int, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Make room for `new` more tokens of each row.

        Args:
            attention_mask: (B, new) bool, False at padding; None: no padding.

        Returns:
            The positions of these tokens (B or 1, new), those of all keys (B or 1, S), and the mask of all keys (B, S),
            None while there is no padding.

        Raises:
            GlassError: the cache is full.
        """
        start = self.length
        end = start + new
        if end > self.capacity:
            raise GlassError(f"the cache holds {self.capacity} tokens and was given {end}", "Make a larger cache.")
        self.length = end
        if attention_mask is None and not self.padded:  # every position is its column
            return self.positions[:1, start:end], self.positions[:1, :end], None  # (1, new), (1, S)
        self.padded = True
        self.attention_mask[:, start:end] = True if attention_mask is None else attention_mask  # (B, new)
        already = self.attention_mask[:, :start].sum(dim=1, keepdim=True)  # (B, 1)
        self.positions[:, start:end] = token_positions(self.attention_mask[:, start:end], already)  # (B, new)
        return self.positions[:, start:end], self.positions[:, :end], self.attention_mask[:, :end]
