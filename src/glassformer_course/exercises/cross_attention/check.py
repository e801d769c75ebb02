"""Reference functions and test cases for `shift_right` and `cross_attention`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glassformer.base.wording import counted
from glassformer.numpy_reference.arrays import Array, Bools, Ints
from glassformer.numpy_reference.attention import attend
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture


def shift_right(targets: Ints, bos: int) -> Ints:
    """Shift the targets right, token by token: (B, T) -> (B, T)."""
    result = np.full_like(targets, bos)
    for row, target in enumerate(targets):
        for position in range(1, len(target)):
            result[row, position] = target[position - 1]
    return result


def cross_attention(
    decoder: Array, encoder: Array, real_source: Bools, w_query: Array, w_key: Array, w_value: Array
) -> tuple[Array, Array]:
    """Return output and weights of the NumPy reference with one head, masking only source padding."""
    q, k, v = ((x @ weight)[:, None] for x, weight in ((decoder, w_query), (encoder, w_key), (encoder, w_value)))
    mixed, saved = attend(q, k, v, real_source[:, None, None, :])
    return mixed[:, 0], saved.weights[:, 0]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases with short and long targets and sources, padding, large scores and reordered sources."""
    yield call("shift_right", np.array([[5, 6, 7]]), 1, note="where the target is 5, 6, 7 and begins with 1")
    yield call(
        "shift_right",
        np.array([[5], [6]]),
        0,
        note="where targets have one token: the decoder reads only the begin token",
    )
    for B, T in [(2, 4), (3, 7), (1, 11)]:
        note = f"where {counted(B, 'targets have', 'target has')} {T} tokens"
        yield call("shift_right", rng.integers(3, 50, size=(B, T)), 2, note=note)
    yield call(
        "shift_right", np.array([[4, 4, 4], [4, 5, 4]]), 4, note="where the begin token also occurs in the target"
    )
    one = np.eye(2)
    source = np.array([[[2.0, 0.0], [4.0, 6.0], [9.0, 9.0]]])
    real = np.array([[True, True, False]])
    yield call(
        "cross_attention",
        np.zeros((1, 1, 2)),
        source,
        real,
        one,
        one,
        one,
        note="where the query is 0: the mean of (2, 0) and (4, 6), because (9, 9) is padding",
    )
    for lengths, T, D, d in [
        ((5,), 3, 4, 2),
        ((2, 7), 5, 3, 5),
        ((4, 1, 6), 2, 5, 3),
        ((3, 5), 5, 2, 3),
        ((1,), 4, 3, 2),
    ]:
        B = len(lengths)
        S = max(lengths)
        real = np.arange(S) < np.array(lengths)[:, None]
        arrays = rng.normal(size=(B, T, D)), rng.normal(size=(B, S, D)), real, *_weights(rng, D, d)
        note = f"where there are {T} target positions, and the source lengths are {list(lengths)}"
        yield call("cross_attention", *arrays, note=note)
    decoder = rng.normal(size=(2, 4, 3))
    weights = _weights(rng, 3, 3)
    long = rng.normal(size=(2, 7, 3))
    real = np.arange(7) < np.array([[3], [7]])
    million = np.where(real[:, :, None], long, 1e6)
    yield call(
        "cross_attention", decoder, million, real, *weights, note="where the padding of the source contains 1,000,000"
    )
    between = np.array([[True, False, True, False, True, True, False], [False, True, True, True, False, True, True]])
    yield call("cross_attention", decoder, long, between, *weights, note="where padding is between real tokens")
    yield call("cross_attention", decoder[:, :1], long, real, *weights, note="where there is one target position")
    yield call("cross_attention", 40 * decoder, 40 * long, real, *weights, note="where the scores are very large")

    def alone(functions: Functions) -> tuple[Array, Array]:
        reordered = long[:1, [2, 0, 1]]
        everything = np.ones((1, 3), dtype=np.bool_)
        mixed, attention_weights = functions.cross_attention(decoder[:1], reordered, everything, *weights)
        return mixed, attention_weights

    yield Case(alone, "where the tokens of a single source are in another order", "cross_attention")


def _weights(rng: np.random.Generator, D: int, d: int) -> tuple[Array, Array, Array]:
    return rng.normal(size=(D, d)), rng.normal(size=(D, d)), rng.normal(size=(D, d))


def picture() -> Picture:
    """Draw the cross-attention from target words to source words, in a translation made by hand."""
    target = ["BOS", "das", "rote", "Haus"]
    source = ["the", "red", "house", "pad"]
    queries = np.array([[4.0, 0, 0], [0, 4, 0], [0, 0, 4], [1.5, 1.5, 1.5]])  # features that each position needs next
    vectors = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])
    real = np.array([[True, True, True, False]])
    _, weights = cross_attention(queries[None], vectors[None], real, np.eye(3), np.eye(3), np.eye(3))
    ids = np.array([[1, 2, 3, 4]])
    return Picture(
        [
            Panel("targets and inputs of the decoder", [ids[0], shift_right(ids, 0)[0]], ["target", "input"]),
            Panel("cross-attention", weights[0], target, source),
        ],
        caption="Each position reads the token before its target (0 is the begin token). Rows are the inputs of the "
        "decoder, columns the source: after BOS the decoder attends to 'the', after 'das' to 'red'.",
    )
