"""Attention: multi-head, grouped-query or multi-query. Vaswani et al. 2017, section 3.2; Ainslie et al. 2023."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from glassformer.numpy_reference.arrays import Array, Bools, Ints, Weights, placed, under
from glassformer.numpy_reference.linear import Linear, linear, linear_backward
from glassformer.numpy_reference.norms import NumpyNorm, norm, norm_backward
from glassformer.numpy_reference.positions import RotaryAngles, rotate, rotate_backward
from glassformer.numpy_reference.settings import RMSNORM_EPSILON, Settings


def self_allowed(places: Ints, real: Bools, causal: bool, window: int | None) -> Bools:
    """Return the mask of keys that each query may attend to in self-attention, (B, 1, T, T).

    Args:
        places: (B, T).
        real: (B, T) False at padding, which nobody sees.
        causal: only keys at the query's place or before it.
        window: only keys fewer than this many places away (Beltagy et al. 2020, section 3.1).
    """
    back = places[:, None, :, None] - places[:, None, None, :]  # (B, 1, T, T)
    allowed = np.broadcast_to(real[:, None, None, :], back.shape)  # (B, 1, T, T)
    if causal:
        allowed = allowed & (back >= 0)
    if window is not None:
        allowed = allowed & (np.abs(back) < window)
    return allowed


class Attend(NamedTuple):
    """Values saved by `attend` for the backward pass."""

    q: Array
    k: Array
    v: Array
    weights: Array  # (B, H, T, S)


def attend(q: Array, k: Array, v: Array, allowed: Bools, bias: Array | None = None) -> tuple[Array, Attend]:
    """softmax(q kᵀ / √K + bias) v over the allowed keys (Vaswani et al. 2017, equation 1).

    Scores that are not allowed are -inf, so their weights are exactly 0; a query that may see nothing gets zeros.

    Args:
        q: (B, H, T, K).
        k, v: (B, H, S, K); heads that share keys and values have the same ones.
        allowed: fits (B, H, T, S).
        bias: (B, H, T, S), or None.

    Returns:
        The mixed values (B, H, T, K), and what the backward pass needs; the attention weights are in it.
    """
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])  # (B, H, T, S)
    if bias is not None:
        scores = scores + bias  # (B, H, T, S)
    scores = np.where(allowed, scores, -np.inf)  # (B, H, T, S)
    highest = scores.max(axis=-1, keepdims=True)  # (B, H, T, 1)
    grown = np.exp(scores - np.where(np.isfinite(highest), highest, 0))  # (B, H, T, S)
    weights = grown / np.where(np.isfinite(highest), grown.sum(axis=-1, keepdims=True), 1)  # (B, H, T, S)
    return weights @ v, Attend(q, k, v, weights)  # (B, H, T, K)


def attend_backward(dmixed: Array, kept: Attend) -> tuple[Array, Array, Array, Array]:
    """dq (B, H, T, K), dk and dv (B, H, S, K), and dbias (B, H, T, S), which is also the gradient of the scores.

    mixed = A v gives dA = dmixed vᵀ and dv = Aᵀ dmixed. Softmax has ∂A_s/∂score_r = A_s (δ_sr - A_r), so
    dscore = A (dA - Σ_s A_s dA_s); where A is 0 nothing flows. score = q kᵀ / √K gives dq and dk.
    """
    q, k, v, weights = kept  # (B, H, T, K), (B, H, S, K), (B, H, S, K), (B, H, T, S)
    dweights = dmixed @ v.swapaxes(-1, -2)  # (B, H, T, S)
    dscores = weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))  # (B, H, T, S)
    scale = 1 / math.sqrt(q.shape[-1])
    dq = dscores @ k * scale  # (B, H, T, K)
    dk = dscores.swapaxes(-1, -2) @ q * scale  # (B, H, S, K)
    dv = weights.swapaxes(-1, -2) @ dmixed  # (B, H, S, K)
    return dq, dk, dv, dscores


class Sharing(NamedTuple):
    """Query heads that are kept, and the key and value head that each one uses."""

    heads: list[int]  # (H) the numbers of the query heads
    asks: list[int]  # (H) the index of the key head of each
    kv_heads: int  # G


def sharing(settings: Settings, site: str) -> Sharing:
    """Query head h uses key head ⌊h G / H⌋ (Ainslie et al. 2023), of those that are there.

    Removed query heads are not, nor are key heads that only they used.
    """
    heads = settings.kept_heads(site)
    served = settings.kept_kv_heads(site)
    return Sharing(heads, [served.index(head * settings.G // settings.heads) for head in heads], len(served))


def shared_backward(dx: Array, by: Sharing) -> Array:
    """(B, H, S, K) -> (B, G, S, K): a key head that serves several query heads gets the sum of their gradients."""
    B, _, S, K = dx.shape
    found = np.zeros((B, by.kv_heads, S, K))  # (B, G, S, K)
    for head, shared in enumerate(by.asks):
        found[:, shared] += dx[:, head]
    return found


class ProjectedHeads(NamedTuple):
    """Values saved by `project` for the backward pass."""

    linear: Linear
    norm: NumpyNorm | None
    rotation: RotaryAngles | None


def project(
    x: Array, weights: Weights, name: str, heads: int, turn: RotaryAngles | None, settings: Settings
) -> tuple[Array, ProjectedHeads]:
    """The queries, keys or values of all heads: projected, normalised and turned, as the settings ask.

    Queries and keys may have a norm of their own, here RMSNorm: over each head (Henry et al. 2020, section 3), or over
    all heads as one vector (Team OLMo 2025). Its gain is as wide as what it normalises.

    x: (B, T, D) -> (B, heads, T, K).
    """
    flat, kept = linear(x, under(name, weights))  # (B, T, heads K)
    B, T, _ = flat.shape
    gain = under(f"{name}_norm", weights)
    normed = None
    if gain:
        parts = flat.reshape(B, T, -1, len(gain["weight"]))  # (B, T, heads, K) or (B, T, 1, heads K)
        flat, normed = norm(parts, gain, "rmsnorm", settings.norm_eps or RMSNORM_EPSILON)
    y = flat.reshape(B, T, heads, settings.K).transpose(0, 2, 1, 3)  # (B, heads, T, K)
    if turn is not None:
        y = rotate(y, turn)  # (B, heads, T, K)
    return y, ProjectedHeads(kept, normed, turn)


def project_backward(dy: Array, kept: ProjectedHeads, name: str) -> tuple[Array, dict[str, Array]]:
    """dx (B, T, D), and the gradients of the weights: the steps of `project`, undone from the last to the first."""
    gradients: dict[str, Array] = {}
    if kept.rotation is not None:
        dy = rotate_backward(dy, kept.rotation)  # (B, heads, T, K)
    dflat = joined(dy)  # (B, T, heads K)
    if kept.norm is not None:
        dparts, gain = norm_backward(dflat.reshape(kept.norm.normalised.shape), kept.norm)
        dflat = dparts.reshape(dflat.shape)  # (B, T, heads K)
        gradients = placed(f"{name}_norm", gain)
    dx, matrix = linear_backward(dflat, kept.linear)  # (B, T, D)
    return dx, gradients | placed(name, matrix)


def joined(x: Array) -> Array:
    """The heads side by side again: (B, heads, T, K) -> (B, T, heads K)."""
    B, heads, T, K = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, T, heads * K)


class NumpyAttention(NamedTuple):
    """Values saved by `attention` for the backward pass."""

    heads: int  # of the settings, the removed ones included
    sharing: Sharing
    query: ProjectedHeads
    key: ProjectedHeads
    value: ProjectedHeads
    attend: Attend
    output: Linear


def attention(
    x: Array,
    source: Array,
    weights: Weights,
    settings: Settings,
    site: str,
    allowed: Bools,
    bias: Array | None = None,
    turn: RotaryAngles | None = None,
) -> tuple[Array, NumpyAttention]:
    """MultiHead(x, source) = Concat(head_1 … head_H) W_O (Vaswani et al. 2017, section 3.2.2).

    Queries come from x (B, T, D), keys and values from the source (B, S, D): x itself in self-attention, the memory in
    cross-attention. `site` names the layer, `dec.0.self`; `allowed` and `bias` are those of `attend`, the bias for all
    heads of the settings; `turn` turns queries and keys.

    Returns:
        (B, T, D), and what the backward pass needs.
    """
    by = sharing(settings, site)
    q, query = project(x, weights, "query", len(by.heads), turn, settings)  # (B, H, T, K)
    k, key = project(source, weights, "key", by.kv_heads, turn, settings)  # (B, G, S, K)
    v, value = project(source, weights, "value", by.kv_heads, None, settings)  # (B, G, S, K)
    own = None if bias is None else bias[:, by.heads]  # (B, H, T, S)
    mixed, kept = attend(q, k[:, by.asks], v[:, by.asks], allowed, own)  # (B, H, T, K)
    y, output = linear(joined(mixed), under("output", weights))  # (B, T, D)
    return y, NumpyAttention(settings.heads, by, query, key, value, kept, output)


def attention_backward(dy: Array, kept: NumpyAttention) -> tuple[Array, Array, Array, dict[str, Array]]:
    """dx (B, T, D) through the queries, dsource (B, S, D) through keys and values, dbias, and the rest.

    dbias, (B, heads, T, S), is 0 for the heads that are not there.
    """
    dflat, output = linear_backward(dy, kept.output)  # (B, T, H K)
    B, H, T, K = kept.attend.q.shape
    dmixed = dflat.reshape(B, T, H, K).transpose(0, 2, 1, 3)  # (B, H, T, K)
    dq, dk, dv, dscores = attend_backward(dmixed, kept.attend)
    dx, query = project_backward(dq, kept.query, "query")  # (B, T, D)
    dsource_key, key = project_backward(shared_backward(dk, kept.sharing), kept.key, "key")  # (B, S, D)
    dsource_value, value = project_backward(shared_backward(dv, kept.sharing), kept.value, "value")  # (B, S, D)
    dbias = np.zeros((B, kept.heads, T, dscores.shape[-1]))  # (B, heads, T, S)
    dbias[:, kept.sharing.heads] = dscores
    return dx, dsource_key + dsource_value, dbias, placed("output", output) | query | key | value
