"""Position encodings: vectors added to embeddings, rotations of queries and keys, and biases added to scores.

Only `rotate` and `relative_bias` need a backward pass here; the backward pass of learned vectors is in `stack`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from glassformer.numpy_reference.arrays import Array, Bools, Ints, Weights
from glassformer.numpy_reference.linear import look_up_backward

if TYPE_CHECKING:
    from glassformer.base.config import ModelConfig


def position_vectors(positions: Ints, weights: Weights, settings: ModelConfig) -> Array | None:
    """Return the vectors added to the embeddings, (B, T) -> (B, T, D); None unless positions are learned or sinusoidal.

    `weights` are the weights of the embedding.
    """
    if settings.positions == "learned":
        return weights["positions.table.weight"][positions]  # (B, T, D)
    if settings.positions == "sinusoidal":
        return sinusoids(positions, settings.width)  # (B, T, D)
    return None


def score_bias(
    relative_positions: Ints, weights: Weights, settings: ModelConfig, causal: bool
) -> tuple[Array | None, Ints | None]:
    """Return the bias added to the scores, (B, T, S) -> (B, H, T, S); None unless `positions` is alibi or relative.

    Args:
        relative_positions: (B, T, S) query position minus key position.
        weights: weights of the stack.
        settings: model settings.
        causal: True if queries attend only to keys at their own and earlier positions.

    Returns:
        The bias, and the buckets of `relative_bias`, or None for other biases.
    """
    if settings.positions == "alibi":
        return alibi_bias(relative_positions, settings.heads), None  # (B, H, T, S)
    if settings.positions == "relative":
        table = weights["score_positions.table.weight"]  # (buckets, H)
        return relative_bias(
            relative_positions, table, settings.relative_max_distance, causal
        )  # (B, H, T, S), (B, T, S)
    return None, None


def token_positions(attention_mask: Bools) -> Ints:
    """Return the position of each token in its row, (B, T), from 0.

    Padding has the position of the last token before it, or 0 if there is none.
    """
    return np.maximum(np.cumsum(attention_mask, axis=1, dtype=np.int64) - 1, 0)  # (B, T)


def sinusoids(positions: Ints, width: int) -> Array:
    """Return sin(p / 10000^(2i/D)) in channel 2i, and cos of the same angle in channel 2i + 1 (Vaswani et al. 2017).

    positions: (B, T) -> (B, T, D).
    """
    frequencies = 10_000.0 ** (-np.arange(0, width, 2) / width)  # (D/2)
    angles = positions[..., None] * frequencies  # (B, T, D/2)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(*positions.shape, width)  # (B, T, D)


class RotaryAngles(NamedTuple):
    """Cosines and sines of the rotary angles, (B, 1, T, K) each."""

    cos: Array
    sin: Array


def rotation(positions: Ints, head_width: int, base: float) -> RotaryAngles:
    """Return cos and sin of the rotary angles p base^(-2i/K) of channels i and i + K/2 (Su et al. 2021, section 3.2.2).

    positions: (B, T) -> (B, 1, T, K) each.
    """
    frequencies = base ** (-np.arange(0, head_width, 2) / head_width)  # (K/2)
    angles = positions[:, None, :, None] * frequencies  # (B, 1, T, K/2)
    angles = np.concatenate([angles, angles], axis=-1)  # (B, 1, T, K)
    return RotaryAngles(np.cos(angles), np.sin(angles))


def rotate(x: Array, angles: RotaryAngles) -> Array:
    """Rotate pairs of channels, (a, b) -> (a cos θ - b sin θ, b cos θ + a sin θ); x: (B, heads, T, K)."""
    a, b = np.split(x, 2, axis=-1)  # (B, heads, T, K/2) each
    return x * angles.cos + np.concatenate([-b, a], axis=-1) * angles.sin  # (B, heads, T, K)


def rotate_backward(dy: Array, angles: RotaryAngles) -> Array:
    """Return dx: the transpose of a rotation by θ is the rotation by -θ."""
    return rotate(dy, RotaryAngles(angles.cos, -angles.sin))


def alibi_slopes(heads: int) -> list[float]:
    """Return 2^(-8i/n) for i = 1 … n (Press et al. 2022).

    If n is not a power of two, return the slopes for the next lower power of two, then every other slope for the next
    higher one.
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    between = [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * power, 2)]
    return slopes + between[: heads - power]


def alibi_bias(relative_positions: Ints, heads: int) -> Array:
    """Return the bias -slope x distance of every score (Press et al. 2022, section 3).

    relative_positions: (B, T, S) query position minus key position -> (B, H, T, S).
    """
    return -np.array(alibi_slopes(heads))[:, None, None] * np.abs(relative_positions)[:, None]  # (B, H, T, S)


def relative_bias(relative_positions: Ints, table: Array, max_distance: int, causal: bool) -> tuple[Array, Ints]:
    """Return the bias that each head has learned for the bucket of each distance (Raffel et al. 2020, section 2.1).

    Args:
        relative_positions: (B, T, S) query position minus key position.
        table: (buckets, H) learned biases.
        max_distance: distances of at least this share the last bucket.
        causal: True to use all buckets for earlier keys, False to use half of them for each direction.

    Returns:
        The bias (B, H, T, S), and the buckets (B, T, S) for `relative_bias_backward`.
    """
    buckets = bucket_of(relative_positions, table.shape[0], max_distance, causal)  # (B, T, S)
    return table[buckets].transpose(0, 3, 1, 2), buckets  # (B, H, T, S)


def relative_bias_backward(dbias: Array, buckets: Ints, table: Array) -> Array:
    """Return the gradient of the table (buckets, H), the sum over all pairs of positions in each bucket."""
    return look_up_backward(dbias.transpose(0, 2, 3, 1), buckets, table)


def bucket_of(relative_positions: Ints, buckets: int, max_distance: int, causal: bool) -> Ints:
    """Return the bucket of each relative position, in the same shape, as T5's `relative_position_bucket` does.

    In each direction, the first half of the buckets contain one distance each; the others grow logarithmically. The
    logarithm is computed in float32 as in T5, because its rounding decides in which of two adjacent buckets a distance
    falls.
    """
    offset = np.zeros_like(relative_positions)
    if not causal:
        buckets //= 2
        offset = np.where(relative_positions < 0, buckets, 0)
        relative_positions = np.abs(relative_positions)
    relative_positions = np.maximum(relative_positions, 0)
    exact = buckets // 2
    ratio: npt.NDArray[np.float32] = np.maximum(relative_positions, 1).astype(np.float32) / np.float32(exact)
    far = np.log(ratio) / np.float32(math.log(max_distance / exact)) * np.float32(buckets - exact)
    far_bucket = np.minimum((np.float32(exact) + far).astype(np.int64), buckets - 1)
    return offset + np.where(relative_positions < exact, relative_positions, far_bucket)
