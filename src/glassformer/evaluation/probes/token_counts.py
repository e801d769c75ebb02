"""Unigram and bigram counts of a run's training text, for heuristics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from glassformer.evaluation.ngrams import KneserNey
from glassformer.evaluation.simple_predictors import counts_of

MOST = 20_000_000
"""Maximum number of tokens, from the beginning of the training text, whose bigrams are counted."""


class TokenCounts:
    """Unigram counts of a run's training split, and bigram counts of its first `MOST` tokens.

    Args:
        tokens: token ids, (N,); an end token follows every document.
        vocab_size: vocabulary size V.
        text_ids: ids of all tokens except special tokens and the unknown token, in ascending order.
    """

    def __init__(self, tokens: npt.NDArray[np.integer], vocab_size: int, text_ids: npt.NDArray[np.int64]) -> None:
        self.vocab_size = vocab_size
        self.text_ids = text_ids
        self.counts = counts_of(tokens, vocab_size)  # (V,)
        self._tokens = tokens[:MOST]
        codes = self._tokens[:-1].astype(np.int64) * vocab_size + self._tokens[1:]  # (N - 1,)
        self._pairs, self._pair_counts = np.unique(codes, return_counts=True)  # (pairs,)
        self._followers: npt.NDArray[np.int64] | None = None

    @property
    def majority(self) -> int:
        """Id of the most frequent token in `text_ids`."""
        return int(self.text_ids[self.counts[self.text_ids].argmax()])

    def follower(self, token: int) -> int:
        """Return the token that most often follows `token` in the first `MOST` tokens; `majority` if there is none."""
        if self._followers is None:
            self._followers = np.full(self.vocab_size, self.majority, dtype=np.int64)
            order = np.argsort(self._pair_counts, kind="stable")  # the most frequent successor is assigned last
            first, second = np.divmod(self._pairs[order], self.vocab_size)
            self._followers[first] = second
        return int(self._followers[token])

    def has(self, first: int, second: int) -> bool:
        """Return whether this bigram occurs in the first `MOST` tokens of the training text."""
        code = first * self.vocab_size + second
        index = int(np.searchsorted(self._pairs, code))
        return index < len(self._pairs) and int(self._pairs[index]) == code

    def unigram(self, rows: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float64]]:
        """Return ln p of each token of each row by unigram frequency, with one added to each count."""
        log_probabilities = np.log(self.counts + 1) - np.log(self.counts.sum() + self.vocab_size)  # (V,)
        return [log_probabilities[np.asarray(row, dtype=np.int64)] for row in rows]

    def bigram(self, rows: Sequence[Sequence[int]], start: int) -> list[npt.NDArray[np.float64]]:
        """Return ln p of each token of each row given the previous one, by modified Kneser-Ney.

        A `start` token precedes each row, so that rows are independent of each other.
        """
        model = KneserNey(self._tokens, self.vocab_size, order=2)
        joined = np.concatenate([np.array([start, *row], dtype=np.int64) for row in rows])
        log_probabilities = np.log(model.probabilities(joined))
        ends = np.cumsum([len(row) + 1 for row in rows])
        return [log_probabilities[end - len(row) : end] for row, end in zip(rows, ends.tolist(), strict=True)]
