"""`refrains`: repeated pieces of stories, which both induction heads and previous-token heads help to predict.

In `repeats`, symbols are random, so only induction predicts them. In `refrains`, letters follow each other as in
English, so a previous-token head is useful by itself, before an induction head uses it (Olsson et al. 2022, argument
1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from glassformer.corpora.corpus import TEXT_TASKS, below, generator
from glassformer.corpora.stories import Stories


@dataclass(frozen=True)
class Refrains:
    """The corpus `refrains`: a piece of `shortest` to `longest` characters of a story, repeated `copies` times."""

    shortest: int = 8
    longest: int = 24
    copies: int = 4
    name: str = "refrains"
    summary: str = "pieces of stories, each repeated four times: for induction heads and previous-token heads"
    tasks: tuple[str, ...] = TEXT_TASKS

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return settings with characters as tokens and stream windows, so that a row has parts of several refrains."""
        return {
            "tokenizer.kind": "characters",
            "data.windows": "stream",
            "model.context": str(self.copies * self.longest + 1),
        }

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """Yield one refrain per document: document i repeats a random piece of story i."""
        for index, story in enumerate(Stories().documents(size, seed)):
            numbers = generator(seed, index)
            length = self.shortest + below(numbers, self.longest - self.shortest + 1)
            start = below(numbers, len(story) - length + 1)
            yield story[start : start + length] * self.copies

    def entropy(self) -> None:
        """Return None: the entropy is not known, because a piece can come from many stories."""

    def log_probability(self, document: str) -> None:
        """Return None: the probability is not known, because a piece can come from many stories."""

    def mean_characters(self) -> float:
        """Return the mean length of a document: `copies` times the mean length of a piece."""
        return self.copies * (self.shortest + self.longest) / 2
