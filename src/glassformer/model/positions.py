"""Position methods, each of which acts at one of three points of the model, or at none.

* added to the embeddings, subclasses of `AddedPositions`: `LearnedPositions`, `SinusoidalPositions`
* rotation of queries and keys: `RotaryPositions`
* added to the attention scores, subclasses of `ScorePositions`: `AlibiPositions`, `RelativePositions`
* none: a causal decoder of two layers or more still learns order (Haviv et al. 2022).

A new method that adds vectors or biases needs a subclass, and a case in `added_positions` or `score_positions` at the
end of this file; `CONTRIBUTING.md` names the other files to change. Inspection and fast decoding use the base classes
and need no change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.base.config import ModelConfig


def token_positions(attention_mask: Tensor, past_length: Tensor | int = 0) -> Tensor:
    """Return the position of each token in its row (B, T), starting at `past_length`; padding is not counted.

    Args:
        attention_mask: (B, T) bool, False at padding, which gets the position of the token before it, or 0 if there is
            none.
        past_length: number of earlier tokens in each row, without padding: (B, 1), or one number for all rows.
    """
    return (attention_mask.long().cumsum(dim=1) - 1 + past_length).clamp(min=0)  # (B, T)


class AddedPositions(nn.Module):
    """Base class of position vectors added to the embeddings: positions (B, T) -> (B, T, D)."""


class LearnedPositions(AddedPositions):
    """Learned position embeddings, one vector per position (Radford et al. 2018)."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(context, width)

    def forward(self, positions: Tensor) -> Tensor:
        """Return the vectors (B, T, D) of positions (B, T)."""
        return self.table(positions)  # (B, T, D)


class SinusoidalPositions(AddedPositions):
    """Fixed sinusoidal encodings: sin at even, cos at odd channels (Vaswani et al. 2017, section 3.5)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, positions: Tensor) -> Tensor:
        """Return the vectors (B, T, D) of positions (B, T)."""
        even = torch.arange(0, self.width, 2, device=positions.device, dtype=torch.get_default_dtype())  # (D/2)
        angles = positions[..., None] * torch.exp(even * (-math.log(10_000.0) / self.width))  # (B, T, D/2)
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)  # (B, T, D)


@dataclass(frozen=True)
class Rotation:
    """Cosines and sines of the rotary angles of one forward pass, (B or 1, 1, T, K) each, shared by all layers."""

    cos: Tensor
    sin: Tensor


class RotaryPositions(nn.Module):
    """Rotary position embeddings: rotate pairs of channels by an angle proportional to the position (Su et al. 2021).

    Scores then depend on positions only through their differences. Channel i is paired with channel i + K/2, as in
    Hugging Face's implementation of Llama.
    """

    def __init__(self, head_width: int, base: float) -> None:
        super().__init__()
        self.head_width = head_width
        self.base = base

    def forward(self, positions: Tensor) -> Rotation:
        """Return the rotation of positions (B or 1, T)."""
        half = torch.arange(0, self.head_width, 2, device=positions.device, dtype=torch.get_default_dtype())  # (K/2)
        frequency = self.base ** (-half / self.head_width)  # (K/2)
        angles = positions[:, None, :, None] * frequency  # (B, 1, T, K/2)
        angles = torch.cat([angles, angles], dim=-1)  # (B, 1, T, K)
        return Rotation(angles.cos(), angles.sin())


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotate queries or keys (B, heads, T, K)."""
    cos = rotation.cos.to(x.dtype)  # (B or 1, 1, T, K)
    sin = rotation.sin.to(x.dtype)  # (B or 1, 1, T, K)
    first, second = x.chunk(2, dim=-1)  # (B, heads, T, K/2) each
    return x * cos + torch.cat([-second, first], dim=-1) * sin  # (B, heads, T, K)


class ScorePositions(nn.Module):
    """Base class of biases added to the attention scores; a bias depends only on the head and the relative position."""

    def forward(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return the score bias (B, H, T, S) for query positions (B, T) and key positions (B, S)."""
        relative_positions = query_positions[:, :, None] - key_positions[:, None, :]  # (B, T, S)
        return self.by_distance(relative_positions)  # (B, H, T, S)

    def by_distance(self, relative_positions: Tensor) -> Tensor:
        """Return the bias (B, H, T, S) for `relative_positions` (B, T, S): query position minus key position.

        Subclasses must not round the bias to float32 if `torch.get_default_dtype()` is float64, as in comparisons with
        NumPy.
        """
        raise NotImplementedError


class AlibiPositions(ScorePositions):
    """ALiBi: a penalty proportional to the distance, with a fixed slope per head (Press et al. 2022)."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def by_distance(self, relative_positions: Tensor) -> Tensor:
        """Return the bias (B, H, T, S) for query minus key positions (B, T, S)."""
        distance = relative_positions[:, None].abs()  # (B, 1, T, S)
        slopes = torch.tensor(alibi_slopes(self.heads), device=distance.device)  # (H)
        return -slopes[:, None, None] * distance  # (B, H, T, S)


def alibi_slopes(heads: int) -> list[float]:
    """Return the ALiBi slopes of n heads: 2^(-8/n), 2^(-16/n), ….

    If n is not a power of two, return the slopes for the next lower power of two, then every other slope for the next
    higher power.

    >>> alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    between = [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * power, 2)]
    return slopes + between[: heads - power]


class RelativePositions(ScorePositions):
    """T5 relative positions: a learned score bias per head and distance bucket, shared by all layers of a stack.

    Raffel et al. 2020.
    """

    def __init__(self, heads: int, buckets: int, max_distance: int, causal: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, heads)
        self.buckets = buckets
        self.max_distance = max_distance
        self.causal = causal

    def by_distance(self, relative_positions: Tensor) -> Tensor:
        """Return the bias (B, H, T, S) for query minus key positions (B, T, S)."""
        return self.table(self.bucket(relative_positions)).permute(0, 3, 1, 2)  # (B, H, T, S)

    def bucket(self, relative_positions: Tensor) -> Tensor:
        """Return the buckets (B, T, S) of query minus key positions.

        Each small distance has a separate bucket; the bucket of a larger distance depends on the logarithm of the
        distance, and distances of at least `max_distance` share the last bucket. If not causal, each direction has half
        of the buckets; if causal, keys after the query share the bucket of distance 0.
        """
        buckets = self.buckets
        offset = torch.zeros_like(relative_positions)
        if not self.causal:  # half of the buckets for each direction
            buckets //= 2
            offset = (relative_positions < 0).long() * buckets
            relative_positions = relative_positions.abs()
        relative_positions = relative_positions.clamp(min=0)
        exact = buckets // 2
        far = torch.log(relative_positions.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        far_bucket = (exact + far * (buckets - exact)).long().clamp(max=buckets - 1)  # (B, T, S)
        return offset + torch.where(relative_positions < exact, relative_positions, far_bucket)


def added_positions(config: ModelConfig) -> AddedPositions | None:
    """Return the module that adds positions to the embeddings; None if `config.positions` names no such method."""
    match config.positions:
        case "learned":
            return LearnedPositions(config.context, config.width)
        case "sinusoidal":
            return SinusoidalPositions(config.width)
        case _:
            return None


def score_positions(config: ModelConfig, causal: bool) -> ScorePositions | None:
    """Return the module that adds biases to the attention scores; None if `config.positions` names no such method."""
    match config.positions:
        case "alibi":
            return AlibiPositions(config.heads)
        case "relative":
            return RelativePositions(config.heads, config.relative_buckets, config.relative_max_distance, causal)
        case _:
            return None
