"""N-gram language model with interpolated modified Kneser-Ney smoothing, in sorted arrays.

The formulas and the three discounts are those of Chen and Goodman 1999, "An empirical study of smoothing techniques for
language modeling". The highest order uses counts; lower orders use the number of distinct tokens that precede an
n-gram. Unigrams are interpolated with the uniform distribution, so no token has probability zero.

An n-gram is identified by its rank among the distinct n-grams, and an (n+1)-gram by the pair (rank of its first n
tokens, last token), packed into one integer. This is exact for any vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Ranks = NDArray[np.int32]  # there are fewer than 2^31 n-grams; int32 halves the memory
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Order:
    """All distinct n-grams of one length n.

    Attributes:
        keys: for each n-gram, (rank of its context) x V + last token, sorted; an n-gram's index here is its rank.
        weights: count of each n-gram after discounting.
        totals: for each context (an (n-1)-gram), the sum of the counts before discounting.
        discount_sums: for each context, the sum of the discounts, which weights the next lower order.
    """

    keys: Integers
    weights: Floats
    totals: Floats
    discount_sums: Floats


class KneserNey:
    """An n-gram language model of a token stream.

    Args:
        tokens: (N,) training token ids, each below `vocab_size`.
        vocab_size: vocabulary size V.
        order: length n of the longest n-grams.
    """

    def __init__(self, tokens: NDArray[np.integer], vocab_size: int, order: int = 5) -> None:
        self.vocab_size = vocab_size
        self._orders: list[_Order] = []
        keys, ranks, counts = _distinct(tokens.astype(np.int64))
        contexts = 1
        for n in range(2, order + 1):
            # `ranks` has the (n-1)-gram that starts at each token; together with the next token, it is an n-gram.
            longer_keys, longer_ranks, longer_counts = _distinct(
                ranks[:-1].astype(np.int64) * vocab_size + tokens[n - 1 :]
            )
            ending = np.zeros(len(longer_keys), dtype=np.int32)  # the (n-1)-gram that each n-gram ends with
            ending[longer_ranks] = ranks[1:]
            self._orders.append(_smoothed(keys, np.bincount(ending, minlength=len(keys)), contexts, vocab_size))
            contexts = len(keys)
            keys = longer_keys
            ranks = longer_ranks
            counts = longer_counts
        self._orders.append(_smoothed(keys, counts, contexts, vocab_size))

    def probabilities(self, tokens: NDArray[np.integer]) -> Floats:
        """Return the probability (N,) of each token given the up to n - 1 tokens before it in the same array."""
        probabilities = np.full(len(tokens), 1 / self.vocab_size)
        ranks = np.zeros(len(tokens), dtype=np.int64)  # rank of the context of each token, -1 if never seen
        for order in self._orders:
            probabilities = self._interpolated(order, ranks, tokens, probabilities)
            ends = _ranks_of(order.keys, ranks, tokens, self.vocab_size)
            # The context for the next order, one token longer, ends one token earlier.
            ranks = np.concatenate([np.array([-1]), ends[:-1]])
        return probabilities

    def _interpolated(self, order: _Order, ranks: Integers, tokens: NDArray[np.integer], lower: Floats) -> Floats:
        """Return p(w | h) = (discounted(h, w) + discounts(h) p(w | shorter h)) / total(h).

        An unseen h backs off to the shorter h.
        """
        seen = np.flatnonzero((ranks >= 0) & (order.totals[ranks] > 0))
        context = ranks[seen]
        found_ranks = _ranks_of(order.keys, context, tokens[seen], self.vocab_size)
        discounted = np.where(found_ranks >= 0, order.weights[found_ranks], 0.0)
        probabilities = lower.copy()
        probabilities[seen] = (discounted + order.discount_sums[context] * lower[seen]) / order.totals[context]
        return probabilities


def _distinct(codes: Integers) -> tuple[Integers, Ranks, Integers]:
    """Return the sorted distinct values, the rank of each given value among them, and their counts."""
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    first = np.ones(len(codes), dtype=bool)
    first[1:] = sorted_codes[1:] != sorted_codes[:-1]
    starts = np.flatnonzero(first)
    keys = sorted_codes[starts]
    del sorted_codes  # free memory at its peak
    ranks = np.empty(len(codes), dtype=np.int32)
    ranks[order] = np.cumsum(first, dtype=np.int32) - 1
    return keys, ranks, np.diff(starts, append=len(codes))


def _ranks_of(keys: Integers, contexts: Integers, tokens: NDArray[np.integer], vocab_size: int) -> Integers:
    """Return the rank of each (context, token) pair, or -1 if it was never seen."""
    if not len(keys):
        return np.full(len(tokens), -1, dtype=np.int64)
    codes = contexts * vocab_size + tokens
    ranks = np.minimum(np.searchsorted(keys, codes), len(keys) - 1)
    return np.where((contexts >= 0) & (keys[ranks] == codes), ranks, -1)


def _smoothed(keys: Integers, counts: Integers, contexts: int, vocab_size: int) -> _Order:
    discounts = _discounts(counts)[np.minimum(counts, 3)]
    context = keys // vocab_size
    return _Order(
        keys=keys,
        weights=counts - discounts,
        totals=np.bincount(context, weights=counts, minlength=contexts).astype(np.float64),
        discount_sums=np.bincount(context, weights=discounts, minlength=contexts).astype(np.float64),
    )


def _discounts(counts: Integers) -> Floats:
    """Return the discounts for counts of 0, 1, 2, and 3 or more (modified Kneser-Ney, Chen and Goodman 1999).

    The estimates need n-grams of each of the counts 1, 2 and 3. If one of these counts is missing, all three discounts
    are 0.5; an estimate outside (0, count) is replaced by 0.5. Any discount in that range gives a probability
    distribution.
    """
    n1, n2, n3, n4 = (float(np.count_nonzero(counts == count)) for count in (1, 2, 3, 4))
    discounts = np.array([0.0, 0.5, 0.5, 0.5])
    if n1 and n2 and n3:
        y = n1 / (n1 + 2 * n2)
        for count, (count_n, count_next) in enumerate(((n1, n2), (n2, n3), (n3, n4)), start=1):
            estimate = count - (count + 1) * y * count_next / count_n
            if 0 < estimate < count:
                discounts[count] = estimate
    return discounts
