"""Reference function and test cases for `rotate`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glassformer.numpy_reference import positions
from glassformer.numpy_reference.arrays import Array
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture

BASE = 10_000.0


def rotate(x: Array, start: int, base: float) -> Array:
    """Rotate with the NumPy reference, with all leading axes as its heads: (..., T, K)."""
    T, K = x.shape[-2:]
    row_positions = start + np.arange(T)[None]  # (1, T)
    return positions.rotate(x.reshape(1, -1, T, K), positions.rotation(row_positions, K, base)).reshape(x.shape)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases with several shapes, first positions and bases, then cases on vector lengths, scores and caches."""
    yield call(
        "rotate", np.array([[1.0, 0.0], [1.0, 0.0]]), 0, BASE, note="where the pair (1, 0) is at positions 0 and 1"
    )
    for shape in [(3, 4), (5, 6), (1, 8), (7, 2), (4, 10)]:
        yield call("rotate", rng.normal(size=shape), 0, BASE, note="where the numbers are random")
        yield call("rotate", rng.normal(size=shape), 11, BASE, note="where 11 tokens came before")
    yield call("rotate", rng.normal(size=(3, 5, 4)), 2, BASE, note="where there are 3 heads")
    yield call("rotate", rng.normal(size=(2, 3, 5, 6)), 0, BASE, note="where there are 2 rows of 3 heads")
    yield call("rotate", rng.normal(size=(4, 6)), 3, 100.0, note="where the base is 100")
    yield call("rotate", rng.normal(size=(3, 6)), 50_000, BASE, note="where the positions are 50,000 and more")
    yield call("rotate", np.zeros((3, 4)), 5, BASE, note="where all numbers are 0")
    x = rng.normal(size=(5, 8))
    yield Case(
        lambda f: np.linalg.norm(f.rotate(x, 4, BASE), axis=-1),
        note="where a rotation must not change the lengths",
        description="the length of each row of rotate(x, 4, 10000)",
    )
    yield _distances(rng)
    yield Case(
        lambda f: [f.rotate(x, 0, BASE)[3:], f.rotate(x[3:], 3, BASE)],
        note="where the first 3 tokens are in a cache: both results must be equal",
        description="[rotate(x, 0, 10000)[3:], rotate(x[3:], 3, 10000)]",
    )


def _distances(rng: np.random.Generator) -> Case:
    """Return a case on the score of a query and a key 4 positions apart, at three positions in the text."""
    q, k = rng.normal(size=(2, 1, 6))

    def scores(f: Functions) -> list[float]:
        return [
            float((f.rotate(q, position + 4, BASE) * f.rotate(k, position, BASE)).sum()) for position in (0, 9, 200)
        ]

    return Case(
        scores,
        note="where query and key are 4 tokens apart, at three positions in the text: the scores must be equal",
        description="the dot product of rotate(q, p + 4, 10000) and rotate(k, p, 10000) for p = 0, 9, 200",
    )


def picture() -> Picture:
    """Draw one vector rotated to five positions, and the dot products of all pairs."""
    names = [f"position {position}" for position in range(5)]
    rotated = rotate(np.tile([1.0, 1.0, 0.0, 0.0], (5, 1)), 0, 16.0)
    return Picture(
        [
            Panel("the vector 1, 1, 0, 0, rotated", rotated, names, ["a0", "a1", "b0", "b1"]),
            Panel("dot products", rotated @ rotated.T, names, [str(position) for position in range(5)]),
        ],
        caption="The pair (a0, b0) rotates by 1 radian per position, the pair (a1, b1) by 1/4. The dot products on a "
        "diagonal are equal: they depend only on the distance.",
    )
