"""Inside an attention layer, between its projections: hooks to see and to change what the fused kernel works on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.model.attention import Attention, Mask, attend
from glassformer.model.cache import LayerCache
from glassformer.model.positions import Rotation, rotate
from glassformer.model.pruned_attention import kv_index, mask_of_heads


@contextmanager
def mixed_hook(layer: Attention, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Inside, the output projection reads `change(mixed)`, both (B, H, T, K), instead of what the heads mixed."""

    def hook(module: nn.Module, args: tuple[Any, ...]) -> tuple[Tensor]:
        mixed = args[0].unflatten(-1, (layer.heads, layer.head_width)).transpose(1, 2)  # (B, H, T, K)
        return (change(mixed).transpose(1, 2).flatten(2),)  # (B, T, H K)

    handle = layer.output.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


class Inside:
    """What an attention looks at in the pass that runs."""

    def __init__(self, layer: Attention) -> None:
        self.layer = layer
        self.made: dict[str, Tensor] = {}  # what the projections and their norms gave in this pass
        self.mixed: Tensor | None = None  # (B, H, T, K) what the output projection read
        self.memory: Tensor | None = None
        self.rotation: Rotation | None = None
        self.mask = Mask()
        self.cache: LayerCache | None = None

    def q(self) -> Tensor:
        """The queries as they meet the keys: (B, H, T, K)."""
        return self._turned("query", self.layer.heads)

    def k(self) -> Tensor:
        """The keys, those of a cache included: (B, G, S, K)."""
        if self.cache is None:
            return self._turned("key", self.layer.kv_heads)
        if self.memory is None:
            return self.cache.keys[:, :, : self.cache.length]
        assert self.cache.memory is not None
        return self.cache.memory[0]

    def v(self) -> Tensor:
        """The values, those of a cache included: (B, G, S, K)."""
        if self.cache is None:
            return self._split("value", self.layer.kv_heads)
        if self.memory is None:
            return self.cache.values[:, :, : self.cache.length]
        assert self.cache.memory is not None
        return self.cache.memory[1]

    def values(self) -> Tensor:
        """The values that each head mixes: (B, H, S, K)."""
        return self.v()[:, kv_index(self.layer)]  # (B, H, S, K)

    def scores(self) -> Tensor:
        """q kᵀ / √K + bias, -inf where hidden: (B, H, T, S)."""
        q = self.q()  # (B, H, T, K)
        k = self.k()[:, kv_index(self.layer)]  # (B, H, S, K)
        mask = mask_of_heads(self.layer, self.mask)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, S)
        if mask.bias is not None:
            scores = scores + mask.bias  # (B, H, T, S)
        allowed = mask.full(scores)  # (B or 1, 1, T or 1, S)
        if mask.fully_masked is not None:
            allowed = allowed & ~mask.fully_masked  # (B or 1, 1, T or 1, S)
        return scores.masked_fill(~allowed, -math.inf)  # (B, H, T, S)

    def weights(self) -> Tensor:
        """The attention weights: (B, H, T, S)."""
        q = self.q()  # (B, H, T, K)
        k = self.k()[:, kv_index(self.layer)]  # (B, H, S, K)
        _, pattern = attend(q, k, self.values(), mask_of_heads(self.layer, self.mask), explicit=True)
        assert pattern is not None
        return pattern  # (B, H, T, S)

    def first(self, rows: int) -> Tensor:
        """The column of each row's first real key: (rows)."""
        allowed = self.mask.allowed  # (B or 1, 1, T, S)
        if allowed is None:
            return torch.zeros(rows, dtype=torch.long, device=self.layer.output.weight.device)
        if self.mask.fully_masked is not None:
            allowed = allowed & ~self.mask.fully_masked  # a query of padding has all keys allowed, and sees none
        first = allowed.any(dim=2).long().argmax(dim=-1)[:, 0]  # (B or 1)
        return first.expand(rows)  # (rows)

    def _split(self, name: str, heads: int) -> Tensor:
        """(B, T, heads K) -> (B, heads, T, K)."""
        return self.made[name].unflatten(-1, (heads, self.layer.head_width)).transpose(1, 2)

    def _turned(self, name: str, heads: int) -> Tensor:
        x = self._split(name, heads)  # (B, heads, T, K)
        return x if self.rotation is None else rotate(x, self.rotation)


@contextmanager
def looking(layer: Attention) -> Iterator[Inside]:
    """Note what an attention is given and makes, while it runs."""
    seen = Inside(layer)

    def given(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        names = dict(zip(("x", "mask", "rotation", "memory", "cache"), args, strict=False)) | kwargs
        seen.mask, seen.memory, seen.cache = names["mask"], names.get("memory"), names.get("cache")
        seen.rotation, seen.made = names.get("rotation"), {}

    def made(module: nn.Module, args: tuple[Any, ...], output: Tensor, name: str) -> None:
        """The norm of queries or keys comes after the projection, and gives (B, T, parts, width) in its own type."""
        before = seen.made.get(name)
        seen.made[name] = output.flatten(2) if before is None else output.flatten(2).to(before.dtype)  # (B, T, heads K)

    def read(module: nn.Module, args: tuple[Any, ...]) -> None:
        seen.mixed = args[0].unflatten(-1, (layer.heads, layer.head_width)).transpose(1, 2)  # (B, H, T, K)

    projections: list[tuple[str, nn.Module | None]] = [
        ("query", layer.query), ("query", layer.query_norm), ("key", layer.key), ("key", layer.key_norm),
        ("value", layer.value),
    ]  # fmt: skip
    with ExitStack() as hooks:
        hooks.callback(layer.register_forward_pre_hook(given, with_kwargs=True).remove)
        hooks.callback(layer.output.register_forward_pre_hook(read).remove)
        for name, module in projections:
            if module is not None:
                hooks.callback(module.register_forward_hook(partial(made, name=name)).remove)
        yield seen
