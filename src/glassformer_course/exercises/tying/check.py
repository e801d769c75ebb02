"""Reference functions and test cases for `tied_logits` and `tied_backward`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glassformer.numpy_reference.arrays import Array, Ints
from glassformer.numpy_reference.linear import linear, linear_backward, look_up_backward
from glassformer_course.cases import Case, call
from glassformer_course.drawing import Panel, Picture


def tied_logits(h: Array, table: Array) -> Array:
    """Return the logits of the NumPy reference's linear layer, with the table as its weight: (T, V)."""
    return linear(h, {"weight": table})[0]


def tied_backward(ids: Ints, h: Array, dlogits: Array, dx: Array, table: Array) -> Array:
    """Return the sum of the NumPy reference's gradients of the linear layer and of the lookup: (V, D)."""
    output = linear_backward(dlogits, linear(h, {"weight": table})[1])[1]["weight"]  # (V, D)
    return output + look_up_backward(dx, ids, table)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases for the logits, then for the gradient: several sizes, repeated ids, and dx or dlogits equal to 0."""
    table = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    yield call(
        "tied_logits", np.array([[2.0, 3.0]]), table, note="where h is 2, 3 and the rows are (1, 0), (0, 1), (1, 1)"
    )
    for T, V, D in [(3, 7, 4), (1, 5, 3), (5, 4, 4), (4, 3, 5), (2, 1, 3), (7, 11, 2)]:
        h = rng.normal(size=(T, D))
        table = rng.normal(size=(V, D))
        yield call("tied_logits", h, table, note="where the numbers are random")
    h = rng.normal(size=(3, 4)) * 1e6
    yield call("tied_logits", h, rng.normal(size=(5, 4)), note="where hidden vectors are large")

    yield call(
        "tied_backward",
        np.array([1]),
        np.array([[2.0, 3.0]]),
        np.array([[-1.0, 1.0, 0.0]]),
        np.array([[10.0, 20.0]]),
        np.zeros((3, 2)),
        note="where token 1 is looked up, h is 2, 3 and dlogits is -1, 1, 0",
    )
    for T, V, D in [(3, 7, 4), (1, 5, 3), (4, 4, 4), (6, 3, 5), (7, 2, 3), (5, 11, 2)]:
        yield _gradient(rng, rng.integers(0, V, size=T), V, D, "ids are random")
    yield _gradient(rng, np.array([2, 2, 2, 2]), 5, 3, "all ids are equal")
    yield _gradient(rng, np.array([0, 4, 0]), 5, 3, "the first and the last id of the vocabulary occur")
    yield _gradient(rng, np.array([3, 1]), 5, 3, "no id repeats")
    yield _gradient(rng, np.array([1, 3, 1]), 5, 3, "dx is 0, so only the output contributes", look_up=0.0)
    yield _gradient(rng, np.array([1, 3, 1]), 5, 3, "dlogits is 0, so only the look-up contributes", output=0.0)


def _gradient(
    rng: np.random.Generator, ids: Ints, V: int, D: int, note: str, output: float = 1.0, look_up: float = 1.0
) -> Case:
    h, dx = rng.normal(size=(2, len(ids), D))
    dlogits = rng.normal(size=(len(ids), V))
    return call("tied_backward", ids, h, dlogits * output, dx * look_up, rng.normal(size=(V, D)), note=f"where {note}")


def picture() -> Picture:
    """Draw both parts of the gradient of a table of four tokens, for the text "the cat the" followed by "mat"."""
    rng = np.random.default_rng(2)
    tokens = ["the", "cat", "sat", "mat"]
    ids = np.array([0, 1, 0])
    table = rng.normal(size=(4, 3))
    h = rng.normal(size=(3, 3))
    dx = rng.normal(size=(3, 3)) / 2
    odds = np.exp(tied_logits(h, table))
    dlogits = (odds / odds.sum(axis=1, keepdims=True) - np.eye(4)[[1, 0, 3]]) / 3
    both = [
        tied_backward(ids, h, each, other, table)
        for each, other in ((dlogits * 0, dx), (dlogits, dx * 0), (dlogits, dx))
    ]
    titles = ["from the look-up", "+ from the output", "= gradient of the table"]
    return Picture(
        [Panel(title, gradient, tokens) for title, gradient in zip(titles, both, strict=True)],
        caption='The input is "the cat the". The look-up gives a gradient only to the rows of its tokens; the output '
        "layer gives one to every row, because every token has a logit.",
    )
