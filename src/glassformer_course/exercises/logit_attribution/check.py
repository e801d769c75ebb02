"""Reference function and test cases for `attribution`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt

import numpy as np

from glassformer.base.wording import counted
from glassformer.numpy_reference.arrays import Array
from glassformer.numpy_reference.norms import norm
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture


def attribution(
    parts: Array, gain: Array, bias: Array, unembedding: Array, token: int, eps: float
) -> tuple[Array, float]:
    """Return the contributions of the parts and of the bias, computed channel by channel: (N,), float."""
    N, D = parts.shape
    stream = [sum(float(parts[n, d]) for n in range(N)) for d in range(D)]
    middle = sum(stream) / D
    sigma = sqrt(sum((x - middle) ** 2 for x in stream) / D + eps)
    contributions = np.zeros(N)
    for n in range(N):
        mean = sum(parts[n]) / D
        for d in range(D):
            contributions[n] += (parts[n, d] - mean) / sigma * gain[d] * unembedding[d, token]
    return contributions, float(sum(bias[d] * unembedding[d, token] for d in range(D)))


def logits(parts: Array, gain: Array, bias: Array, unembedding: Array, eps: float) -> Array:
    """Return the logits of the whole stream, with the NumPy reference's LayerNorm: (V,)."""
    y, _ = norm(parts.sum(axis=0)[None], {"weight": gain, "bias": bias}, "layernorm", eps)
    return y[0] @ unembedding


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases with one to many parts, parts that cancel, a large eps, and sums that must equal the logit."""
    by_hand = np.array([[3.0, 0.0], [0.0, 1.0]])
    plain = np.ones(2)
    none = np.zeros(2)
    identity = np.eye(2)
    yield call(
        "attribution",
        by_hand,
        plain,
        none,
        identity,
        0,
        0.0,
        note="where the stream (3, 1) has mean 2 and standard deviation 1: the parts contribute 1.5 and -0.5",
    )
    yield call(
        "attribution", by_hand, plain, np.array([0.25, 0.5]), identity, 1, 0.0, note="where the bias contributes 0.5"
    )
    for N, D, V in [(1, 3, 5), (2, 5, 3), (5, 7, 11), (13, 4, 7), (7, 16, 29)]:
        arrays = _random_inputs(rng, N, D, V)
        token = int(rng.integers(V))
        note = f"where {counted(N, 'parts have', 'part has')} {D} channels"
        yield call("attribution", *arrays, token, 1e-5, note=note)
        yield Case(_sum(arrays, token), f"{note}, and all contributions must sum to the logit", "attribution")
    parts, *rest = _random_inputs(rng, 4, 5, 3)
    yield call("attribution", parts + 100, *rest, 2, 1e-5, note="where every part has a large mean")
    opposite = np.concatenate([parts, -parts[:3]])
    yield call("attribution", opposite, *rest, 0, 1e-5, note="where all parts except one cancel")
    yield call("attribution", parts * 0.01, *rest, 1, 0.5, note="where eps is large compared with the variance")
    silent = parts.copy()
    silent[1] = 0.0
    yield call("attribution", silent, *rest, 1, 1e-5, note="where one part is 0")
    flat = parts.copy()
    flat[2] = 7.0
    yield call("attribution", flat, *rest, 1, 1e-5, note="where one part is the same in all channels")

    def difference(functions: Functions) -> Array:
        first, _ = functions.attribution(parts, *rest, 0, 1e-5)
        second, _ = functions.attribution(parts, *rest, 2, 1e-5)
        return np.asarray(first - second)

    yield Case(difference, "where the result is the difference between the contributions to two tokens", "attribution")


def _sum(arrays: tuple[Array, ...], token: int) -> Callable[[Functions], float]:
    def ask(functions: Functions) -> float:
        contributions, constant = functions.attribution(*arrays, token, 1e-5)
        return float(contributions.sum() + constant)

    return ask


def _random_inputs(rng: np.random.Generator, N: int, D: int, V: int) -> tuple[Array, Array, Array, Array]:
    return rng.normal(size=(N, D)) * 2, rng.normal(size=D) + 1, rng.normal(size=D), rng.normal(size=(D, V))


def picture() -> Picture:
    """Draw the parts of a stream made by hand, and their contributions to the logits of three tokens."""
    names = ["embedding", "head 0.0", "head 0.1", "feed-forward"]
    words = ["Paris", "Rome", "is"]
    unembedding = np.array([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0], [0.2, 0.2, 0.2]])
    parts = np.array([[0.0, 0.0, 2.0, 0.5], [2.5, 0.5, -0.5, 0.0], [0.0, 0.0, -1.5, 0.5], [1.0, 1.0, 0.0, 0.0]])
    plain = np.ones(4)
    none = np.zeros(4)
    contributions = np.stack(
        [attribution(parts, plain, none, unembedding, token, 1e-5)[0] for token in range(3)], axis=1
    )
    model_logits = logits(parts, plain, none, unembedding, 1e-5)
    return Picture(
        [
            Panel("parts of the stream", parts, names),
            Panel("contributions to the logits", contributions, names, words),
            Panel("the model's logits", model_logits, columns=words),
        ],
        caption="Each column of contributions sums to the logit. The embedding raises the logit of 'is', the word "
        "just read. Head 0.0 raises the logit of the answer, and both heads lower the logit of 'is'.",
    )
