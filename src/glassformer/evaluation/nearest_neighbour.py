"""The predictor that only remembers: it answers a text with the answer of the training text most like it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from glassformer.evaluation.rouge import words

SHARE = 0.05
"""Words that stand in more than this share of the training texts are looked up only where no other is known."""


class Nearest:
    """Training examples, found again by the words that a text shares with them, rare words counting most.

    The likeness is the cosine of the texts' words weighted by ln(N / texts that have the word) (Sparck Jones 1972);
    of equals, the first one counts.

    Args:
        examples: (text, answer) pairs.
    """

    def __init__(self, examples: Iterable[tuple[str, str]]) -> None:
        self.answers: list[str] = []
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        bags: list[frozenset[str]] = []
        for number, (text, answer) in enumerate(examples):
            bag = frozenset(words(text))
            for word in bag:
                self._places[word].append(number)
            bags.append(bag)
            self.answers.append(answer)
        self._weight = {word: math.log((1 + len(bags)) / len(at)) for word, at in self._places.items()}
        self._length = [math.sqrt(sum(self._weight[word] ** 2 for word in bag)) or 1.0 for bag in bags]

    def answer(self, text: str) -> str:
        """The answer of the most similar text; that of the first one where no word is known."""
        known = [word for word in set(words(text)) if word in self._places]
        rare = [word for word in known if len(self._places[word]) <= max(20, SHARE * len(self.answers))] or known
        shared: defaultdict[int, float] = defaultdict(float)
        for word in rare:
            for number in self._places[word]:
                shared[number] += self._weight[word] ** 2
        best = max(shared, key=lambda number: (shared[number] / self._length[number], -number), default=0)
        return self.answers[best]
