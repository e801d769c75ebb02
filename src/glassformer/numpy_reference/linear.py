"""The two layers that are nothing but a matrix: the linear map, and the look-up of rows."""

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
    """y = x Wᵀ + b, with W (outputs, inputs) in `weight` and b (outputs) in `bias`, if there is one.

    x: (..., inputs) -> y: (..., outputs).
    """
    y = x @ weights["weight"].T  # (..., outputs)
    if "bias" in weights:
        y = y + weights["bias"]  # (..., outputs)
    return y, Linear(x, weights)


def linear_backward(dy: Array, kept: Linear) -> tuple[Array, dict[str, Array]]:
    """dx = dy W, dW = Σ dyᵀ x, db = Σ dy, the sums over all places: y_o = Σ_i W_oi x_i + b_o.

    Returns:
        dx (..., inputs), and the gradients of the weights.
    """
    weight = kept.weights["weight"]  # (outputs, inputs)
    dx = dy @ weight  # (..., inputs)
    places = math.prod(dy.shape[:-1])
    flat_dy = dy.reshape(places, weight.shape[0])  # (places, out)
    flat_x = kept.x.reshape(places, weight.shape[1])  # (places, in)
    gradients = {"weight": flat_dy.T @ flat_x}  # (outputs, inputs)
    if "bias" in kept.weights:
        gradients["bias"] = flat_dy.sum(axis=0)  # (outputs)
    return dx, gradients


def look_up_backward(drows: Array, indices: Ints, table: Array) -> Array:
    """The gradient of a table whose rows `table[indices]` were used: each row gets the sum over its uses, others 0.

    drows: (..., width), indices: (...), table: (rows, width) -> (rows, width).
    """
    gradient = np.zeros_like(table)  # (rows, width)
    np.add.at(gradient, indices.reshape(-1), drows.reshape(-1, table.shape[1]))
    return gradient
