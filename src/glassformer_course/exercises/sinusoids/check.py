"""Reference function and test cases for `sinusoids`."""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, sin

import numpy as np

from glassformer.numpy_reference.arrays import Array, Ints
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture


def sinusoids(positions: Ints, width: int) -> Array:
    """Compute the encodings channel by channel: (T,), D -> (T, D)."""
    result = np.zeros((len(positions), width))
    for row, position in enumerate(positions):
        for channel in range(width):
            angle = float(position) / 10_000 ** (channel // 2 * 2 / width)
            result[row, channel] = cos(angle) if channel % 2 else sin(angle)
    return result


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases with several positions and widths, then cases on lengths and dot products of the vectors."""
    yield call("sinusoids", np.array([0]), 4, note="where the position is 0: 0, 1, 0, 1")
    yield call("sinusoids", np.array([1]), 2, note="where the position is 1 and the width 2: sin 1, cos 1")
    yield call("sinusoids", np.array([0, 1, 2]), 4, note="where the frequencies are 1 and 1/100")
    for length, width in ((3, 6), (5, 8), (7, 2), (2, 14), (11, 32), (4, 64)):
        yield call(
            "sinusoids", np.arange(length), width, note=f"where there are {length} positions and the width is {width}"
        )
    yield call("sinusoids", np.arange(20, 23), 6, note="where the positions start at 20")
    yield call("sinusoids", rng.permutation(30)[:7], 10, note="where the positions are not in order")
    yield call("sinusoids", np.array([3, 3, 0]), 8, note="where a position occurs twice")
    yield call("sinusoids", np.array([1000, 5000, 20_000]), 12, note="where the positions are large")
    yield call("sinusoids", np.zeros(0, dtype=np.int64), 4, note="where there are no positions")
    position = int(rng.integers(40))
    steps = int(rng.integers(1, 40))
    yield _lengths(rng.integers(100, size=5), 16)
    yield _distances(np.array([0, position]), steps, 16)


def _lengths(positions: Ints, width: int) -> Case:
    return Case(
        lambda functions: (functions.sinusoids(positions, width) ** 2).sum(axis=1),
        note="where every vector has the squared length D/2: sin² + cos² = 1 for each pair",
        description=f"squared lengths of sinusoids(positions, {width})",
    )


def _distances(positions: Ints, steps: int, width: int) -> Case:
    def ask(functions: Functions) -> Array:
        vectors = functions.sinusoids(positions, width)
        later_vectors = functions.sinusoids(positions + steps, width)
        products: Array = (vectors * later_vectors).sum(axis=1)
        return products

    return Case(
        ask,
        note=f"where positions {positions[0]} and {positions[1]} are each compared with the position {steps} later: "
        "equal dot products",
        description=f"dot products of sinusoids(positions, {width}) and sinusoids(positions + {steps}, {width})",
    )


def picture() -> Picture:
    """Draw the vectors of eight positions, of width 6, and their dot products."""
    positions = np.arange(8)
    vectors = sinusoids(positions, 6)
    names = [str(position) for position in positions]
    channels = ["sin 0", "cos 0", "sin 1", "cos 1", "sin 2", "cos 2"]
    return Picture(
        [Panel("PE", vectors, names, channels), Panel("PE PEᵀ", vectors @ vectors.T, names, names)],
        caption="A row is a position. Pair 0 rotates by 1 radian per position, the others more slowly. The dot "
        "products on a diagonal are equal: they depend only on the distance.",
    )
