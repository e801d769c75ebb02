"""Multi-head, grouped-query and multi-query attention (Vaswani et al. 2017, section 3.2; Ainslie et al. 2023)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from glassformer.numpy_reference.arrays import Array, Bools, Ints, Weights, under, with_prefix
from glassformer.numpy_reference.linear import Linear, linear, linear_backward
from glassformer.numpy_reference.norms import NumpyNorm, norm, norm_backward
from glassformer.numpy_reference.positions import RotaryAngles, rotate, rotate_backward

if TYPE_CHECKING:
    from glassformer.base.config import ModelConfig


def self_allowed(positions: Ints, attention_mask: Bools, causal: bool, window: int | None) -> Bools:
    """Return the mask of keys that each query may attend to in self-attention, (B, 1, T, T).

    Args:
        positions: (B, T) position of each token in its row.
        attention_mask: (B, T) bool, False at padding, to which no query attends.
        causal: allow only keys at the query's position or before it.
        window: allow only keys at a distance smaller than this (Beltagy et al. 2020, section 3.1).
    """
    relative_positions = positions[:, None, :, None] - positions[:, None, None, :]  # (B, 1, T, T)
    allowed = np.broadcast_to(attention_mask[:, None, None, :], relative_positions.shape)  # (B, 1, T, T)
    if causal:
        allowed = allowed & (relative_positions >= 0)
    if window is not None:
        allowed = allowed & (np.abs(relative_positions) < window)
    return allowed


class Attend(NamedTuple):
    """Values saved by `attend` for the backward pass."""

    q: Array
    k: Array
    v: Array
    weights: Array  # (B, H, T, S)


def attend(q: Array, k: Array, v: Array, allowed: Bools, bias: Array | None = None) -> tuple[Array, Attend]:
    """Return z = softmax(q kᵀ / √K + bias) v over the allowed keys (Vaswani et al. 2017, equation 1).

    Scores of masked keys are -inf, so their weights are exactly 0; z of a query without an allowed key is zero.

    Args:
        q: (B, H, T, K) queries.
        k, v: (B, H, S, K) keys and (B, H, S, U) values, repeated for query heads that share them.
        allowed: bool array that broadcasts to (B, H, T, S), False where the key is masked.
        bias: (B, H, T, S) added to the scores; None: no bias.

    Returns:
        z (B, H, T, U), and the values for the backward pass, including the attention weights.
    """
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])  # (B, H, T, S)
    if bias is not None:
        scores = scores + bias  # (B, H, T, S)
    scores = np.where(allowed, scores, -np.inf)  # (B, H, T, S)
    highest = scores.max(axis=-1, keepdims=True)  # (B, H, T, 1)
    exps = np.exp(scores - np.where(np.isfinite(highest), highest, 0))  # (B, H, T, S)
    weights = exps / np.where(np.isfinite(highest), exps.sum(axis=-1, keepdims=True), 1)  # (B, H, T, S)
    return weights @ v, Attend(q, k, v, weights)  # (B, H, T, U)


def attend_backward(dz: Array, saved: Attend) -> tuple[Array, Array, Array, Array]:
    """Return dq (B, H, T, K), dk (B, H, S, K), dv (B, H, S, U), and dbias (B, H, T, S), the gradient of the scores too.

    z = A v gives dA = dz vᵀ and dv = Aᵀ dz. Softmax has ∂A_s/∂score_r = A_s (δ_sr - A_r), so
    dscore = A (dA - Σ_s A_s dA_s), which is 0 where A is 0. score = q kᵀ / √K gives dq and dk.
    """
    q, k, v, weights = saved  # (B, H, T, K), (B, H, S, K), (B, H, S, U), (B, H, T, S)
    dweights = dz @ v.swapaxes(-1, -2)  # (B, H, T, S)
    dscores = weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))  # (B, H, T, S)
    scale = 1 / math.sqrt(q.shape[-1])
    dq = dscores @ k * scale  # (B, H, T, K)
    dk = dscores.swapaxes(-1, -2) @ q * scale  # (B, H, S, K)
    dv = weights.swapaxes(-1, -2) @ dz  # (B, H, S, U)
    return dq, dk, dv, dscores


class HeadGroups(NamedTuple):
    """Query heads of an attention layer, and the key-value head that each one uses."""

    heads: list[int]  # (H) numbers of the query heads in the settings
    kv_index: list[int]  # (H) index of the key-value head that each query head uses
    kv_heads: int  # G, number of key-value heads


def head_groups(settings: ModelConfig, site: str) -> HeadGroups:
    """Group the query heads of an attention layer: query head h uses key-value head ⌊h G / H⌋ (Ainslie et al. 2023).

    Removed query heads are left out, and so are key-value heads that no remaining query head uses.
    """
    heads = settings.kept_heads(site)
    kv_heads = settings.kept_kv_heads(site)
    kv_index = [kv_heads.index(head * settings.G // settings.heads) for head in heads]
    return HeadGroups(heads, kv_index, len(kv_heads))


def sum_groups(dx: Array, groups: HeadGroups) -> Array:
    """Sum gradients over the query heads that share a key-value head: (B, H, S, K) -> (B, G, S, K)."""
    B, _, S, K = dx.shape
    total = np.zeros((B, groups.kv_heads, S, K))  # (B, G, S, K)
    for head, kv_head in enumerate(groups.kv_index):
        total[:, kv_head] += dx[:, head]
    return total


class ProjectedHeads(NamedTuple):
    """Values saved by `project` for the backward pass."""

    linear: Linear
    norm: NumpyNorm | None
    rotation: RotaryAngles | None


def project(
    x: Array, weights: Weights, name: str, heads: int, angles: RotaryAngles | None, settings: ModelConfig
) -> tuple[Array, ProjectedHeads]:
    """Return the queries, keys or values of all heads: projected, normalized and rotated as the settings require.

    Queries and keys may have an RMSNorm (QK-norm), over each head (Henry et al. 2020, section 3) or over all heads as
    one vector (Team OLMo 2025), depending on the width of its gain.

    x: (B, T, D) -> (B, heads, T, K), or (B, heads, T, U) for values.
    """
    flat, saved_linear = linear(x, under(name, weights))  # (B, T, heads K)
    B, T, _ = flat.shape
    gain = under(f"{name}_norm", weights)
    saved_norm = None
    if gain:
        parts = flat.reshape(B, T, -1, len(gain["weight"]))  # (B, T, heads, K) or (B, T, 1, heads K)
        flat, saved_norm = norm(parts, gain, "rmsnorm", settings.norm_eps or 1e-6)
    width = settings.U if name == "value" else settings.K
    y = flat.reshape(B, T, heads, width).transpose(0, 2, 1, 3)  # (B, heads, T, K or U)
    if angles is not None:
        y = rotate(y, angles)  # (B, heads, T, K)
    return y, ProjectedHeads(saved_linear, saved_norm, angles)


def project_backward(dy: Array, saved: ProjectedHeads, name: str) -> tuple[Array, dict[str, Array]]:
    """Return dx (B, T, D) and the gradients of the weights, by the steps of `project` in reverse order."""
    gradients: dict[str, Array] = {}
    if saved.rotation is not None:
        dy = rotate_backward(dy, saved.rotation)  # (B, heads, T, K)
    dflat = joined(dy)  # (B, T, heads K)
    if saved.norm is not None:
        dparts, norm_gradients = norm_backward(dflat.reshape(saved.norm.normalized.shape), saved.norm)
        dflat = dparts.reshape(dflat.shape)  # (B, T, heads K)
        gradients = with_prefix(f"{name}_norm", norm_gradients)
    dx, linear_gradients = linear_backward(dflat, saved.linear)  # (B, T, D)
    return dx, gradients | with_prefix(name, linear_gradients)


def joined(x: Array) -> Array:
    """Concatenate the heads: (B, heads, T, K) -> (B, T, heads K)."""
    B, heads, T, K = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, T, heads * K)


class NumpyAttention(NamedTuple):
    """Values saved by `attention` for the backward pass."""

    heads: int  # number of heads in the settings, including removed heads
    groups: HeadGroups
    query: ProjectedHeads
    key: ProjectedHeads
    value: ProjectedHeads
    attend: Attend
    output: Linear
    projects: bool  # whether there is an output projection


def attention(
    x: Array,
    source: Array,
    weights: Weights,
    settings: ModelConfig,
    site: str,
    allowed: Bools,
    bias: Array | None = None,
    angles: RotaryAngles | None = None,
) -> tuple[Array, NumpyAttention]:
    """Return MultiHead(x, source) = Concat(head_1 … head_H) W_O (Vaswani et al. 2017, section 3.2.2).

    Args:
        x: (B, T, D) input of the queries.
        source: (B, S, D) input of the keys and values: x in self-attention, the memory in cross-attention.
        weights: the layer's weights.
        settings: model settings.
        site: name of the layer, such as `dec.0.self`.
        allowed: mask of visible keys, as in `attend`.
        bias: as in `attend`, but for all heads in the settings, including removed heads.
        angles: rotary angles of queries and keys.

    Returns:
        The output (B, T, D), and the values for the backward pass.
    """
    groups = head_groups(settings, site)
    q, query = project(x, weights, "query", len(groups.heads), angles, settings)  # (B, H, T, K)
    k, key = project(source, weights, "key", groups.kv_heads, angles, settings)  # (B, G, S, K)
    v, value = project(source, weights, "value", groups.kv_heads, None, settings)  # (B, G, S, U)
    layer_bias = None if bias is None else bias[:, groups.heads]  # (B, H, T, S)
    z, saved = attend(q, k[:, groups.kv_index], v[:, groups.kv_index], allowed, layer_bias)  # (B, H, T, U)
    y, output = linear(joined(z), output_weights(weights, settings, groups))  # (B, T, D)
    return y, NumpyAttention(settings.heads, groups, query, key, value, saved, output, settings.output_projection)


def output_weights(weights: Weights, settings: ModelConfig, groups: HeadGroups) -> Weights:
    """Return the weights of the output projection.

    Without a projection, its matrix (D, H U) would be the identity, with only the columns of the remaining heads.
    """
    if settings.output_projection:
        return under("output", weights)
    U = settings.U
    channels = [head * U + channel for head in groups.heads for channel in range(U)]  # (H U)
    return {"weight": np.eye(settings.width)[:, channels]}


def attention_backward(dy: Array, saved: NumpyAttention) -> tuple[Array, Array, Array, dict[str, Array]]:
    """Return dx (B, T, D), dsource (B, S, D), dbias and the gradients of the weights.

    dx is the gradient through the queries, and dsource the gradient through the keys and values. dbias (B, heads, T, S)
    is 0 for removed heads.
    """
    dflat, output = linear_backward(dy, saved.output)  # (B, T, H U)
    B, H, T, _ = saved.attend.q.shape
    dz = dflat.reshape(B, T, H, saved.attend.v.shape[-1]).transpose(0, 2, 1, 3)  # (B, H, T, U)
    dq, dk, dv, dscores = attend_backward(dz, saved.attend)
    dx, query = project_backward(dq, saved.query, "query")  # (B, T, D)
    dsource_key, key = project_backward(sum_groups(dk, saved.groups), saved.key, "key")  # (B, S, D)
    dsource_value, value = project_backward(sum_groups(dv, saved.groups), saved.value, "value")  # (B, S, D)
    dbias = np.zeros((B, saved.heads, T, dscores.shape[-1]))  # (B, heads, T, S)
    dbias[:, saved.groups.heads] = dscores
    projection = with_prefix("output", output) if saved.projects else {}
    return dx, dsource_key + dsource_value, dbias, projection | query | key | value
