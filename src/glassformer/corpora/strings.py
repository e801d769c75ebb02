"""`copy`, `reverse`, `sort`: "input=answer" lines whose answer is a function of the input.

The length of the input and each of its characters are uniformly random. A line has the same probability as its input,
so a perfect model has no loss on the characters after "=".
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
    """A corpus of lines, or of pairs, for one string function.

    Args:
        name: name of the corpus.
        summary: one-line description.
        change: function from the text before "=" to the text after it.
        alphabet: characters of the input.
        longest: maximum length of an input in documents; the minimum is 1.
        longest_source: maximum length of an input in pairs; the minimum is 1.
    """

    name: str
    summary: str
    change: Callable[[str], str]
    alphabet: str = ALPHABET
    longest: int = 12
    longest_source: int = 10
    tasks: tuple[str, ...] = (*TEXT_TASKS, "translate")

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return settings with characters as tokens and one line or pair per row."""
        settings = {"tokenizer.kind": "characters"}
        if task == "translate":
            sizes = {"model.context": str(self.longest_source + 2), "model.layers": "2", "model.width": "64"}
            return {**LEARNS_PAIRS, **settings, **sizes, "train.steps": "800"}
        return settings | {"data.windows": "documents", "model.context": str(2 * self.longest + 2)}

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """Yield one line per document."""
        for index in range(size):
            numbers = generator(seed, index)
            text = letters(numbers, self.alphabet, 1 + below(numbers, self.longest))
            yield f"{text}={self.change(text)}"

    def pairs(self, size: int, seed: int) -> Iterator[tuple[str, str]]:
        """Yield (input, answer) pairs."""
        for index in range(size):
            numbers = generator(seed, index)
            text = letters(numbers, self.alphabet, 1 + below(numbers, self.longest_source))
            yield text, self.change(text)

    def answer(self, source: str) -> str | None:
        """Return the answer to an input of any length; None if it is empty or has a character outside the alphabet."""
        return self.change(source) if source and set(source) <= set(self.alphabet) else None

    def entropy(self) -> float:
        """Return the entropy of the length plus the entropy of the input's characters, in nats per document."""
        return math.log(self.longest) + (self.longest + 1) / 2 * math.log(len(self.alphabet))

    def log_probability(self, document: str) -> float:
        """Return ln p of a document; minus infinity for text outside the corpus, such as a wrong answer."""
        text, equals, answer = document.partition("=")
        is_valid = equals and 1 <= len(text) <= self.longest and set(text) <= set(self.alphabet)
        if not is_valid or answer != self.change(text):
            return -math.inf
        return -math.log(self.longest) - len(text) * math.log(len(self.alphabet))

    def mean_characters(self) -> float:
        """Return the mean length of a document: twice the mean length of an input, plus one character for "="."""
        return self.longest + 2.0


def _same(text: str) -> str:
    return text


def _reversed(text: str) -> str:
    return text[::-1]


def _sorted(text: str) -> str:
    return "".join(sorted(text))


COPY = StringTask("copy", "random letters and the same letters again: hqz=hqz", _same)
REVERSE = StringTask("reverse", "random letters and the same letters in reverse order: hqz=zqh", _reversed)
SORT = StringTask("sort", "random digits and the same digits in ascending order: 5302=0235", _sorted, alphabet=DIGITS)
