"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake


def _softmax(scores):
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _scores(q, k):
    return q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])


def _empty_as_zero(mixed, real):
    return np.where(real.any(axis=1)[:, None, None], mixed, 0.0)


def _no_mask(q, k, v, real):
    return _softmax(_scores(q, k)) @ v


def _queries(q, k, v, real):
    mixed = _softmax(_scores(q, k)) @ v
    return np.where(real[:, :, None], mixed, 0.0)


def _zero_scores(q, k, v, real):
    return _empty_as_zero(_softmax(np.where(real[:, None, :], _scores(q, k), 0.0)) @ v, real)


def _after_softmax(q, k, v, real):
    return _softmax(_scores(q, k)) * real[:, None, :] @ v


def _finite(q, k, v, real):
    return _empty_as_zero(_softmax(_scores(q, k) + np.where(real[:, None, :], 0.0, -1e4)) @ v, real)


def _no_number(q, k, v, real):
    return _softmax(np.where(real[:, None, :], _scores(q, k), -np.inf)) @ v


def _mean_over_all(x, real):
    return x.mean(axis=1)


def _divided_by_all(x, real):
    return np.where(real[:, :, None], x, 0.0).mean(axis=1)


def _mean_no_number(x, real):
    return (x * real[:, :, None]).sum(axis=1) / real.sum(axis=1)[:, None]


def _with_loops(q, k, v, real):
    result = np.zeros(v.shape)
    for b in range(len(q)):
        keys = [j for j in range(q.shape[1]) if real[b, j]]
        for i in range(q.shape[1] if keys else 0):
            scores = [float(q[b, i] @ k[b, j]) / q.shape[2] ** 0.5 for j in keys]
            sizes = [np.exp(score - max(scores)) for score in scores]
            result[b, i] = sum(size * v[b, j] for size, j in zip(sizes, keys, strict=True)) / sum(sizes)
    return result


def _by_weights(q, k, v, real):
    scores = np.where(real[:, None, :], np.einsum("bid,bjd->bij", q, k) / np.sqrt(q.shape[-1]), -1e300)
    sizes = np.exp(scores - scores.max(axis=-1, keepdims=True)) * real[:, None, :]
    return np.einsum("bij,bjd->bid", sizes / np.maximum(sizes.sum(axis=-1, keepdims=True), 1e-300), v)


def _one_row_at_a_time(x, real):
    return np.stack(
        [np.sum(row[row_real], axis=0) / max(row_real.sum(), 1) for row, row_real in zip(x, real, strict=True)]
    )


def _as_product(x, real):
    weights = real / np.maximum(real.sum(axis=1, keepdims=True), 1)
    return np.einsum("bt,btd->bd", weights, x)


MISTAKES = [
    Mistake(
        "padding is attended to",
        "No key is left out, so the result of a text depends on the length of the other texts in the batch. Set the "
        "scores of padding keys to -inf before the softmax.",
        {"attention": _no_mask},
    ),
    Mistake(
        "queries masked instead of keys",
        "The rows of padding queries were set to 0, but real tokens still attend to padding. The mask belongs on the "
        "key axis: real[:, None, :].",
        {"attention": _queries},
    ),
    Mistake(
        "a score of 0 for padding",
        "exp(0) is 1, so padding with a score of 0 still gets weight, often much. Use -inf.",
        {"attention": _zero_scores},
    ),
    Mistake(
        "the mask comes after the softmax",
        "The weights of padding are set to 0 after they were included in the sum, so the other weights sum to less "
        "than 1. Set these scores to -inf before the softmax.",
        {"attention": _after_softmax},
    ),
    Mistake(
        "a finite number for 'not allowed'",
        "After adding -10,000, a padding key still gets weight if the scores of all real keys are about as low. Use "
        "-inf.",
        {"attention": _finite},
    ),
    Mistake(
        "NaN in rows without real tokens",
        "All scores are -inf there, and -inf - (-inf) is NaN, which makes the loss of the batch NaN. Use 0 as the "
        "maximum of such a row, and do not divide by its sum of 0.",
        {"attention": _no_number},
    ),
    Mistake(
        "the mean includes padding",
        "The vectors at padding were included. Set them to 0 first, and divide by the number of real tokens.",
        {"mean": _mean_over_all},
    ),
    Mistake(
        "divided by all positions",
        "The sum over real tokens was divided by T, so more padding gives a smaller mean. Divide by real.sum(axis=1).",
        {"mean": _divided_by_all},
    ),
    Mistake(
        "the mean of no tokens is NaN",
        "A row without real tokens gives 0 / 0. Divide by at least 1: np.maximum(count, 1).",
        {"mean": _mean_no_number},
    ),
]
ALSO_RIGHT = [
    {"attention": _with_loops, "mean": _one_row_at_a_time},
    {"attention": _by_weights, "mean": _as_product},
]
