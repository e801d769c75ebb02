"""`random` and `repeats`: uniform random symbols, without and with repetition.

No model can predict new text of `random` with less than ln 64 nats per symbol on average; a lower loss shows that the
model sees its targets. In `repeats`, once the second copy of a segment has begun, the rest can be predicted by
induction (Olsson et al. 2022).
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from glassformer.corpora.corpus import TEXT_TASKS, below, generator, letters

SYMBOLS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+-"


@dataclass(frozen=True)
class UniformSymbols:
    """The corpus `random`: documents of a fixed number of independent uniform symbols."""

    length: int = 1000
    name: str = "random"
    summary: str = "uniform random characters out of 64: no model can do better than ln 64 nats per character"
    tasks: tuple[str, ...] = TEXT_TASKS

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return settings with characters as tokens and stream windows, in which document ends are unpredictable."""
        return {"tokenizer.kind": "characters", "data.windows": "stream", "data.size": "4000"}

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """Yield one random string per document."""
        return (letters(generator(seed, index), SYMBOLS, self.length) for index in range(size))

    def entropy(self) -> float:
        """Return the entropy in nats per document: ln 64 for each symbol; the length is fixed."""
        return self.length * math.log(len(SYMBOLS))

    def log_probability(self, document: str) -> float:
        """Return ln p, which is the same for every possible document; minus infinity for other text."""
        possible = len(document) == self.length and set(document) <= set(SYMBOLS)
        return -self.entropy() if possible else -math.inf

    def mean_characters(self) -> float:
        """Return the length of every document."""
        return float(self.length)


@dataclass(frozen=True)
class Repeats:
    """The corpus `repeats`: a segment of `shortest` to `longest` uniform symbols, repeated `copies` times."""

    shortest: int = 8
    longest: int = 24
    copies: int = 4
    name: str = "repeats"
    summary: str = "repeated segments of random characters, which an induction head can predict"
    tasks: tuple[str, ...] = TEXT_TASKS

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return settings with characters as tokens and one document per row."""
        return {
            "tokenizer.kind": "characters",
            "data.windows": "documents",
            "model.context": str(self.copies * self.longest + 1),
        }

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """Yield one repeated segment per document."""
        for index in range(size):
            numbers = generator(seed, index)
            length = self.shortest + below(numbers, self.longest - self.shortest + 1)
            yield letters(numbers, SYMBOLS, length) * self.copies

    def entropy(self) -> float:
        """Return the entropy of the segment's length and symbols in nats; the other copies add nothing."""
        return math.log(self._lengths) + (self.shortest + self.longest) / 2 * math.log(len(SYMBOLS))

    def log_probability(self, document: str) -> float:
        """Return ln p of a document; minus infinity unless it repeats a possible segment `copies` times."""
        length = len(document) // self.copies
        possible = self.shortest <= length <= self.longest and set(document) <= set(SYMBOLS)
        if not possible or document != document[:length] * self.copies:
            return -math.inf
        return -math.log(self._lengths) - length * math.log(len(SYMBOLS))

    def mean_characters(self) -> float:
        """Return the mean length of a document: `copies` times the mean length of a segment."""
        return self.copies * (self.shortest + self.longest) / 2

    @property
    def _lengths(self) -> int:
        return self.longest - self.shortest + 1
