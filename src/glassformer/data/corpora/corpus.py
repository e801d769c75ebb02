"""What every generated corpus offers: documents, and the exact probability of each."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Protocol


class Corpus(Protocol):
    """A source of text that is made, not read, so that what a model can at best reach is known.

    Document `i` is a pure function of `(seed, i)`: asking for more documents never changes the first ones. All
    logarithms are natural; a document's end is part of what is counted (a reader who does not know the length has
    to guess it).
    """

    @property
    def name(self) -> str:
        """What `glass train NAME` calls it."""

    @property
    def summary(self) -> str:
        """One line that says what it holds."""

    @property
    def recommended(self) -> Mapping[str, str]:
        """Settings that suit it, as `Config.with_changes` takes them."""

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """The first `size` documents for this seed; none has a line break inside."""

    def entropy(self) -> float | None:
        """Exact mean of -log p(document), in nats per document; None where it is not known."""

    def log_probability(self, document: str) -> float | None:
        """Exact log p(document); minus infinity for a text it never makes; None where it is not known."""

    def mean_characters(self) -> float | None:
        """Exact mean length of a document, in characters; None where it is not known."""


def generator(seed: int, index: int) -> random.Random:
    """The random numbers of document `index`.

    Only `Random.random` is used with it: Python promises that this method gives the same numbers in every version.
    """
    return random.Random((seed << 64) | index)


def below(numbers: random.Random, limit: int) -> int:
    """A whole number from 0 to `limit` - 1, all equally likely."""
    return int(numbers.random() * limit)


def letters(numbers: random.Random, alphabet: str, length: int) -> str:
    """`length` independent uniform characters of `alphabet`."""
    return "".join(alphabet[below(numbers, len(alphabet))] for _ in range(length))
