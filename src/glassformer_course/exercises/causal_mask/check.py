"""Reference functions and test cases for `causal` and `masked_softmax`."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, fsum

import numpy as np

from glassformer.numpy_reference.arrays import Array, Bools
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture


def causal(queries: int, keys: int) -> Bools:
    """Return the causal mask, where query i is at position keys - queries + i: bool (T, S)."""
    return np.array([[key <= keys - queries + query for key in range(keys)] for query in range(queries)])


def masked_softmax(scores: Array, allowed: Bools) -> Array:
    """Return the softmax of each row over its allowed keys; all other weights are 0: (..., T, S)."""
    weights = np.zeros_like(scores)
    for position in np.ndindex(scores.shape[:-1]):
        free = np.flatnonzero(allowed[position[-1]])
        if len(free):
            highest = max(scores[position][free])
            powers = [exp(score - highest) for score in scores[position][free]]
            weights[position][free] = [power / fsum(powers) for power in powers]
    return weights


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases for masks with and without a cache, then for rows with different masks and scores."""
    yield call("causal", 3, 3, note="where there are 3 queries and 3 keys")
    yield call("causal", 2, 5, note="where 3 keys are in the cache and 2 are new")
    yield call("causal", 1, 7, note="where one new token sees everything")
    yield call("causal", 1, 1, note="where there is one token: it sees itself")
    for size in (2, 5):
        yield call("causal", size, size, note="where there are as many queries as keys")
    yield call("causal", 3, 11, note="where 8 keys are in the cache")
    yield call("causal", 4, 5, note="where one key is in the cache")
    for size in (2, 3, 4):
        scores = rng.normal(size=(size, size)) * 2
        yield call("masked_softmax", scores, np.tri(size, dtype=bool), note="where the mask is causal")
    yield call(
        "masked_softmax", np.zeros((4, 4)), np.tri(4, dtype=bool), note="where all scores are 0: 1, 1/2, 1/3, 1/4"
    )
    yield call(
        "masked_softmax", rng.normal(size=(2, 5)), np.tri(2, 5, 3, dtype=bool), note="where keys are in the cache"
    )
    heads = rng.normal(size=(2, 3, 4, 4))
    yield call("masked_softmax", heads, np.tri(4, dtype=bool), note="where there are 2 texts and 3 heads")
    scores = rng.normal(size=(5, 5))
    yield call("masked_softmax", scores, np.ones((5, 5), dtype=bool), note="where everything is allowed")
    yield _zeros(scores - 100_000, np.tri(5, dtype=bool), "where scores are about -100,000")
    loud = np.where(np.tri(5, dtype=bool), scores, 5000.0)
    yield call(
        "masked_softmax", loud, np.tri(5, dtype=bool), note="where keys that are not allowed have the score 5,000"
    )
    random_mask = rng.random((5, 7)) < 0.5
    random_mask[:, 0] = True
    random_mask[3] = False
    yield call("masked_softmax", rng.normal(size=(5, 7)), random_mask, note="where row 3 may see nothing: zeros")
    yield call("masked_softmax", np.zeros((2, 3)), np.zeros((2, 3), dtype=bool), note="where no row may see anything")
    yield _untouched(rng.normal(size=(6, 6)), rng.normal(size=6) * 50)
    yield _together(rng.normal(size=(2, 3, 7)))


def _zeros(scores: Array, allowed: Bools, note: str) -> Case:
    def ask(functions: Functions) -> tuple[Array, Bools]:
        weights = functions.masked_softmax(scores, allowed)
        return weights, weights == 0

    return Case(ask, note=note, description="masked_softmax(scores, allowed), and where it is exactly 0")


def _untouched(scores: Array, others: Array) -> Case:
    changed = scores.copy()
    changed[:, 4] += others

    def ask(functions: Functions) -> Array:
        allowed = functions.causal(6, 6)
        before = functions.masked_softmax(scores, allowed)
        after = functions.masked_softmax(changed, allowed)
        same: Array = (before == after).all(axis=1)
        return same

    return Case(
        ask,
        note="where key 4 changes: rows 0 to 3 must stay exactly the same",
        description="rows of masked_softmax(scores, causal(6, 6)) that do not change",
    )


def _together(scores: Array) -> Case:
    return Case(
        lambda functions: functions.masked_softmax(scores, functions.causal(*scores.shape[-2:])),
        note="where your mask is used with 4 keys in the cache",
        description="masked_softmax(scores, causal(3, 7)) with scores float64 (2, 3, 7)",
    )


def picture() -> Picture:
    """Draw the scores of four words, the masked scores and the attention weights."""
    words = ["the", "cat", "sat", "down"]
    scores = np.array([[1.0, 2.0, 0.0, 1.0], [2.0, 1.0, 3.0, 0.0], [0.0, 3.0, 1.0, 2.0], [0.0, 2.0, 2.0, 1.0]])
    allowed = causal(4, 4)
    return Picture(
        [
            Panel("scores", scores, words, words),
            Panel("with the mask", np.where(allowed, scores, -np.inf), columns=words),
            Panel("softmax of each row", masked_softmax(scores, allowed), columns=words),
        ],
        caption="A row is a query, a column a key. The first word can attend only to itself. The high score of cat "
        "for sat, a later word, has no effect.",
    )
