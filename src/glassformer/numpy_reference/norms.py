"""Normalization of each vector: LayerNorm, RMSNorm or the identity."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from glassformer.numpy_reference.arrays import Array, Weights


class NumpyNorm(NamedTuple):
    """Values saved by `norm` for the backward pass."""

    kind: str
    normalized: Array  # (..., D) before the gain
    size: Array  # (..., 1) divisor
    weights: Weights


def norm(x: Array, weights: Weights, kind: str, epsilon: float) -> tuple[Array, NumpyNorm]:
    """Apply a norm over the last axis, with gain g (`weight`) and, if present, bias b (`bias`).

    * layernorm: x̂ = (x - mean) / √(variance + ε), y = g x̂ + b (Ba et al. 2016, equation 4)
    * rmsnorm: x̂ = x / √(mean of x² + ε), y = g x̂ (Zhang and Sennrich 2019, equation 4)
    * none: y = x

    x: (..., D) -> y: (..., D).
    """
    if kind == "none":
        return x, NumpyNorm(kind, x, np.ones((1,)), weights)
    if kind == "layernorm":
        x = x - x.mean(axis=-1, keepdims=True)  # (..., D)
    size = np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon)  # (..., 1)
    normalized = x / size  # (..., D)
    y = normalized * weights["weight"]  # (..., D)
    if "bias" in weights:
        y = y + weights["bias"]  # (..., D)
    return y, NumpyNorm(kind, normalized, size, weights)


def norm_backward(dy: Array, saved: NumpyNorm) -> tuple[Array, dict[str, Array]]:
    """Return dx (..., D) and the gradients of gain and bias.

    With divisor s and dx̂ = g dy, ds/dx_j = x̂_j / D gives dx_j = (dx̂_j - x̂_j mean(dx̂ x̂)) / s. LayerNorm also
    subtracts the mean from x, so the mean is subtracted from dx (the mean of x̂ is 0).
    """
    if saved.kind == "none":
        return dy, {}
    D = dy.shape[-1]
    normalized = saved.normalized  # (..., D)
    size = saved.size  # (..., 1)
    gradients = {"weight": (dy * normalized).reshape(-1, D).sum(axis=0)}  # (D)
    if "bias" in saved.weights:
        gradients["bias"] = dy.reshape(-1, D).sum(axis=0)  # (D)
    dnormalized = dy * saved.weights["weight"]  # (..., D)
    dx = (dnormalized - normalized * (dnormalized * normalized).mean(axis=-1, keepdims=True)) / size  # (..., D)
    if saved.kind == "layernorm":
        dx = dx - dx.mean(axis=-1, keepdims=True)  # (..., D)
    return dx, gradients
