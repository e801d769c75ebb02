"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake


def _softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _without_itself(queries, keys):
    return np.tri(queries, keys, keys - queries - 1, dtype=bool)


def _upper(queries, keys):
    return ~np.tri(queries, keys, keys - queries - 1, dtype=bool)


def _forbidden(queries, keys):
    return ~np.tri(queries, keys, keys - queries, dtype=bool)


def _no_offset(queries, keys):
    return np.tri(queries, keys, dtype=bool)


def _as_numbers(queries, keys):
    return np.tri(queries, keys, keys - queries)


def _after(scores, allowed):
    return _softmax(scores) * allowed


def _after_and_divided(scores, allowed):
    weights = _softmax(scores) * allowed
    totals = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(totals == 0, 1.0, totals)


def _zero_scores(scores, allowed):
    return _softmax(np.where(allowed, scores, 0.0)) * allowed.any(axis=-1, keepdims=True)


def _finite(scores, allowed):
    return _softmax(np.where(allowed, scores, -1e4))


def _very_low(scores, allowed):
    return _softmax(np.where(allowed, scores, -1e9))


def _added(scores, allowed):
    return _softmax(scores + np.where(allowed, 0.0, -1e9))


def _not_a_number(scores, allowed):
    return _softmax(np.where(allowed, scores, -np.inf))


def _triangle(queries, keys):
    return np.tril(np.ones((queries, keys), dtype=bool), keys - queries)


def _by_comparison(queries, keys):
    square = np.arange(keys)[None, :] <= np.arange(keys)[:, None]
    return square[keys - queries :]


def _row_by_row(scores, allowed):
    weights = np.zeros_like(scores)
    for position in np.ndindex(scores.shape[:-1]):
        free = allowed[position[-1]]
        if free.any():
            weights[position][free] = _softmax(scores[position][free])
    return weights


def _with_logarithms(scores, allowed):
    masked = np.where(allowed, scores, -np.inf)
    log_sums = np.logaddexp.reduce(masked, axis=-1, keepdims=True)
    return np.exp(masked - np.where(np.isfinite(log_sums), log_sums, 0.0))


MISTAKES = [
    Mistake(
        "a token does not see itself",
        "The diagonal is missing, so the first token sees nothing at all. A query may attend to its own position: "
        "key <= query.",
        {"causal": _without_itself},
    ),
    Mistake(
        "the wrong triangle",
        "Each token sees itself and later tokens. It may only see itself and earlier tokens: key <= query.",
        {"causal": _upper},
    ),
    Mistake(
        "True where attention is forbidden",
        "True means allowed here. Some libraries use the opposite convention (nn.MultiheadAttention); invert it with "
        "~.",
        {"causal": _forbidden},
    ),
    Mistake(
        "the cache is ignored",
        "The queries are the last T of the S positions, so query i is at position S - T + i, not i. With a cache, "
        "shift the triangle to the right: np.tri(T, S, S - T).",
        {"causal": _no_offset},
    ),
    Mistake(
        "a mask of numbers",
        "np.tri and np.tril of ones give 0.0 and 1.0, which do not select elements. Make the mask boolean: dtype=bool.",
        {"causal": _as_numbers},
    ),
    Mistake(
        "masked after the softmax",
        "The rows no longer sum to 1: keys that are not allowed got weight before they were removed. Set their scores "
        "to -inf first, then take the softmax.",
        {"masked_softmax": _after},
    ),
    Mistake(
        "masked after the softmax, then divided",
        "If a key that is not allowed has by far the largest score, all other weights are 0 before you divide. Later "
        "tokens also change the last bits of earlier rows. Set these scores to -inf before the softmax.",
        {"masked_softmax": _after_and_divided},
    ),
    Mistake(
        "masked with the score 0",
        "A score of 0 is an ordinary score: e to the power of 0 is 1. Use -inf, because e to the power of -inf is 0.",
        {"masked_softmax": _zero_scores},
    ),
    Mistake(
        "masked with -1,000,000,000",
        "A finite number is only a low score: a row that may see nothing then attends to all keys, and float16 cannot "
        "represent the number. Use -np.inf, and return zeros for such a row.",
        {"masked_softmax": _very_low},
    ),
    Mistake(
        "masked with -10,000",
        "A finite number is only a low score. If the allowed scores are equally low, forbidden keys get weight, and a "
        "row that may see nothing attends to all keys. Use -np.inf.",
        {"masked_softmax": _finite},
    ),
    Mistake(
        "a large negative number is added",
        "A score minus 1e9 is still finite: a row that may see nothing then attends to forbidden keys. Use np.where "
        "with -np.inf, and return zeros for such a row.",
        {"masked_softmax": _added},
    ),
    Mistake(
        "NaN where nothing is allowed",
        "In a row of only -inf, the maximum is -inf, and -inf - (-inf) is NaN. Such rows, which are padding, must be "
        "0.",
        {"masked_softmax": _not_a_number},
    ),
]
ALSO_RIGHT = [
    {"causal": _triangle, "masked_softmax": _row_by_row},
    {"causal": _by_comparison, "masked_softmax": _with_logarithms},
]
