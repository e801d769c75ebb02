"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake


def _rotate(x, positions):
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10_000.0 ** (-np.arange(half) / half)
    a = x[:, :half]
    b = x[:, half:]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=-1)


def _attend(queries, keys, values, allowed):
    scores = np.where(allowed, queries @ keys.T / np.sqrt(keys.shape[-1]), -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ values


def _always_from_zero(x, cache, w_query, w_key, w_value):
    t = len(cache[0])
    n = len(x)
    positions = np.arange(n)
    keys = np.concatenate([cache[0], _rotate(x @ w_key, positions)])
    values = np.concatenate([cache[1], x @ w_value])
    mixed = _attend(_rotate(x @ w_query, positions), keys, values, np.tril(np.ones((n, t + n), dtype=bool), k=t))
    return mixed, (keys, values)


def _one_ahead(x, cache, w_query, w_key, w_value):
    t = len(cache[0])
    n = len(x)
    positions = np.arange(t, t + n)
    keys = np.concatenate([cache[0], _rotate(x @ w_key, positions + 1)])
    values = np.concatenate([cache[1], x @ w_value])
    mixed = _attend(_rotate(x @ w_query, positions + 1), keys, values, np.tril(np.ones((n, t + n), dtype=bool), k=t))
    return mixed, (keys, values)


def _not_appended(x, cache, w_query, w_key, w_value):
    mixed, _ = _right(x, cache, w_query, w_key, w_value)
    return mixed, cache


def _mask_of_the_piece(x, cache, w_query, w_key, w_value):
    t = len(cache[0])
    n = len(x)
    positions = np.arange(t, t + n)
    keys = np.concatenate([cache[0], _rotate(x @ w_key, positions)])
    values = np.concatenate([cache[1], x @ w_value])
    return _attend(_rotate(x @ w_query, positions), keys, values, np.tri(n, t + n, dtype=bool)), (keys, values)


def _no_mask(x, cache, w_query, w_key, w_value):
    t = len(cache[0])
    n = len(x)
    positions = np.arange(t, t + n)
    keys = np.concatenate([cache[0], _rotate(x @ w_key, positions)])
    values = np.concatenate([cache[1], x @ w_value])
    return _attend(_rotate(x @ w_query, positions), keys, values, np.ones((n, t + n), dtype=bool)), (keys, values)


def _turned_twice(x, cache, w_query, w_key, w_value):
    t = len(cache[0])
    n = len(x)
    keys = _rotate(np.concatenate([cache[0], x @ w_key]), np.arange(t + n))
    values = np.concatenate([cache[1], x @ w_value])
    queries = _rotate(x @ w_query, np.arange(t, t + n))
    return _attend(queries, keys, values, np.tri(n, t + n, k=t, dtype=bool)), (keys, values)


def _right(x, cache, w_query, w_key, w_value):
    t = len(cache[0])
    n = len(x)
    positions = t + np.arange(n)
    keys = np.vstack([cache[0], _rotate(x @ w_key, positions)])
    values = np.vstack([cache[1], x @ w_value])
    return _attend(_rotate(x @ w_query, positions), keys, values, np.tri(n, t + n, k=t, dtype=bool)), (keys, values)


def _row_by_row(x, cache, w_query, w_key, w_value):
    keys = list(cache[0])
    values = list(cache[1])
    mixed = []
    for vector in x:
        position = np.array([len(keys)])
        keys.append(_rotate((vector @ w_key)[None], position)[0])
        values.append(vector @ w_value)
        query = _rotate((vector @ w_query)[None], position)[0]
        scores = np.array([query @ key for key in keys]) / len(query) ** 0.5
        weights = np.exp(scores - max(scores))
        mixed.append(sum(weight * value for weight, value in zip(weights / sum(weights), values, strict=True)))
    return np.array(mixed), (np.array(keys), np.array(values))


MISTAKES = [
    Mistake(
        "the position is not advanced",
        "Every piece is rotated as if it were the start of the text. The first new token is at position t, the number "
        "of tokens in the cache: np.arange(t, t + n).",
        {"step": _always_from_zero},
    ),
    Mistake(
        "the position is one too far",
        "The new tokens are rotated by t + 1, t + 2 …. Positions count from 0, so with t tokens in the cache the next "
        "position is t.",
        {"step": _one_ahead},
    ),
    Mistake(
        "the cache is not appended to",
        "The new keys and values are used, but the old cache is returned, so later tokens cannot attend to these "
        "tokens. Return the longer arrays.",
        {"step": _not_appended},
    ),
    Mistake(
        "the mask ignores the cache",
        "With a lower triangle that begins at column 0, the new row i sees only positions 0 … i. The new row i is at "
        "position t + i: shift the diagonal by t, np.tri(n, t + n, k=t).",
        {"step": _mask_of_the_piece},
    ),
    Mistake(
        "no mask within a piece",
        "If there are several new tokens, the earlier ones attend to the later ones here. One token needs no mask, but "
        "several do: the token at position p sees 0 … p.",
        {"step": _no_mask},
    ),
    Mistake(
        "cached keys are rotated again",
        "The cached keys are already rotated. Rotating the whole array at each step rotates the old keys again: rotate "
        "only the new ones, then append.",
        {"step": _turned_twice},
    ),
]
ALSO_RIGHT = [{"step": _right}, {"step": _row_by_row}]
