"""Reference functions and test cases for the bigram model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from math import fsum, log

import numpy as np

from glassformer.numpy_reference.arrays import Array, Ints
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture

FREQUENT = 300  # most frequent characters that become tokens: Chinese has thousands, and the table is V x V


def count(ids: Ints, size: int) -> Ints:
    """Return the number of times each token follows each token: (N,) -> int64 (V, V)."""
    pairs = Counter(pairwise(ids.tolist()))
    return np.array([[pairs[a, b] for b in range(size)] for a in range(size)], dtype=np.int64)


def probabilities(counts: Ints, k: float) -> Array:
    """Return (c + k) / (row sum + V k) for every count c: (V, V) -> (V, V)."""
    V = len(counts)
    return np.array([[(c + k) / (int(row.sum()) + V * k) for c in row] for row in counts], dtype=np.float64)


def nats_per_token(ids: Ints, p: Array) -> float:
    """Return the mean of -ln p over all adjacent pairs: (N,), (V, V) -> float."""
    losses = [-log(p[a, b]) for a, b in pairwise(ids)]
    return fsum(losses) / len(losses)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases for each function, then for a model of one text measured on another text."""
    yield call("count", np.array([0, 1, 0, 1, 2]), 3, note="where 0 1 occurs twice, 1 0 and 1 2 once")
    for size, length in ((3, 19), (5, 41), (7, 13)):
        yield call("count", rng.integers(size, size=length), size, note="where the tokens are random")
    yield call("count", np.array([2, 2, 2, 2]), 3, note="where one token follows itself")
    yield call("count", np.array([1]), 2, note="where there is one token, so no pair")
    yield call("count", np.array([4, 0]), 5, note="where there is one pair")
    yield call(
        "probabilities", np.array([[1, 0], [2, 5]]), 1.0, note="where the counts are [[1, 0], [2, 5]] and k is 1"
    )
    for size, k in ((3, 1.0), (5, 0.5), (7, 0.01), (4, 3.0)):
        yield call("probabilities", rng.integers(20, size=(size, size)), k, note=f"where k is {k:g}")
    yield call("probabilities", np.array([[0, 0, 0], [0, 4, 0], [1, 0, 2]]), 0.1, note="where one row has no counts")
    uniform = np.full((5, 5), 0.2)
    yield call("nats_per_token", rng.integers(5, size=11), uniform, note="where all tokens are equally likely: ln 5")
    table = np.array([[0.5, 0.5], [0.25, 0.75]])
    yield call("nats_per_token", np.array([0, 1, 1]), table, note="where the pairs have probability 1/2 and 3/4")
    yield call("nats_per_token", np.array([1, 0]), table, note="where there is one pair, of probability 1/4")
    for size, length in ((3, 7), (7, 29)):
        random_table = rng.dirichlet(np.ones(size), size=size) * 0.9 + 0.1 / size
        yield call("nats_per_token", rng.integers(size, size=length), random_table, note="where the table is random")
    for size, k in ((5, 1.0), (11, 0.1)):
        yield _held_out(rng.integers(size, size=53), rng.integers(size, size=23), size, k)


def cases_on(text: str) -> Iterator[Case]:
    """Yield cases on the first 10,000 characters of a class's own text, with the last tenth held out.

    Each of the `FREQUENT` most frequent characters is a token; all other characters share one token.
    """
    characters = sorted(character for character, _ in Counter(text[:10_000]).most_common(FREQUENT))
    tokens = {character: token for token, character in enumerate(characters)}
    size = len(characters) + 1
    ids = np.array([tokens.get(character, size - 1) for character in text[:10_000]], dtype=np.int64)
    train_size = len(ids) * 9 // 10
    if len(ids) - train_size > 1:
        yield call("count", ids, size, note="where the tokens are the characters of your class's text")
        yield _held_out(ids[:train_size], ids[train_size:], size, 0.1)


def _held_out(ids: Ints, other: Ints, size: int, k: float) -> Case:
    def ask(functions: Functions) -> float:
        p = functions.probabilities(functions.count(ids, size), k)
        nats: float = functions.nats_per_token(other, p)
        return nats

    return Case(
        ask,
        note=f"where the counts are from a text of {len(ids)} tokens and the loss is on another text, with k = {k:g}",
        description="nats_per_token(other, probabilities(count(ids, size), k))",
        relative=0.0,
        absolute=1e-9,
    )


def picture() -> Picture:
    """Draw the counts and probabilities of the letters of one word."""
    word = "abracadabra"
    letters = sorted(set(word))
    ids = np.array([letters.index(letter) for letter in word])
    counts = count(ids, len(letters))
    p = probabilities(counts, 0.5)
    return Picture(
        [Panel("counts", counts, letters, letters), Panel("p with k = 0.5", p, letters, letters)],
        caption=f"{word}: the row is a letter, the column the next letter. After a, b is most frequent; after r, "
        f"there is always a, but k leaves the other letters some probability. {nats_per_token(ids, p):.3f} nats per "
        f"letter; a uniform guess has {log(len(letters)):.3f}.",
    )
