"""Position methods: how a model knows where a token stands. Each acts at one of three points.

* added to the embeddings, subclasses of `AddedPositions`: `LearnedPositions`, `SinusoidalPositions`
* a rotation of queries and keys: `RotaryPositions`
* added to the attention scores, subclasses of `ScorePositions`: `AlibiPositions`, `RelativePositions`
* none: a causal decoder of two layers or more still learns order (Haviv et al. 2022).

A new method that adds vectors or biases is a subclass, and a line in `added_positions` or in `score_positions`, the two
functions at the end. What shows a model, and what decodes it fast, uses the base class and needs no change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.base.config import ModelConfig


def token_positions(attention_mask: Tensor, already: Tensor | int = 0) -> Tensor:
    """Return the position of each token in its row (B, T), counted from `already`; padding is not counted.

    Args:
        attention_mask: (B, T) bool, False at padding, which gets the position of the token before it.
        already: (B, 1) tokens that each row has before these.
    """
    return (attention_mask.long().cumsum(dim=1) - 1 + already).clamp(min=0)  # (B, T)


class AddedPositions(nn.Module):
    """Vectors that are added to the embeddings: positions (B, T) -> (B, T, D)."""


class LearnedPositions(AddedPositions):
    """One learned vector per position (Radford et al. 2018)."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(context, width)

    def forward(self, positions: Tensor) -> Tensor:
        """Positions (B, T) -> vectors (B, T, D)."""
        return self.table(positions)  # (B, T, D)


class SinusoidalPositions(AddedPositions):
    """Fixed waves: sin at even, cos at odd channels (Vaswani et al. 2017, section 3.5)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, positions: Tensor) -> Tensor:
        """Positions (B, T) -> vectors (B, T, D)."""
        even = torch.arange(0, self.width, 2, device=positions.device, dtype=torch.get_default_dtype())  # (D/2)
        angles = positions[..., None] * torch.exp(even * (-math.log(10_000.0) / self.width))  # (B, T, D/2)
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)  # (B, T, D)


@dataclass(frozen=True)
class Rotation:
    """The angles of one forward pass, shared by all layers: cos and sin, (B or 1, 1, T, K)."""

    cos: Tensor
    sin: Tensor


class RotaryPositions(nn.Module):
    """Turns pairs of channels by an angle that grows with the position, so scores see distances (Su et al. 2021).

    Channel i is paired with channel i + K/2, as in the Llama family.
    """

    def __init__(self, head_width: int, base: float) -> None:
        super().__init__()
        self.head_width = head_width
        self.base = base

    def forward(self, positions: Tensor) -> Rotation:
        """Positions (B or 1, T) -> their rotation."""
        half = torch.arange(0, self.head_width, 2, device=positions.device, dtype=torch.get_default_dtype())  # (K/2)
        frequency = self.base ** (-half / self.head_width)  # (K/2)
        angles = positions[:, None, :, None] * frequency  # (B, 1, T, K/2)
        angles = torch.cat([angles, angles], dim=-1)  # (B, 1, T, K)
        return Rotation(angles.cos(), angles.sin())


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn queries or keys, (B, heads, T, K)."""
    cos = rotation.cos.to(x.dtype)  # (B or 1, 1, T, K)
    sin = rotation.sin.to(x.dtype)  # (B or 1, 1, T, K)
    first, second = x.chunk(2, dim=-1)  # (B, heads, T, K/2) each
    return x * cos + torch.cat([-second, first], dim=-1) * sin  # (B, heads, T, K)


class ScorePositions(nn.Module):
    """Biases that are added to the attention scores; they depend on the distance of query and key alone."""

    def forward(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Positions (B, T) and (B, S) -> bias of the scores (B, H, T, S)."""
        back = query_positions[:, :, None] - key_positions[:, None, :]  # (B, T, S)
        return self.by_distance(back)  # (B, H, T, S)

    def by_distance(self, back: Tensor) -> Tensor:
        """Return the bias (B, H, T, S) for `back` (B, T, S): query minus key position, negative for later keys.

        Compute in `torch.get_default_dtype()`: comparisons with NumPy run in float64.
        """
        raise NotImplementedError


class AlibiPositions(ScorePositions):
    """A penalty that grows with distance, at a fixed slope per head (Press et al. 2022)."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def by_distance(self, back: Tensor) -> Tensor:
        """Distances looked back (B, T, S) -> bias (B, H, T, S)."""
        distance = back[:, None].abs()  # (B, 1, T, S)
        slopes = torch.tensor(alibi_slopes(self.heads), device=distance.device)  # (H)
        return -slopes[:, None, None] * distance  # (B, H, T, S)


def alibi_slopes(heads: int) -> list[float]:
    """A geometric series from 2^(-8/n); for other than powers of two, every other slope of the next power.

    >>> alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    between = [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * power, 2)]
    return slopes + between[: heads - power]


class RelativePositions(ScorePositions):
    """A learned score bias per head and bucket of distances, one table for all layers (Raffel et al. 2020, T5)."""

    def __init__(self, heads: int, buckets: int, max_distance: int, causal: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, heads)
        self.buckets = buckets
        self.max_distance = max_distance
        self.causal = causal

    def by_distance(self, back: Tensor) -> Tensor:
        """Distances looked back (B, T, S) -> bias (B, H, T, S)."""
        return self.table(self.bucket(back)).permute(0, 3, 1, 2)  # (B, H, T, S)

    def bucket(self, back: Tensor) -> Tensor:
        """Distances looked back (negative: ahead) -> buckets: exact when near, logarithmic when far."""
        buckets = self.buckets
        offset = torch.zeros_like(back)
        if not self.causal:  # half of the buckets for each direction
            buckets //= 2
            offset = (back < 0).long() * buckets
            back = back.abs()
        back = back.clamp(min=0)
        exact = buckets // 2
        far = torch.log(back.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        far_bucket = (exact + far * (buckets - exact)).long().clamp(max=buckets - 1)  # (B, T, S)
        return offset + torch.where(back < exact, back, far_bucket)


def added_positions(config: ModelConfig) -> AddedPositions | None:
    """Return the part that adds positions to the embeddings; None if the setting is of another kind."""
    match config.positions:
        case "learned":
            return LearnedPositions(config.context, config.width)
        case "sinusoidal":
            return SinusoidalPositions(config.width)
        case _:
            return None


def score_positions(config: ModelConfig, causal: bool) -> ScorePositions | None:
    """Return the part that adds biases to the attention scores; None if the setting is of another kind."""
    match config.positions:
        case "alibi":
            return AlibiPositions(config.heads)
        case "relative":
            return RelativePositions(config.heads, config.relative_buckets, config.relative_max_distance, causal)
        case _:
            return None
