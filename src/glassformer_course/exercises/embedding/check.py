"""Reference functions and test cases for the embedding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glassformer.numpy_reference.arrays import Array, Bools, Ints
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture

SHAPES: tuple[tuple[int, ...], ...] = ((5,), (7,), (2, 5), (2, 2, 3))  # of ids


def one_hot(ids: Ints, size: int) -> Array:
    """Return one-hot vectors, filled position by position: (...) -> (..., V)."""
    result = np.zeros((*ids.shape, size))
    for position in np.ndindex(ids.shape):
        result[(*position, ids[position])] = 1.0
    return result


def look_up(ids: Ints, table: Array) -> Array:
    """Return each id's row, filled position by position: (...), (V, D) -> (..., D)."""
    result = np.zeros((*ids.shape, table.shape[1]))
    for position in np.ndindex(ids.shape):
        result[position] = table[ids[position]]
    return result


def table_gradient(ids: Ints, dX: Array, size: int) -> Array:
    """Return the gradient of the table, summed position by position: (...), (..., D) -> (V, D)."""
    gradient = np.zeros((size, dX.shape[-1]))
    for position in np.ndindex(ids.shape):
        gradient[ids[position]] += dX[position]
    return gradient


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases with rows and batches of ids, with and without repeated ids."""
    yield call("one_hot", np.array([2, 0]), 3, note="where the tokens are 2 and 0")
    for shape in SHAPES:
        yield call("one_hot", rng.integers(5, size=shape), 5, note="where the ids are random")
    table = np.arange(12.0).reshape(4, 3)
    yield call("look_up", np.array([1, 3, 1]), table, note="where token 1 occurs twice")
    for shape, width in zip(SHAPES, (3, 7, 5, 2), strict=True):
        yield call("look_up", rng.integers(7, size=shape), rng.normal(size=(7, width)), note="where the ids are random")
    yield call("look_up", np.array([6]), rng.normal(size=(7, 5)), note="where the one token is the table's last")
    yield _both_ways(rng.integers(7, size=(2, 5)), rng.normal(size=(7, 3)))
    dX = np.array([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]])
    yield call("table_gradient", np.array([1, 0, 1]), dX, 3, note="where token 1 occurs twice and token 2 never")
    yield call("table_gradient", np.array([2, 0, 1]), dX, 3, note="where every token occurs once")
    for shape, width in zip(SHAPES, (5, 3, 1, 2), strict=True):
        dX = rng.normal(size=(*shape, width))
        yield call("table_gradient", rng.integers(3, size=shape), dX, 4, note="where ids repeat")
    ids = np.array([3, 3, 3, 3])
    yield call("table_gradient", ids, rng.normal(size=(4, 3)), 5, note="where all ids are equal")
    ids = rng.permutation(11)[:4]
    yield call("table_gradient", ids, rng.normal(size=(4, 2)), 11, note="where most tokens do not occur: rows of 0")
    yield call("table_gradient", np.array([0]), rng.normal(size=(1, 3)), 1, note="where the table has one row")
    yield _unused(rng.integers(3, size=(2, 4)), rng.normal(size=(2, 4, 3)), 7)


def _both_ways(ids: Ints, table: Array) -> Case:
    def ask(functions: Functions) -> tuple[Array, Array]:
        return functions.one_hot(ids, len(table)) @ table, functions.look_up(ids, table)

    return Case(
        ask,
        note="where one_hot times the table must equal look_up",
        description="(one_hot(ids, 7) @ table, look_up(ids, table))",
    )


def _unused(ids: Ints, dX: Array, size: int) -> Case:
    def ask(functions: Functions) -> tuple[Bools, Array]:
        gradient = functions.table_gradient(ids, dX, size)
        return (gradient == 0).all(axis=1), gradient.sum(axis=0)

    return Case(
        ask,
        note="where the gradient rows of tokens 3 to 6 must be 0, and all rows must sum to the sum of the rows of dX",
        description="rows of table_gradient(ids, dX, 7) that are 0, and the sum of its rows",
    )


def picture() -> Picture:
    """Draw the embedding of four words, one of which occurs twice, and the gradient of the table."""
    vocabulary = ["cat", "dog", "saw", "the"]
    text = ["the", "cat", "saw", "the"]
    features = ["0", "1"]
    ids = np.array([vocabulary.index(word) for word in text])
    table = np.array([[0.9, 0.1], [0.8, -0.3], [-0.5, 0.7], [0.2, 0.4]])
    dX = np.array([[1.0, 0.0], [0.5, 0.5], [-1.0, 0.0], [2.0, 1.0]])
    return Picture(
        [
            Panel("one-hot", one_hot(ids, len(vocabulary)), text, vocabulary),
            Panel("table E", table, vocabulary, features),
            Panel("X", look_up(ids, table), text, features),
            Panel("dX", dX, text, features),
            Panel("gradient of E", table_gradient(ids, dX, len(vocabulary)), vocabulary, features),
        ],
        caption='"the" occurs twice: its row is looked up both times and gets the sum of both gradients. "dog" does '
        "not occur: its row of the gradient is 0.",
    )
