"""Who may look at whom: masks as values, made once for each forward pass and shared by all layers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mask:
    """Which keys each query may see, and how much the places favour each."""

    allowed: Tensor | None = None  # (B or 1, 1, T or 1, S) bool; None: everything that `triangle` leaves open
    triangle: bool = False  # the plain causal triangle with T = S: the fused kernel then needs no tensor
    dead: Tensor | None = None  # (B or 1, 1, T or 1, 1) bool, True for queries that may see nothing (padding)
    bias: Tensor | None = None  # (B or 1, H, T, S) added to the scores, -inf where not allowed

    @classmethod
    def of(cls, allowed: Tensor) -> Mask:
        """The mask of any boolean tensor (B or 1, 1, T or 1, S), rows without a single True included."""
        dead = ~allowed.any(dim=-1, keepdim=True)  # (B, 1, T or 1, 1)
        return cls(allowed=allowed | dead, dead=dead)

    def full(self, like: Tensor) -> Tensor:
        """`allowed` as a tensor that fits scores like these, (..., T, S); dead rows show True, `attend` zeroes them."""
        if self.allowed is not None:
            return self.allowed
        ones = like.new_ones((1, 1, *like.shape[-2:]), dtype=torch.bool)  # (1, 1, T, S)
        return ones.tril() if self.triangle else ones

    def with_bias(self, bias: Tensor) -> Mask:
        """The same mask with a bias (B or 1, H, T, S) on the scores of the allowed keys."""
        return replace(self, bias=bias.masked_fill(~self.full(bias), -inf), allowed=self.full(bias), triangle=False)

    def of_heads(self, heads: list[int]) -> Mask:
        """The same mask for some of the heads, by their numbers."""
        if self.bias is None or len(heads) == self.bias.shape[1]:
            return self
        return replace(self, bias=self.bias[:, heads])


def token_positions(real: Tensor, already: Tensor | int = 0) -> Tensor:
    """Each real token's place in its own row, (B, T), counted from `already`; padding gets the place before it."""
    return (real.long().cumsum(dim=1) - 1 + already).clamp(min=0)


def self_mask(
    query_positions: Tensor, key_positions: Tensor, real_keys: Tensor | None, causal: bool, window: int | None
) -> Mask:
    """The mask of self-attention.

    Args:
        query_positions, key_positions: (B or 1, T) and (B or 1, S).
        real_keys: (B, S) bool, False at padding; None: all real.
        causal: each token sees itself and what came before it; otherwise both sides.
        window: how many tokens a token may look back (and, if not causal, ahead) on, itself included.
    """
    whole = query_positions.shape == key_positions.shape and (window is None or window >= query_positions.shape[1])
    if causal and whole and real_keys is None:
        return Mask(triangle=True)
    real = None if real_keys is None else real_keys[:, None, None, :]  # (B, 1, 1, S)
    if not causal and window is None:
        return Mask() if real is None else Mask.of(real)
    queries, keys = query_positions[:, None, :, None], key_positions[:, None, None, :]  # (B, 1, T, 1), (B, 1, 1, S)
    if window is None:
        allowed = keys <= queries  # (B, 1, T, S)
    else:
        allowed = (keys > queries - window) & (keys < queries + (1 if causal else window))  # (B, 1, T, S)
    return Mask(allowed=allowed) if real is None else Mask.of(allowed & real)  # without padding no row is dead
