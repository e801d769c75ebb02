"""`copy`, `reverse`, `sort`: "input=answer" lines whose answer follows from the input alone.

The input is drawn uniformly from the strings of a uniformly drawn length, so a line's probability is that of its
input, and everything after "=" costs a perfect reader nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from glassformer.corpora.corpus import LEARNS_PAIRS, TEXT_TASKS, below, generator, letters

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789"


@dataclass(frozen=True)
class StringTask:
    """Lines of one such task.

    Args:
        name: of the corpus.
        summary: one line.
        change: what stands after "=", from what stands before it.
        alphabet: the characters of the input.
        longest: inputs in documents have 1 to this many characters.
        longest_source: inputs in pairs have 1 to this many.
    """

    name: str
    summary: str
    change: Callable[[str], str]
    alphabet: str = ALPHABET
    longest: int = 12
    longest_source: int = 10
    tasks: tuple[str, ...] = (*TEXT_TASKS, "translate")

    def recommended(self, task: str) -> Mapping[str, str]:
        """Characters as tokens, one line or pair per row."""
        settings = {"tokenizer.kind": "characters"}
        if task == "translate":
            sizes = {"model.context": str(self.longest_source + 2), "model.layers": "2", "model.width": "64"}
            return {**LEARNS_PAIRS, **settings, **sizes, "train.steps": "800"}
        return settings | {"data.windows": "documents", "model.context": str(2 * self.longest + 2)}

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """One line per document."""
        for index in range(size):
            numbers = generator(seed, index)
            given = letters(numbers, self.alphabet, 1 + below(numbers, self.longest))
            yield f"{given}={self.change(given)}"

    def pairs(self, size: int, seed: int) -> Iterator[tuple[str, str]]:
        """Return the text before "=", and the text after it."""
        for index in range(size):
            numbers = generator(seed, index)
            given = letters(numbers, self.alphabet, 1 + below(numbers, self.longest_source))
            yield given, self.change(given)

    def answer(self, source: str) -> str | None:
        """Return the text after "="; longer sources than those of `pairs` test a model beyond its training."""
        return self.change(source) if source and set(source) <= set(self.alphabet) else None

    def entropy(self) -> float:
        """Sum the entropies of the length, and of the input's characters."""
        return math.log(self.longest) + (self.longest + 1) / 2 * math.log(len(self.alphabet))

    def log_probability(self, document: str) -> float:
        """Minus infinity where the answer is wrong."""
        given, equals, answer = document.partition("=")
        right = equals and 1 <= len(given) <= self.longest and set(given) <= set(self.alphabet)
        if not right or answer != self.change(given):
            return -math.inf
        return -math.log(self.longest) - len(given) * math.log(len(self.alphabet))

    def mean_characters(self) -> float:
        """The input twice, and "="."""
        return self.longest + 2.0


def _same(given: str) -> str:
    return given


def _reversed(given: str) -> str:
    return given[::-1]


def _sorted(given: str) -> str:
    return "".join(sorted(given))


COPY = StringTask("copy", "letters=the same letters: hqz=hqz", _same)
REVERSE = StringTask("reverse", "letters=the letters backwards: hqz=zqh", _reversed)
SORT = StringTask("sort", "digits=the digits in order: 5302=0235", _sorted, alphabet=DIGITS)
