"""Reference function and test cases for `softmax`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from glassformer_course.cases import Case, call
from glassformer_course.drawing import Panel, Picture


def softmax(x: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the softmax of each row, computed in float64 after subtracting the maximum: (..., n) -> (..., n)."""
    result = np.empty_like(x)
    for position in np.ndindex(x.shape[:-1]):
        row = x[position].astype(np.float64)
        exponentials = np.exp(row - row.max())
        result[position] = exponentials / exponentials.sum()
    return result


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases with one to three axes, float32 and float64, large numbers, equal numbers and entries of -inf."""
    yield call("softmax", np.array([1.0, 2.0, 3.0]), note="where x is the single row 1, 2, 3")
    for shape in [(5,), (2, 3), (3, 2), (4, 4), (2, 3, 5), (1, 7)]:
        yield call("softmax", rng.normal(size=shape) * 3, note="where the numbers are random")
        yield call("softmax", rng.normal(size=shape).astype(np.float32), note="where x is float32")
    yield call("softmax", rng.normal(size=(3, 5)) + 10_000, note="where the numbers are about 10,000")
    yield call("softmax", rng.normal(size=(3, 5)) - 10_000, note="where the numbers are about -10,000")
    yield call("softmax", rng.normal(size=(2, 4)) + np.array([[900.0], [-900.0]]), note="where rows differ by 1,800")
    yield call("softmax", np.full((2, 4), 7.0), note="where all numbers are equal")
    yield call("softmax", rng.normal(size=(3, 1)), note="where a row has a single number")
    allowed = np.tril(np.ones((4, 4), dtype=bool))
    yield call("softmax", np.where(allowed, rng.normal(size=(4, 4)), -np.inf), note="where some entries are -inf")


def picture() -> Picture:
    """Draw scores next to their probabilities."""
    scores = np.array([[1.0, 2.0, 3.0], [3.0, 3.0, 3.0], [9.0, 1.0, 1.0]])
    return Picture(
        [Panel("scores", scores), Panel("softmax of each row", softmax(scores))],
        caption="Each row becomes probabilities that sum to 1. Equal scores get equal probabilities; a score that is "
        "8 higher gets nearly all.",
    )
