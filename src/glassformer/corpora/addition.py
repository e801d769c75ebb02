"""`addition`: lines such as "12+345=357".

Each number has 1, 2 or 3 digits with equal probability and is uniform among the numbers of that length, without leading
zeros (0 itself has one digit). There are few short sums, so some lines of a validation split also occur in training.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from glassformer.corpora.corpus import TEXT_TASKS, below, generator

LINE = re.compile(r"(0|[1-9][0-9]*)\+(0|[1-9][0-9]*)=(0|[1-9][0-9]*)")


@dataclass(frozen=True)
class Addition:
    """The corpus `addition`: sums of two non-negative integers of 1 to `digits` digits."""

    digits: int = 3
    name: str = "addition"
    summary: str = "sums of two numbers of up to three digits: 12+345=357"
    tasks: tuple[str, ...] = TEXT_TASKS

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return settings with characters as tokens and one line per row."""
        return {
            "tokenizer.kind": "characters",
            "data.windows": "documents",
            "model.context": str(3 * self.digits + 4),
        }

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """Yield one line per document."""
        for index in range(size):
            numbers = generator(seed, index)
            first, second = (self._number(1 + below(numbers, self.digits), numbers.random()) for _ in range(2))
            yield f"{first}+{second}={first + second}"

    def entropy(self) -> float:
        """Return twice the entropy of one number (its length and its value), in nats per document."""
        return 2 * (
            math.log(self.digits) + sum(math.log(count(length)) for length in range(1, self.digits + 1)) / self.digits
        )

    def log_probability(self, document: str) -> float:
        """Return ln p of a document; minus infinity for text outside the corpus, such as a wrong sum."""
        match = LINE.fullmatch(document)
        if (
            not match
            or max(len(match[1]), len(match[2])) > self.digits
            or int(match[1]) + int(match[2]) != int(match[3])
        ):
            return -math.inf
        return -sum(math.log(self.digits * count(len(number))) for number in (match[1], match[2]))

    def mean_characters(self) -> float:
        """Return the exact mean length of a line, including the extra digit of a sum that carries over."""
        total = 0.0
        for first in range(1, self.digits + 1):
            for second in range(1, self.digits + 1):
                total += first + second + 2 + max(first, second) + _carry_probability(first, second)
        return total / self.digits**2

    def _number(self, length: int, point: float) -> int:
        return _smallest(length) + int(point * count(length))


def count(length: int) -> int:
    """Return the number of integers with this many digits: 10, 90, 900, ..."""
    return 10 if length == 1 else 9 * 10 ** (length - 1)


def _smallest(length: int) -> int:
    return 0 if length == 1 else 10 ** (length - 1)


def _carry_probability(first: int, second: int) -> float:
    """Return the probability that the sum of numbers of these lengths has one digit more than the longer number."""
    short, long = sorted((first, second))
    low = _smallest(long)
    limit = 10**long
    # For each shorter number a, the longer numbers from limit - a up carry over.
    carries = sum(min(limit - low, a) for a in range(_smallest(short), _smallest(short) + count(short)))
    return carries / (count(short) * count(long))
