"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake


def _exchanged(ids, size):
    counts = np.zeros((size, size), dtype=np.int64)
    np.add.at(counts, (ids[1:], ids[:-1]), 1)
    return counts


def _once(ids, size):
    counts = np.zeros((size, size), dtype=np.int64)
    counts[ids[:-1], ids[1:]] += 1
    return counts


def _around_the_end(ids, size):
    counts = np.zeros((size, size), dtype=np.int64)
    np.add.at(counts, (ids, np.roll(ids, -1)), 1)
    return counts


def _k_above_only(counts, k):
    return (counts + k) / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def _k_once_below(counts, k):
    return (counts + k) / (counts.sum(axis=1, keepdims=True) + k)


def _columns(counts, k):
    return (counts + k) / (counts + k).sum(axis=0, keepdims=True)


def _of_all_pairs(counts, k):
    return (counts + k) / (counts + k).sum()


def _by_tokens(ids, p):
    return float(-np.log(p[ids[:-1], ids[1:]]).sum() / len(ids))


def _bits(ids, p):
    return float(-np.log2(p[ids[:-1], ids[1:]]).mean())


def _log_of_mean(ids, p):
    return float(-np.log(p[ids[:-1], ids[1:]].mean()))


def _floats(ids, size):
    return _one_number(ids, size).astype(np.float64)


def _one_hot_product(ids, size):
    before = np.eye(size, dtype=np.int64)[ids[:-1]]
    after = np.eye(size, dtype=np.int64)[ids[1:]]
    return before.T @ after


def _one_number(ids, size):
    return np.bincount(ids[:-1] * size + ids[1:], minlength=size * size).reshape(size, size).astype(np.int64)


def _row_by_row(counts, k):
    return np.stack([(row + k) / (sum(row) + len(row) * k) for row in counts])


def _with_a_loop(ids, p):
    total = 0.0
    for position in range(1, len(ids)):
        total -= float(np.log(p[ids[position - 1], ids[position]]))
    return total / (len(ids) - 1)


MISTAKES = [
    Mistake(
        "token and next token are swapped",
        "The table is transposed. Rows are the first token, columns the next: counts[token, next].",
        {"count": _exchanged},
    ),
    Mistake(
        "repeated pairs are counted once",
        "counts[token, next] += 1 with arrays adds 1 only once for each distinct pair. Use np.add.at, or a loop.",
        {"count": _once},
    ),
    Mistake(
        "the last token is followed by the first",
        "A text does not continue with its start: N tokens have N - 1 pairs, ids[:-1] with ids[1:].",
        {"count": _around_the_end},
    ),
    Mistake(
        "counts that are floats",
        "np.zeros gives float64. Counts are whole numbers: np.zeros(shape, dtype=np.int64).",
        {"count": _floats},
    ),
    Mistake(
        "k is not in the sum",
        "k was added to the counts but not to the row sums, so the rows sum to more than 1. Divide by the sum of the "
        "row after adding k.",
        {"probabilities": _k_above_only},
    ),
    Mistake(
        "k is in the sum only once",
        "k was added to V counts, so the row's sum grows by V k, not by k.",
        {"probabilities": _k_once_below},
    ),
    Mistake(
        "the columns sum to 1",
        "The sum runs over the tokens that may come next, along a row: axis=1.",
        {"probabilities": _columns},
    ),
    Mistake(
        "the whole table sums to 1",
        "This is the probability of a pair. For the probability of the next token, given the token before it, each row "
        "must sum to 1.",
        {"probabilities": _of_all_pairs},
    ),
    Mistake(
        "divided by the number of tokens",
        "N tokens have N - 1 pairs; the first token was never predicted. Divide by N - 1.",
        {"nats_per_token": _by_tokens},
    ),
    Mistake(
        "bits instead of nats",
        "log2 gives bits. For nats, use the natural logarithm: np.log.",
        {"nats_per_token": _bits},
    ),
    Mistake(
        "the logarithm of the mean",
        "Take the logarithm of each probability first, then the mean: one impossible token must cost a lot.",
        {"nats_per_token": _log_of_mean},
    ),
]
ALSO_RIGHT = [
    {"count": _one_hot_product, "probabilities": _row_by_row, "nats_per_token": _with_a_loop},
    {"count": _one_number},
]
