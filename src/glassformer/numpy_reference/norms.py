"""Normalisation of each vector on its own: LayerNorm, RMSNorm, or nothing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from glassformer.numpy_reference.arrays import Array, Weights


class NumpyNorm(NamedTuple):
    """Values saved by `norm` for the backward pass."""

    kind: str
    normalised: Array  # (..., D) before the gain
    size: Array  # (..., 1) what it was divided by
    weights: Weights


def norm(x: Array, weights: Weights, kind: str, epsilon: float) -> tuple[Array, NumpyNorm]:
    """The norm of one kind over the last axis, with gain g in `weight` and offset b in `bias`, if there is one.

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
    normalised = x / size  # (..., D)
    y = normalised * weights["weight"]  # (..., D)
    if "bias" in weights:
        y = y + weights["bias"]  # (..., D)
    return y, NumpyNorm(kind, normalised, size, weights)


def norm_backward(dy: Array, kept: NumpyNorm) -> tuple[Array, dict[str, Array]]:
    """dx, (..., D), and the gradients of gain and offset.

    With s the size and dx̂ = g dy: from ds/dx_j = x̂_j / D follows dx_j = (dx̂_j - x̂_j mean(dx̂ x̂)) / s. LayerNorm also
    subtracts the mean from x, which subtracts the mean from dx (the mean of x̂ is 0).
    """
    if kept.kind == "none":
        return dy, {}
    D = dy.shape[-1]
    normalised = kept.normalised  # (..., D)
    size = kept.size  # (..., 1)
    gradients = {"weight": (dy * normalised).reshape(-1, D).sum(axis=0)}  # (D)
    if "bias" in kept.weights:
        gradients["bias"] = dy.reshape(-1, D).sum(axis=0)  # (D)
    dnormalised = dy * kept.weights["weight"]  # (..., D)
    dx = (dnormalised - normalised * (dnormalised * normalised).mean(axis=-1, keepdims=True)) / size  # (..., D)
    if kept.kind == "layernorm":
        dx = dx - dx.mean(axis=-1, keepdims=True)  # (..., D)
    return dx, gradients
