"""`random` and `repeats`: uniform symbols, alone and repeated.

Nothing can predict `random` better than ln 64 nats per symbol: a model that seems to looks at its own answers.
In `repeats` everything after the first copy of a segment can be known by looking back (induction: Olsson et al. 2022).
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
    """Documents of a fixed number of independent uniform symbols."""

    length: int = 1000
    name: str = "random"
    summary: str = "uniform random characters of 64: nothing can beat ln 64 nats each"
    tasks: tuple[str, ...] = TEXT_TASKS

    def recommended(self, task: str) -> Mapping[str, str]:
        """Characters as tokens, cut anywhere: inside a row, the end of a document cannot be foreseen."""
        return {"tokenizer.kind": "characters", "data.windows": "stream", "data.size": "4000"}

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """One row of symbols per document."""
        return (letters(generator(seed, index), SYMBOLS, self.length) for index in range(size))

    def entropy(self) -> float:
        """ln 64 for each symbol; the length is always the same."""
        return self.length * math.log(len(SYMBOLS))

    def log_probability(self, document: str) -> float:
        """Return ln P, the same for every possible document."""
        possible = len(document) == self.length and set(document) <= set(SYMBOLS)
        return -self.entropy() if possible else -math.inf

    def mean_characters(self) -> float:
        """All have the same length."""
        return float(self.length)


@dataclass(frozen=True)
class Repeats:
    """A segment of `shortest` to `longest` uniform symbols, written `copies` times."""

    shortest: int = 8
    longest: int = 24
    copies: int = 4
    name: str = "repeats"
    summary: str = "random characters, the same again and again: what an induction head is for"
    tasks: tuple[str, ...] = TEXT_TASKS

    def recommended(self, task: str) -> Mapping[str, str]:
        """Characters as tokens, one document per row."""
        return {
            "tokenizer.kind": "characters",
            "data.windows": "documents",
            "model.context": str(self.copies * self.longest + 1),
        }

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """One repeated segment per document."""
        for index in range(size):
            numbers = generator(seed, index)
            length = self.shortest + below(numbers, self.longest - self.shortest + 1)
            yield letters(numbers, SYMBOLS, length) * self.copies

    def entropy(self) -> float:
        """Sum the entropies of the segment's length and symbols; the other copies add nothing."""
        return math.log(self._lengths) + (self.shortest + self.longest) / 2 * math.log(len(SYMBOLS))

    def log_probability(self, document: str) -> float:
        """Read back from the document's length: a whole number of copies of one segment."""
        length = len(document) // self.copies
        possible = self.shortest <= length <= self.longest and set(document) <= set(SYMBOLS)
        if not possible or document != document[:length] * self.copies:
            return -math.inf
        return -math.log(self._lengths) - length * math.log(len(SYMBOLS))

    def mean_characters(self) -> float:
        """The mean segment, `copies` times."""
        return self.copies * (self.shortest + self.longest) / 2

    @property
    def _lengths(self) -> int:
        return self.longest - self.shortest + 1
