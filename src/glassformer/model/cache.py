"""The key-value cache: what earlier tokens left for later ones. It belongs to whoever generates, never to the model."""

from __future__ import annotations

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import GlassError
from glassformer.model.masks import token_positions


class LayerCache:
    """Keys and values of one layer: of the tokens so far, filled from the left, and of the memory, made once."""

    def __init__(self, shape: tuple[int, int, int, int], device: torch.device, dtype: torch.dtype) -> None:
        self.keys = torch.zeros(shape, device=device, dtype=dtype)  # (B, G, capacity, K)
        self.values = torch.zeros(shape, device=device, dtype=dtype)  # (B, G, capacity, K)
        self.memory: tuple[Tensor, Tensor] | None = None  # (sources, G, S, K) each
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keep k and v, (B, G, T, K), and return all kept so far, (B, G, length, K)."""
        start, self.length = self.length, self.length + k.shape[2]
        self.keys.narrow(2, start, k.shape[2]).copy_(k)  # (B, G, T, K)
        self.values.narrow(2, start, k.shape[2]).copy_(v)  # (B, G, T, K)
        return self.keys.narrow(2, 0, self.length), self.values.narrow(2, 0, self.length)


class Cache:
    """One cache per layer for `batch` rows of up to `capacity` tokens, padding included; and which places are real."""

    def __init__(
        self, config: ModelConfig, batch: int, capacity: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        counts = [len(config.kept_kv_heads(f"dec.{layer}.self")) for layer in range(config.layers)]  # G of each layer
        self.layers = [LayerCache((batch, G, capacity, config.K), device, dtype) for G in counts]
        self.real = torch.ones(batch, capacity, dtype=torch.bool, device=device)  # (B, capacity), where filled
        self.positions = torch.arange(capacity, device=device).repeat(batch, 1)  # (B, capacity)
        self.capacity = capacity
        self.length = 0
        self.padded = False

    def extend(self, new: int, real: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Note `new` more tokens of each row: their places, those of all keys, and which keys are real; None: all."""
        start, end = self.length, self.length + new
        if end > self.capacity:
            raise GlassError(f"the cache holds {self.capacity} tokens and was given {end}", "Make a larger cache.")
        self.length = end
        if real is None and not self.padded:  # every place is its column
            return self.positions[:1, start:end], self.positions[:1, :end], None  # (1, new), (1, S)
        self.padded, self.real[:, start:end] = True, True if real is None else real
        already = self.real[:, :start].sum(dim=1, keepdim=True)  # (B, 1)
        self.positions[:, start:end] = token_positions(self.real[:, start:end], already)
        return self.positions[:, start:end], self.positions[:, :end], self.real[:, :end]  # (B, new), (B, S), (B, S)
