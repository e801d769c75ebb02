"""Reference functions and test cases for the backward passes of the norms."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glassformer.numpy_reference.arrays import Array
from glassformer.numpy_reference.norms import norm, norm_backward
from glassformer_course.cases import Case, call
from glassformer_course.drawing import Panel, Picture

SMALL = 1e-5


def layer_norm_backward(dy: Array, x: Array, gain: Array, epsilon: float) -> tuple[Array, Array, Array]:
    """Return the gradients of `x`, gain and bias, computed by the NumPy reference."""
    dx, gradients = norm_backward(dy, norm(x, {"weight": gain, "bias": np.zeros_like(gain)}, "layernorm", epsilon)[1])
    return dx, gradients["weight"], gradients["bias"]


def rms_norm_backward(dy: Array, x: Array, gain: Array, epsilon: float) -> tuple[Array, Array]:
    """Return the gradients of `x` and `gain`, computed by the NumPy reference."""
    dx, gradients = norm_backward(dy, norm(x, {"weight": gain}, "rmsnorm", epsilon)[1])
    return dx, gradients["weight"]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases for LayerNorm, then RMSNorm: several shapes, a large ε, constant vectors, gradients of 0."""
    yield from _of_one(
        "layer_norm_backward", np.array([1.0, 1.0, 3.0, 3.0]), "x is 1, 1, 3, 3 and x̂ is -1, -1, 1, 1", rng
    )
    yield from _of_one("rms_norm_backward", np.array([1.0, 1.0, 7.0, 7.0]), "x is 1, 1, 7, 7 with mean square 25", rng)


def _of_one(name: str, first: Array, note: str, rng: np.random.Generator) -> Iterator[Case]:
    dy = np.array([4.0, 0.0, 0.0, 0.0])
    ones = np.ones(4)
    yield call(name, dy, first, ones, 0.0, note=f"where {note}, and only the first number of dy is not 0")
    for shape in [(5,), (3, 4), (4, 3), (2, 3, 7), (2, 1, 5), (1, 11)]:
        dy, x = rng.normal(size=(2, *shape)) * 2 + 1
        gain = rng.normal(size=shape[-1])
        yield call(name, dy, x, gain, SMALL, note="where the numbers are random")
    dy, x = rng.normal(size=(2, 3, 4))
    yield call(name, dy, x, ones, 2.0, note="where ε is 2")
    yield call(name, dy, np.full((3, 4), 0.5), ones, SMALL, note="where all numbers of x are equal")
    yield call(name, np.zeros((3, 4)), x, ones, SMALL, note="where dy is 0")
    yield call(name, np.full((3, 4), 2.0), x, ones, SMALL, note="where all numbers of dy are equal")
    yield call(name, dy[:, :1], x[:, :1], np.ones(1), SMALL, note="where D is 1")


def picture() -> Picture:
    """Draw a gradient before and after the backward pass of both norms."""
    x = np.array([1.0, 1.0, 3.0, 3.0])
    dy = np.array([4.0, 0.0, 0.0, 0.0])
    backward = [layer_norm_backward(dy, x, np.ones(4), 0.0)[0], rms_norm_backward(dy, x, np.ones(4), 0.0)[0]]
    return Picture(
        [
            Panel("vector", x, ["x"]),
            Panel("gradient of y", dy, ["dy"]),
            Panel("gradient of x", backward, ["LayerNorm", "RMSNorm"]),
        ],
        caption="Only the first number of y affects the loss, but other numbers of x get a gradient too, through the "
        "mean and the size; for the numbers 3 under LayerNorm, these two paths cancel. The gradient of LayerNorm sums "
        "to 0, because adding a constant to x does not change y.",
    )
