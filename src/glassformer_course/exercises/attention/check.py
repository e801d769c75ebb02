"""Reference function and test cases for `attention`."""

from __future__ import annotations

from collections.abc import Iterator
from math import log

import numpy as np

from glassformer.numpy_reference.arrays import Array, Ints
from glassformer.numpy_reference.attention import attend
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture


def attention(Q: Array, K: Array, V: Array) -> tuple[Array, Array]:
    """Return output and weights of the NumPy reference, without a mask: (T, d_v), (T, S)."""
    everything = np.ones((len(Q), len(K)), dtype=np.bool_)
    mixed, saved = attend(Q[None, None], K[None, None], V[None, None], everything)
    return mixed[0, 0], saved.weights[0, 0]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield a simple case, then square shapes, where a wrong axis still fits, other shapes, large scores and ties."""
    query = np.array([[2 * log(3), 0.0, 0.0, 0.0]])
    keys = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    values = np.array([[4.0, 0.0], [0.0, 8.0]])
    yield call("attention", query, keys, values, note="where the scaled scores are ln 3 and 0: weights 3/4 and 1/4")
    yield _random(rng, 4, 4, 4, 4, "where T = S = d_k = d_v = 4")
    yield _random(rng, 3, 3, 5, 5, "where T = S, as in self-attention")
    yield _random(rng, 3, 3, 2, 7, "where d_v is larger than d_k")
    yield _random(rng, 5, 5, 7, 2, "where d_v is smaller than d_k")
    yield _random(rng, 2, 7, 3, 5, "where there are more keys than queries")
    yield _random(rng, 7, 2, 5, 3, "where there are more queries than keys")
    yield _random(rng, 5, 1, 3, 4, "where there is one key: it gets all weight")
    yield _random(rng, 1, 5, 3, 4, "where there is one query")
    yield _random(rng, 1, 1, 1, 1, "where everything is of size 1")
    yield _random(rng, 3, 5, 64, 2, "where d_k is 64")
    Q, K, V = (rng.normal(size=shape) for shape in ((3, 5), (4, 5), (4, 2)))
    yield call("attention", Q * 100, K * 100, V, note="where scores are in the thousands")
    yield call("attention", np.zeros_like(Q), K, V, note="where the queries are 0, so every key gets the same weight")
    yield call("attention", Q, np.repeat(K[:1], 4, axis=0), V, note="where all keys are equal")
    yield call("attention", Q, K, np.ones_like(V), note="where all values are 1, so the output is 1")
    yield _reordered(Q, K, V, rng.permutation(4))


def _random(rng: np.random.Generator, T: int, S: int, d_k: int, d_v: int, note: str) -> Case:
    shapes = ((T, d_k), (S, d_k), (S, d_v))
    return call("attention", *(rng.normal(size=shape) for shape in shapes), note=note)


def _reordered(Q: Array, K: Array, V: Array, order: Ints) -> Case:
    def ask(functions: Functions) -> Array:
        output: Array = functions.attention(Q, K[order], V[order])[0]
        return output - functions.attention(Q, K, V)[0]

    return Case(
        ask,
        note="where keys and values are reordered together: the output stays the same",
        description="attention(Q, K[order], V[order])[0] - attention(Q, K, V)[0]",
    )


def picture() -> Picture:
    """Draw the attention of one query that looks for a living thing."""
    words = ["cat", "road", "it"]
    features = ["thing", "living"]
    contents = ["fur", "stone"]
    keys = np.array([[1.0, 3.0], [3.0, 0.0], [0.5, 0.5]])
    query = np.array([[0.0, 1.5]])
    values = np.array([[9.0, 1.0], [1.0, 9.0], [0.0, 0.0]])
    output, weights = attention(query, keys, values)
    return Picture(
        [
            Panel("Q", query, ["it"], features),
            Panel("K", keys, words, features),
            Panel("Q Kᵀ / √2", query @ keys.T / np.sqrt(2), ["it"], words),
            Panel("weights A", weights, columns=words),
            Panel("V", values, words, contents),
            Panel("output A V", output, columns=contents),
        ],
        caption='"it" asks for something living. The key of "cat" fits best, so the output is nearly its value.',
    )
