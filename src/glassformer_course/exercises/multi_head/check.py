"""Reference functions and test cases for multi-head attention."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glassformer.numpy_reference.arrays import Array
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture


def split(x: Array, heads: int) -> Array:
    """Split the channels into heads: (B, T, D) -> (B, H, T, d)."""
    return np.stack(np.split(x, heads, axis=-1), axis=1)


def merge(x: Array) -> Array:
    """Concatenate the heads: (B, H, T, d) -> (B, T, D)."""
    return np.concatenate([x[:, head] for head in range(x.shape[1])], axis=-1)


def multi_head(x: Array, W_Q: Array, W_K: Array, W_V: Array, W_O: Array, heads: int) -> Array:
    """Compute attention text by text and head by head; each head adds its result through its own rows of W_O."""
    d = x.shape[-1] // heads
    result = np.zeros_like(x)
    for text, tokens in enumerate(x):
        for head in range(heads):
            channels = slice(head * d, (head + 1) * d)
            weights = _weights(tokens @ W_Q[:, channels], tokens @ W_K[:, channels])
            result[text] += weights @ (tokens @ W_V[:, channels]) @ W_O[channels]
    return result


def _weights(Q: Array, K: Array) -> Array:
    """Return the attention weights: (T, d), (S, d) -> (T, S)."""
    scores = Q @ K.T / Q.shape[-1] ** 0.5
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights: Array = powers / powers.sum(axis=-1, keepdims=True)
    return weights


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases with numbered channels, which show a wrong order, then with one to five heads in several sizes."""
    two = np.array([[[0.0, 1.0, 2.0, 3.0], [10.0, 11.0, 12.0, 13.0]]])
    yield call("split", two, 2, note="where token 0 is 0 1 2 3, token 1 is 10 11 12 13, and there are 2 heads")
    for B, T, H, d in ((1, 3, 2, 2), (2, 3, 4, 5), (3, 2, 2, 7), (2, 5, 5, 1)):
        yield call("split", rng.normal(size=(B, T, H * d)), H, note=f"where {H * d} channels become {H} heads")
    yield call("split", rng.normal(size=(2, 3, 5)), 1, note="where there is one head")
    yield call("merge", split(two, 2), note="where the result must be 0 1 2 3, 10 11 12 13")
    for B, H, T, d in ((1, 2, 2, 2), (2, 4, 3, 5), (3, 2, 2, 7), (2, 5, 7, 1)):
        yield call("merge", rng.normal(size=(B, H, T, d)), note=f"where {H} heads become {H * d} channels")
    yield _there_and_back(rng.normal(size=(2, 3, 12)), 4)
    eye = np.eye(4)
    yield call("multi_head", two / 10, eye, eye, eye, eye, 2, note="where all weights are the identity")
    for B, T, H, d in ((1, 3, 2, 2), (2, 5, 2, 3), (3, 2, 3, 4), (2, 7, 4, 1), (1, 3, 1, 5), (2, 1, 2, 3)):
        weights = rng.normal(size=(4, H * d, H * d)) / (H * d) ** 0.5
        note = f"where {B} x {T} tokens have {H} head{'s' * (H > 1)} of {d} channel{'s' * (d > 1)}"
        yield call("multi_head", rng.normal(size=(B, T, H * d)), *weights, H, note=note)
    weights = rng.normal(size=(4, 6, 6))
    yield call("multi_head", rng.normal(size=(2, 3, 6)) * 40, *weights, 3, note="where scores are in the thousands")
    yield call("multi_head", np.zeros((2, 3, 6)), *weights, 2, note="where x is 0, and so is the result")


def _there_and_back(x: Array, heads: int) -> Case:
    def ask(functions: Functions) -> Array:
        again: Array = functions.merge(functions.split(x, heads))
        return again

    return Case(ask, note="where merge must undo split", description="merge(split(x, 4)) with x float64 (2, 3, 12)")


def picture() -> Picture:
    """Draw two heads on A B A B: one attends to the previous position, one to the same letter."""
    words = ["A", "B", "A'", "B'"]
    positions = np.eye(4)
    letters = np.array([[1.0, 0.0], [0.0, 1.0]] * 2)
    x = np.concatenate([positions, letters, np.zeros((4, 2))], axis=1)
    W_Q = np.zeros((8, 8))
    W_K = np.zeros((8, 8))
    W_Q[:4, :4] = np.roll(positions, -1, axis=1) * 6  # position i attends to position i - 1
    W_K[:4, :4] = positions
    W_Q[4:, 4:] = W_K[4:, 4:] = np.eye(4) * 2  # a letter attends to the same letter
    Q = split((x @ W_Q)[None], 2)[0]
    K = split((x @ W_K)[None], 2)[0]
    names = ("head 0: the previous position", "head 1: the same letter")
    return Picture(
        [Panel(name, _weights(Q[head], K[head]), words, words) for head, name in enumerate(names)],
        caption="Two heads have different patterns on the same tokens: a row is a query, a column a key. Without a "
        "mask, the first position attends to the last one.",
    )
