"""Reference functions and test cases for `layer_norm` and `rms_norm`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glassformer.numpy_reference.arrays import Array
from glassformer.numpy_reference.norms import norm
from glassformer_course.cases import Case, call
from glassformer_course.drawing import Panel, Picture

SMALL = 1e-5


def layer_norm(x: Array, gain: Array, bias: Array, epsilon: float) -> Array:
    """Compute LayerNorm with the NumPy reference."""
    return norm(x, {"weight": gain, "bias": bias}, "layernorm", epsilon)[0]


def rms_norm(x: Array, gain: Array, epsilon: float) -> Array:
    """Compute RMSNorm with the NumPy reference."""
    return norm(x, {"weight": gain}, "rmsnorm", epsilon)[0]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases for LayerNorm, then RMSNorm: several shapes, a large ε, constant vectors, large numbers."""
    ones = np.ones(4)
    zeros = np.zeros(4)
    yield call(
        "layer_norm", np.array([1.0, 1.0, 3.0, 3.0]), ones, zeros, 0.0, note="where x is 1, 1, 3, 3: mean 2, variance 1"
    )
    for shape in [(5,), (3, 4), (4, 3), (2, 3, 7), (1, 11)]:
        x = rng.normal(size=shape) * 3 + 1
        gain, bias = rng.normal(size=(2, shape[-1]))
        yield call("layer_norm", x, gain, bias, SMALL, note="where the numbers are random")
    x = rng.normal(size=(3, 4))
    yield call("layer_norm", x, ones, zeros, 2.0, note="where ε is 2")
    yield call("layer_norm", np.full((2, 4), 7.0), ones, ones * 3, SMALL, note="where all numbers are equal")
    yield call("layer_norm", rng.normal(size=(3, 1)), np.ones(1), np.zeros(1), SMALL, note="where D is 1")
    x = np.round(rng.normal(size=(5, 7)) * 10) + 1e6
    yield call("layer_norm", x, np.ones(7), np.zeros(7), SMALL, note="where numbers near 1,000,000 differ by about 10")

    yield call("rms_norm", np.array([1.0, 1.0, 7.0, 7.0]), ones, 0.0, note="where x is 1, 1, 7, 7: mean square 25")
    for shape in [(5,), (3, 4), (4, 3), (2, 3, 7), (1, 11)]:
        x = rng.normal(size=shape) * 3 + 1
        gain = rng.normal(size=shape[-1])
        yield call("rms_norm", x, gain, SMALL, note="where the numbers are random")
    yield call("rms_norm", rng.normal(size=(3, 4)), ones, 2.0, note="where ε is 2")
    yield call("rms_norm", np.zeros((2, 4)), ones, SMALL, note="where all numbers are 0")
    yield call("rms_norm", rng.normal(size=(3, 1)), np.ones(1), SMALL, note="where D is 1")
    yield call("rms_norm", rng.normal(size=(2, 5)) * 1e8, np.ones(5), SMALL, note="where numbers are about 100,000,000")


def picture() -> Picture:
    """Draw three vectors and the results of both norms."""
    x = np.array([[1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 30.0, 40.0], [11.0, 12.0, 13.0, 14.0]])
    names = ["x", "10 x", "x + 10"]
    ones = np.ones(4)
    return Picture(
        [
            Panel("vectors", x, names),
            Panel("LayerNorm", layer_norm(x, ones, np.zeros(4), SMALL), names),
            Panel("RMSNorm", rms_norm(x, ones, SMALL), names),
        ],
        caption="Both norms give the same for x and 10 x. LayerNorm, which subtracts the mean, also gives the same for "
        "x + 10; RMSNorm does not.",
    )
