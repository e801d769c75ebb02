"""Reference functions and test cases for the two heads and the induction score."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from glassformer.numpy_reference.arrays import Array, Ints
from glassformer.numpy_reference.attention import attend
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture

STRONG = 100.0


def previous_token_head(V: int, P: int) -> tuple[Array, Array]:
    """Return QK, from position i to position i - 1, and OV, from block "token" to block "previous": (D, D) each."""
    qk, ov = np.zeros((2, 3 * V + P, 3 * V + P))
    qk[V : V + P, V : V + P] = STRONG * np.eye(P, k=-1)
    ov[:V, V + P : 2 * V + P] = np.eye(V)
    return qk, ov


def induction_head(V: int, P: int) -> tuple[Array, Array]:
    """Return QK, from block "token" to block "previous", and OV, from block "token" to block "next": (D, D) each."""
    qk, ov = np.zeros((2, 3 * V + P, 3 * V + P))
    qk[:V, V + P : 2 * V + P] = STRONG * np.eye(V)
    ov[:V, 2 * V + P :] = np.eye(V)
    return qk, ov


def induction_score(weights: Array, tokens: Ints) -> float:
    """Return the mean weight on the tokens after earlier copies (Olsson et al. 2022, "prefix matching")."""
    T = len(tokens)
    copies = (tokens[:, None] == tokens[None, :]) & np.tri(T, k=-1, dtype=np.bool_)  # (T, T) earlier copies
    after = np.zeros((T, T), dtype=np.bool_)
    after[:, 1:] = copies[:, :-1]
    rows = copies.any(axis=1)
    return float((weights * after).sum(axis=1)[rows].mean()) if rows.any() else 0.0


def run(first: tuple[Array, Array], second: tuple[Array, Array], tokens: Ints, V: int, P: int) -> dict[str, Array]:
    """Run two heads in sequence; return their attention weights and the block "next" after them."""
    T = len(tokens)
    x = np.zeros((T, 3 * V + P))
    x[np.arange(T), tokens] = x[np.arange(T), V + np.arange(T)] = 1.0
    patterns = []
    for qk, ov in (first, second):
        keys = x * np.sqrt(x.shape[1])  # `attend` divides the scores by this root
        mixed, saved = attend(
            (x @ qk)[None, None], keys[None, None], x[None, None], np.tri(T, dtype=np.bool_)[None, None]
        )
        patterns.append(saved.weights[0, 0])
        x = x + mixed[0, 0] @ ov
    return {"first head": patterns[0], "second head": patterns[1], "next": x[:, 2 * V + P :]}


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases for the matrices, for both heads on repeated texts, and for scores of several kinds of heads."""
    yield call("previous_token_head", 2, 3, note="where there are 2 tokens and 3 positions")
    yield call("induction_head", 2, 3, note="where there are 2 tokens and 3 positions")
    tokens = np.array([0, 1, 2, 1])
    weights = np.array([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.2, 0.6, 0.1]])
    yield call(
        "induction_score",
        weights,
        tokens,
        note="where position 2 follows token 1, and its weight in the last row is 0.6",
    )
    for V, P in [(3, 2), (5, 7), (1, 1), (4, 11)]:
        note = f"where V is {V} and P is {P}"
        yield call("previous_token_head", V, P, note=note)
        yield call("induction_head", V, P, note=note)
    for V, half in [(5, 4), (7, 3), (11, 8)]:
        once = 1 + rng.permutation(V - 1)[:half]
        tokens = np.concatenate([[0], once, once])  # token 0 begins the text and occurs once
        yield Case(
            _at_work(tokens, V, len(tokens) + 1),
            f"where {len(once)} tokens occur twice",
            "both heads, one after the other",
        )
        weights = _random_weights(rng, len(tokens))
        yield call(
            "induction_score", weights, tokens, note=f"where {len(once)} tokens occur twice and the weights are random"
        )
    several = np.array([0, 3, 1, 3, 2, 3, 3, 1])
    yield Case(
        _at_work(several, 4, 8), "where a token is followed by different tokens", "both heads, one after the other"
    )
    yield call(
        "induction_score",
        _random_weights(rng, 8),
        several,
        note="where a token is followed by different tokens and by itself",
    )
    yield call(
        "induction_score", np.tri(5) / np.arange(1, 6)[:, None], np.arange(5), note="where no token occurs twice"
    )
    yield call("induction_score", np.ones((1, 1)), np.array([4]), note="where the text has one token")
    tokens = rng.integers(0, 5, size=23)
    yield call("induction_score", _random_weights(rng, 23), tokens, note="where 23 tokens are sampled from five")


def _random_weights(rng: np.random.Generator, T: int) -> Array:
    weights: Array = rng.random((T, T)) * np.tri(T)
    return weights / weights.sum(axis=1, keepdims=True)


def _at_work(tokens: Ints, V: int, P: int) -> Callable[[Functions], Any]:
    def ask(functions: Functions) -> dict[str, Any]:
        result = run(functions.previous_token_head(V, P), functions.induction_head(V, P), tokens, V, P)
        return {**result, "score": functions.induction_score(result["second head"], tokens)}

    return ask


def picture() -> Picture:
    """Draw the attention of both heads on a text that repeats itself, and the block "next"."""
    words = ["BOS", "the", "cat", "sat", "the", "cat"]
    tokens = np.array([0, 1, 2, 3, 1, 2])
    result = run(previous_token_head(4, 6), induction_head(4, 6), tokens, 4, 6)
    return Picture(
        [
            Panel("first head: previous token", np.round(result["first head"], 9), words, words),
            Panel("second head: induction", np.round(result["second head"], 9), words, words),
            Panel("next", np.round(result["next"], 9), words, words[:4]),
        ],
        caption="The second 'the' attends to the token after the first 'the' and predicts it: cat. The second 'cat' "
        "predicts sat. A new token has no earlier copy, so its attention is uniform.",
    )
