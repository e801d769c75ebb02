"""Reference function and test cases for `step`, from functions of the NumPy reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from glassformer.base.wording import counted
from glassformer.numpy_reference import attention, positions
from glassformer.numpy_reference.arrays import Array
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture

Cache = tuple[Array, Array]


def step(x: Array, cache: Cache, w_query: Array, w_key: Array, w_value: Array) -> tuple[Array, Cache]:
    """Return the attention output of the next tokens and the updated cache; loop over tokens, without a mask."""
    keys, values = cache
    mixed = np.empty((len(x), w_value.shape[1]))
    for row, vector in enumerate(x):
        rotation = positions.rotation(np.array([[len(keys)]]), w_key.shape[1], 10_000.0)
        query = positions.rotate((vector @ w_query)[None, None, None], rotation)  # (1, 1, 1, d)
        keys = np.concatenate([keys, positions.rotate((vector @ w_key)[None, None, None], rotation)[0, 0]])
        values = np.concatenate([values, (vector @ w_value)[None]])
        output, _ = attention.attend(query, keys[None, None], values[None, None], np.ones((1, 1, 1, 1), dtype=np.bool_))
        mixed[row] = output[0, 0, 0]
    return mixed, (keys, values)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases with an empty cache, one or several new tokens, a whole text in pieces, and large scores."""
    one = np.eye(2)
    none = np.zeros((2, 2))
    start = (np.zeros((0, 2)), np.zeros((0, 2)))
    first = np.array([[1.0, 2.0]])
    yield call("step", first, start, one, one, one, note="where the cache is empty: the only token attends to itself")
    yield call(
        "step",
        first,
        (np.zeros((1, 2)), np.array([[3.0, 6.0]])),
        none,
        one,
        one,
        note="where the queries are 0: the mean of the cached value (3, 6) and the new one (1, 2)",
    )
    for t, n in [(1, 1), (5, 1), (0, 3), (2, 3), (7, 2), (11, 5)]:
        for D, d in [(3, 4), (5, 2)]:
            cache = (rng.normal(size=(t, d)) * 2, rng.normal(size=(t, d)))
            note = f"where {counted(t, 'tokens are', 'token is')} in the cache and {counted(n, 'are new', 'is new')}"
            yield call("step", rng.normal(size=(n, D)), cache, *_weights(rng, D, d), note=note)
    text = rng.normal(size=(7, 3))
    weights = _weights(rng, 3, 4)
    for sizes in [(7,), (1,) * 7, (3, 1, 1, 2), (2, 5)]:
        note = f"where a text of 7 tokens is processed in pieces of {', '.join(map(str, sizes))}"
        yield Case(_in_pieces(text, sizes, weights), note, "step, piece by piece")
    large = tuple(30 * weight for weight in weights)
    yield Case(_in_pieces(text, (4, 1, 2), large), "where the scores are very large", "step, piece by piece")


def _weights(rng: np.random.Generator, D: int, d: int) -> tuple[Array, Array, Array]:
    return rng.normal(size=(D, d)), rng.normal(size=(D, d)), rng.normal(size=(D, d))


def _in_pieces(text: Array, sizes: Sequence[int], weights: Sequence[Array]) -> Callable[[Functions], Any]:
    """Return a function that processes the text in pieces of these sizes, each with the cache of the previous piece."""

    def ask(functions: Functions) -> list[Array]:
        cache = (np.zeros((0, weights[1].shape[1])), np.zeros((0, weights[2].shape[1])))
        outputs = []
        begin = 0
        for size in sizes:
            mixed, cache = functions.step(text[begin : begin + size], cache, *weights)
            outputs.append(mixed)
            begin += size
        return outputs

    return ask


def picture() -> Picture:
    """Draw the keys visible to each step of a generation, and the work per call with and without a cache."""
    indices = np.arange(6)
    sees = np.where(indices[None, :] <= indices[:, None], 1.0, np.nan)
    words = ["the", "cat", "sat", "on", "the", "mat"]
    computed = np.array([[3, 1, 1, 1], [3, 4, 5, 6]], dtype=np.float64)
    return Picture(
        [
            Panel("attends to", sees, words, words),
            Panel("keys and values computed per call", computed, ["cache", "no cache"], ["prompt", "on", "the", "mat"]),
        ],
        caption="A new token attends to all earlier keys, but only its own key and value are new. With a cache, each "
        "further call computes one of each; without a cache, it computes all of them again.",
    )
