"""Reference functions and test cases for the backward passes of softmax and attention."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glassformer.numpy_reference.arrays import Array
from glassformer.numpy_reference.attention import attend
from glassformer.numpy_reference.attention import attend_backward as reference_backward
from glassformer_course.cases import Case, call
from glassformer_course.drawing import Panel, Picture


def softmax_backward(dweights: Array, weights: Array) -> Array:
    """Return the gradient of the scores, with the full Jacobian diag(a) - a aᵀ of each row: (T, T) -> (T, T)."""
    rows = [(np.diag(a) - np.outer(a, a)) @ da for da, a in zip(dweights, weights, strict=True)]
    return np.array(rows)


def attention_backward(dy: Array, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    """Return (dq, dk, dv), computed by the NumPy reference with one row and one head."""
    saved = attend(q[None, None], k[None, None], v[None, None], _allowed(len(q)))[1]
    dq, dk, dv, _ = reference_backward(dy[None, None], saved)
    return dq[0, 0], dk[0, 0], dv[0, 0]


def _allowed(T: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.tri(T, dtype=bool)


def _weights(q: Array, k: Array) -> Array:
    return attend(q[None, None], k[None, None], k[None, None], _allowed(len(q)))[1].weights[0, 0]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases for softmax, then attention: several sizes, large scores, a gradient at only one position."""
    weights = np.array([[1.0, 0.0], [0.5, 0.5]])
    yield call(
        "softmax_backward",
        np.array([[4.0, 9.0], [4.0, 0.0]]),
        weights,
        note="where the rows of weights are 1, 0 and ½, ½",
    )
    for T in (1, 2, 3, 5, 7, 4):
        weights = _weights(*rng.normal(size=(2, T, 3)))
        yield call("softmax_backward", rng.normal(size=(T, T)) * 2, weights, note="where the numbers are random")
    weights = _weights(*rng.normal(size=(2, 3, 3)))
    yield call("softmax_backward", np.full((3, 3), 5.0), weights, note="where all numbers of dweights are equal")
    yield call("softmax_backward", rng.normal(size=(3, 3)), np.eye(3), note="where every token attends only to itself")

    dy = np.array([[0.0], [2.0]])
    zeros = np.zeros((2, 1))
    yield call(
        "attention_backward",
        dy,
        zeros,
        np.array([[1.0], [3.0]]),
        np.array([[0.0], [1.0]]),
        note="where q is 0 and T is 2",
    )
    for T, d, e in [(1, 3, 3), (3, 4, 4), (5, 2, 2), (4, 7, 3), (7, 3, 5), (2, 1, 1)]:
        q, k, v, dy = _random_inputs(rng, T, d, e)
        yield call("attention_backward", dy, q, k, v, note="where the numbers are random")
    q, k, v, dy = _random_inputs(rng, 4, 3, 2)
    last = np.where(np.arange(4)[:, None] == 3, dy, 0.0)
    yield call("attention_backward", last, q, k, v, note="where only the gradient of the last output is not 0")
    first = np.where(np.arange(4)[:, None] == 0, dy, 0.0)
    yield call("attention_backward", first, q, k, v, note="where only the gradient of the first output is not 0")
    yield call("attention_backward", dy, q, k, np.ones_like(v), note="where all values are equal")
    yield call("attention_backward", dy, q * 1_000, k, v, note="where queries are so large that weights are 0 or 1")


def _random_inputs(rng: np.random.Generator, T: int, d: int, e: int) -> list[Array]:
    return [rng.normal(size=(T, width)) for width in (d, d, e, e)]


def picture() -> Picture:
    """Draw the attention weights of four tokens, and the gradients of the weights and of the scores."""
    rng = np.random.default_rng(5)
    tokens = ["the", "cat", "sat", "down"]
    q, k, v, dy = _random_inputs(rng, 4, 4, 4)
    weights = _weights(q, k)
    dweights = dy @ v.T
    return Picture(
        [
            Panel("weights A", weights, tokens, tokens),
            Panel("gradient of A", dweights, tokens, tokens),
            Panel("gradient of the scores", softmax_backward(dweights, weights), tokens, tokens),
        ],
        caption="The softmax of each row sums to 1, so each row of the scores' gradient sums to 0. Where A is 0, the "
        "gradient is 0.",
    )
