"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake


def _softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _lower(shift, dtype, cached):
    """Return a function for a triangle of ones that ends `shift` keys after the query's own position."""

    def causal(queries, keys):
        return np.tri(queries, keys, shift + (keys - queries if cached else 0), dtype=dtype)

    return {"causal": causal}


def _upper(shift, dtype, cached):
    """Return a function for a triangle of ones that begins `shift` keys after the query's own position."""

    def causal(queries, keys):
        return np.triu(np.ones((queries, keys), dtype=dtype), shift + (keys - queries if cached else 0))

    return {"causal": causal}


def _written(triangle, shift):
    """Return the ways to write a triangle: of booleans or numbers, with or without regard to the cache."""
    return [triangle(shift, dtype, cached) for dtype in (bool, float, int) for cached in (True, False)]


def _square(queries, keys):
    return np.tri(keys, dtype=bool)


def _added_to_scores(queries, keys):
    return np.where(np.tri(queries, keys, keys - queries), 0.0, -np.inf)


def _added_to_scores_without_offset(queries, keys):
    return np.triu(np.full((queries, keys), -np.inf), 1)


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


def _over_queries(scores, allowed):
    masked = np.where(allowed, scores, -np.inf)
    powers = np.exp(masked - masked.max(axis=-2, keepdims=True))
    return powers / powers.sum(axis=-2, keepdims=True)


def _over_queries_without_nan(scores, allowed):
    masked = np.where(allowed, scores, -np.inf)
    highest = masked.max(axis=-2, keepdims=True)
    powers = np.exp(masked - np.where(np.isfinite(highest), highest, 0.0))
    totals = powers.sum(axis=-2, keepdims=True)
    return powers / np.where(totals == 0, 1.0, totals)


def _over_the_first_axis(scores, allowed):
    masked = np.where(allowed, scores, -np.inf)
    powers = np.exp(masked - masked.max(axis=0, keepdims=True))
    return powers / powers.sum(axis=0, keepdims=True)


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
        _lower(-1, bool, cached=True),
        _written(_lower, -1),
    ),
    Mistake(
        "the mask is one position ahead",
        "Each token also sees the next one, which is the token that it has to predict. The last key that a query may "
        "attend to is its own position: key <= query.",
        _lower(1, bool, cached=True),
        _written(_lower, 1),
    ),
    Mistake(
        "the wrong triangle",
        "Each token sees itself and later tokens. It may only see itself and earlier tokens: key <= query. np.triu "
        "keeps the diagonal and what is above it, np.tril the diagonal and what is below it.",
        _upper(0, bool, cached=True),
        _written(_upper, 0),
    ),
    Mistake(
        "True where attention is forbidden",
        "True means allowed here. Some libraries use the opposite convention (nn.MultiheadAttention); invert it with "
        "~.",
        _upper(1, bool, cached=True),
        _written(_upper, 1),
    ),
    Mistake(
        "the cache is ignored",
        "The queries are the last T of the S positions, so query i is at position S - T + i, not i. With a cache, "
        "shift the triangle to the right: np.tri(T, S, S - T).",
        _lower(0, bool, cached=False),
        [{"causal": _square}],
    ),
    Mistake(
        "a mask of numbers",
        "np.tri and np.tril of ones give 0.0 and 1.0, which do not select elements. Make the mask boolean: dtype=bool.",
        _lower(0, float, cached=True),
        [_lower(0, float, cached=False), _lower(0, int, cached=True), _lower(0, int, cached=False)],
    ),
    Mistake(
        "0 and -inf instead of True and False",
        "A mask of 0 and -inf is made to be added to the scores. Here the mask is boolean: True where the query may "
        "attend to the key.",
        {"causal": _added_to_scores},
        [{"causal": _added_to_scores_without_offset}],
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
        "softmax over the queries",
        "The columns sum to 1 here, so queries compete for a key. The weights of each query must sum to 1: axis=-1.",
        {"masked_softmax": _over_queries},
        [{"masked_softmax": _over_queries_without_nan}, {"masked_softmax": _over_the_first_axis}],
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
