"""The key-value cache: what earlier tokens left for later ones. It belongs to whoever generates, never to the model."""

from __future__ import annotations

import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.errors import GlassError


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
        self.keys[:, :, start : self.length] = k
        self.values[:, :, start : self.length] = v
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]


class Cache:
    """One cache per layer for `batch` rows of up to `capacity` tokens, padding included; and which places are real."""

    def __init__(
        self, config: ModelConfig, batch: int, capacity: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        counts = [len(config.kept_kv_heads(f"dec.{layer}.self")) for layer in range(config.layers)]  # G of each layer
        self.layers = [LayerCache((batch, G, capacity, config.K), device, dtype) for G in counts]
        self.real = torch.zeros(batch, capacity, dtype=torch.bool, device=device)  # (B, capacity)
        self.positions = torch.zeros(batch, capacity, dtype=torch.long, device=device)  # (B, capacity)
        self.capacity = capacity
        self.length = 0
        self.padded = False

    def extend(self, positions: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Note the places of the next tokens, (B, T); return those of all keys, (B, S), and which are real."""
        end = self.length + positions.shape[1]
        if end > self.capacity:
            raise GlassError(f"the cache holds {self.capacity} tokens and was given {end}", "Make a larger cache.")
        self.positions[:, self.length : end] = positions
        self.real[:, self.length : end] = True if real is None else real
        self.padded = self.padded or real is not None
        self.length = end
        return self.positions[:, :end], self.real[:, :end] if self.padded else None
