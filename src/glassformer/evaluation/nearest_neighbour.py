"""Nearest-neighbour baseline: return the answer of the most similar training text."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from glassformer.evaluation.rouge import words

SHARE = 0.05
"""A word that occurs in more than 20 training texts, and in more than this fraction of them, is looked up only if the
query text has no rarer known word."""


class Nearest:
    """Nearest-neighbour search over training examples by the words of their texts.

    The similarity is the cosine of the texts' word sets, weighted by ln((N + 1) / number of texts with the word)
    (Sparck Jones 1972), where only words that are looked up count as shared words (see `SHARE`); ties go to the first
    example.

    Args:
        examples: (text, answer) pairs.
    """

    def __init__(self, examples: Iterable[tuple[str, str]]) -> None:
        self.answers: list[str] = []
        self._postings: defaultdict[str, list[int]] = defaultdict(list)
        bags: list[frozenset[str]] = []
        for number, (text, answer) in enumerate(examples):
            bag = frozenset(words(text))
            for word in bag:
                self._postings[word].append(number)
            bags.append(bag)
            self.answers.append(answer)
        self._weight = {word: math.log((1 + len(bags)) / len(indices)) for word, indices in self._postings.items()}
        self._length = [math.sqrt(sum(self._weight[word] ** 2 for word in bag)) or 1.0 for bag in bags]

    def answer(self, text: str) -> str:
        """Return the answer of the most similar training text; the first training answer if no word is known."""
        known_words = [word for word in set(words(text)) if word in self._postings]
        rare_words = [
            word for word in known_words if len(self._postings[word]) <= max(20, SHARE * len(self.answers))
        ] or known_words
        similarity: defaultdict[int, float] = defaultdict(float)
        for word in rare_words:
            for number in self._postings[word]:
                similarity[number] += self._weight[word] ** 2
        best = max(similarity, key=lambda number: (similarity[number] / self._length[number], -number), default=0)
        return self.answers[best]
