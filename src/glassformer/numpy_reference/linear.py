"""Linear layer, and backward pass of a table lookup."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from glassformer.numpy_reference.arrays import Array, Ints, Weights


class Linear(NamedTuple):
    """Values saved by `linear` for the backward pass."""

    x: Array
    weights: Weights


def linear(x: Array, weights: Weights) -> tuple[Array, Linear]:
    """Return y = x Wᵀ + b, where W (outputs, inputs) is `weight` and b (outputs) is `bias`, if present.

    x: (..., inputs) -> y: (..., outputs).
    """
    y = x @ weights["weight"].T  # (..., outputs)
    if "bias" in weights:
        y = y + weights["bias"]  # (..., outputs)
    return y, Linear(x, weights)


def linear_backward(dy: Array, saved: Linear) -> tuple[Array, dict[str, Array]]:
    """Return dx = dy W, dW = Σ dyᵀ x and db = Σ dy, with sums over all positions, because y_o = Σ_i W_oi x_i + b_o.

    Returns:
        dx (..., inputs), and the gradients of the weights by name.
    """
    weight = saved.weights["weight"]  # (outputs, inputs)
    dx = dy @ weight  # (..., inputs)
    N = math.prod(dy.shape[:-1])
    flat_dy = dy.reshape(N, weight.shape[0])  # (N, outputs)
    flat_x = saved.x.reshape(N, weight.shape[1])  # (N, inputs)
    gradients = {"weight": flat_dy.T @ flat_x}  # (outputs, inputs)
    if "bias" in saved.weights:
        gradients["bias"] = flat_dy.sum(axis=0)  # (outputs)
    return dx, gradients


def look_up_backward(drows: Array, indices: Ints, table: Array) -> Array:
    """Return the gradient of a table after the lookup `table[indices]`: for each row, the sum over its lookups.

    drows: (..., width), indices: (...), table: (rows, width) -> (rows, width).
    """
    gradient = np.zeros_like(table)  # (rows, width)
    np.add.at(gradient, indices.reshape(-1), drows.reshape(-1, table.shape[1]))
    return gradient
