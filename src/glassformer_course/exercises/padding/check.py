"""Reference functions and test cases for `attention` and `mean`, which remove the padding of each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from glassformer.numpy_reference.arrays import Array, Bools
from glassformer.numpy_reference.attention import attend
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture


def attention(q: Array, k: Array, v: Array, real: Bools) -> Array:
    """Return the attention of each row over its keys and values without padding: (B, T, d)."""
    result = np.zeros_like(v)
    for row, row_real in enumerate(real):
        if row_real.any():
            everything = np.ones((1, 1, 1, 1), dtype=np.bool_)
            mixed, _ = attend(
                q[row][None, None], k[row][row_real][None, None], v[row][row_real][None, None], everything
            )
            result[row] = mixed[0, 0]
    return result


def mean(x: Array, real: Bools) -> Array:
    """Return the mean of each row without padding: (B, d)."""
    result = np.zeros((len(x), x.shape[2]))
    for row, row_real in enumerate(real):
        if row_real.any():
            result[row] = x[row][row_real].mean(axis=0)
    return result


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases with padding at the end and between tokens, large numbers in padding, low scores and empty rows."""
    v = np.array([[[2.0, 0.0], [4.0, 6.0], [90.0, 90.0]]])
    real = np.array([[True, True, False]])
    nothing = np.zeros((1, 3, 2))
    yield call("attention", nothing, nothing, v, real, note="where scores are 0: the mean of (2, 0) and (4, 6)")
    yield call("mean", v, real, note="where (2, 0) and (4, 6) are real and (90, 90) is padding")
    for lengths, T, d in [((5, 5), 5, 3), ((3, 5), 5, 2), ((2, 7, 4), 7, 3), ((1, 3), 3, 5), ((6,), 11, 2)]:
        q, k, v = (rng.normal(size=(len(lengths), T, d)) for _ in range(3))
        real = np.arange(T) < np.array(lengths)[:, None]
        note = f"where the text lengths are {list(lengths)} and T is {T}"
        yield call("attention", q, k, v, real, note=note)
        yield call("mean", v, real, note=note)
    q, k, v = (rng.normal(size=(3, 5, 2)) for _ in range(3))
    scattered = rng.random((3, 5)) < 0.6
    scattered[:, 1] = True
    scattered[:, 3] = False
    yield call("attention", q, k, v, scattered, note="where padding is between real tokens")
    yield call("mean", v, scattered, note="where padding is between real tokens")
    yield Case(
        _padded_further(q, k, v, scattered),
        "where three padding positions are added to the same rows",
        "both functions",
    )
    high = np.where(scattered[:, :, None], v, 1e6)
    yield call("attention", q, k, high, scattered, note="where padding contains 1,000,000")
    yield call("mean", high, scattered, note="where padding contains 1,000,000")
    low = np.where(scattered[:, :, None], -400.0, 1.0) * np.ones(2)
    note = "where scores of real tokens are 0 for the first query and about -57,000 for the others"
    yield call("attention", 100.0 * (np.arange(5) > 0)[:, None] * np.ones((3, 5, 2)), low, v, scattered, note=note)
    empty = np.array([[True, False, True], [False, False, False]])
    q, k, v = (rng.normal(size=(2, 3, 2)) for _ in range(3))
    yield call("attention", q, k, v, empty, note="where one row has no real token")
    yield call("mean", v, empty, note="where one row has no real token")


def _padded_further(q: Array, k: Array, v: Array, real: Bools) -> Callable[[Functions], Any]:
    def ask(functions: Functions) -> tuple[Array, Array]:
        further = [np.concatenate([each, np.full((3, 3, 2), 7.0)], axis=1) for each in (q, k, v)]
        further_real = np.concatenate([real, np.zeros((3, 3), dtype=np.bool_)], axis=1)
        return functions.attention(*further, further_real)[:, :5], functions.mean(further[2], further_real)

    return ask


def picture() -> Picture:
    """Draw the attention weights of a padded text, without and with a padding mask."""
    rng = np.random.default_rng(3)
    words = ["a", "dog", "barks", "pad", "pad"]
    scores = rng.normal(size=(5, 5))
    real = np.arange(5) < 3
    identity = np.eye(5)[None]  # with these values, the output is the weights
    scale = np.sqrt(5.0)
    masked = attention(scores[None] * scale, identity, identity, real[None])[0]
    unmasked = attention(scores[None] * scale, identity, identity, np.ones((1, 5), dtype=np.bool_))[0]
    return Picture(
        [Panel("without a mask", unmasked, words, words), Panel("with a mask", masked, words, words)],
        caption="Masked keys are columns of zeros, and each row sums to 1 over the real tokens. The rows of the "
        "padding are computed too, but not used.",
    )
