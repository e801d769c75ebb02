"""`refrains`: pieces of stories, each again and again: looking back pays, and so does looking at the previous token.

In `repeats` nothing but looking back pays at all. Here letters follow letters as in English, so a head that looks at
the previous token is of use by itself, before it serves an induction head (Olsson et al. 2022, argument 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from glassformer.corpora.corpus import TEXT_TASKS, below, generator
from glassformer.corpora.stories import Stories


@dataclass(frozen=True)
class Refrains:
    """A piece of `shortest` to `longest` characters of a story, written `copies` times."""

    shortest: int = 8
    longest: int = 24
    copies: int = 4
    name: str = "refrains"
    summary: str = "pieces of stories, each four times over: looking back pays, and so does the previous letter"
    tasks: tuple[str, ...] = TEXT_TASKS

    def recommended(self, task: str) -> Mapping[str, str]:
        """Characters as tokens, cut anywhere: a row has several refrains."""
        return {
            "tokenizer.kind": "characters",
            "data.windows": "stream",
            "model.context": str(self.copies * self.longest + 1),
        }

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """A piece of story i, from anywhere in it, in document i."""
        for index, story in enumerate(Stories().documents(size, seed)):
            numbers = generator(seed, index)
            length = self.shortest + below(numbers, self.longest - self.shortest + 1)
            start = below(numbers, len(story) - length + 1)
            yield story[start : start + length] * self.copies

    def entropy(self) -> None:
        """Not known: a piece can come from many stories."""

    def log_probability(self, document: str) -> None:
        """Not known, likewise."""

    def mean_characters(self) -> float:
        """The mean piece, `copies` times."""
        return self.copies * (self.shortest + self.longest) / 2
