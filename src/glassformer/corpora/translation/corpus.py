"""`translation` in all directions: pairs sampled from the grammar, and the one correct translation of each source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from glassformer.corpora.corpus import LEARNS_PAIRS, generator
from glassformer.corpora.synchronous import Derivation
from glassformer.corpora.translation.clauses import translation_grammar
from glassformer.corpora.translation.spelling import split, write

FEWEST = 5
"""Minimum number of words in an English sentence."""
MOST = 25
"""Maximum number of words in a sentence of any language."""


@dataclass(frozen=True)
class Translation:
    """A corpus of sentences in one language with their translations into another.

    Args:
        name: name of the corpus.
        source: source language: "english", "french" or "bangla".
        target: target language.
    """

    name: str
    source: str
    target: str
    tasks: tuple[str, ...] = ("translate",)

    @property
    def summary(self) -> str:
        """Return the one-line description that `glass data list` prints."""
        return f"{self.source.title()} to {self.target.title()} from one grammar: distant agreement, one correct answer"

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return settings with words as tokens, and a small model that learns the task in minutes."""
        return {
            **LEARNS_PAIRS,
            "tokenizer.kind": "words",
            "model.context": "64",
            "model.layers": "2",
            "model.width": "128",
            "data.size": "60000",
            "train.steps": "2000" if self.source == "bangla" else "1000",  # harder: Bangla pronouns have no gender
        }

    def pairs(self, size: int, seed: int) -> Iterator[tuple[str, str]]:
        """Yield (source, target) pairs; for the same seed, all directions have the same sentences."""
        for index in range(size):
            derivation = draw(seed, index)
            yield (
                write(derivation.words(self.source), self.source),
                write(derivation.words(self.target), self.target),
            )

    def answer(self, source: str) -> str | None:
        """Return the translation of a source by parsing it; None for text outside the corpus."""
        for derivation in readings(source, self.source):
            return write(derivation.words(self.target), self.target)
        return None


def draw(seed: int, index: int) -> Derivation:
    """Return derivation `index`: the first derivation of an allowed length from the random generator of `index`."""
    numbers = generator(seed, index)
    while True:
        derivation = translation_grammar().draw(numbers)
        if _has_allowed_length(derivation):
            return derivation


def _has_allowed_length(derivation: Derivation) -> bool:
    english, *others = (
        sum(word != "," for word in derivation.words(language)) for language in ("english", "french", "bangla")
    )
    return FEWEST <= english <= MOST and max(others) <= MOST


def readings(text: str, language: str) -> list[Derivation]:
    """Return every derivation of an allowed length that gives exactly this text."""
    derivations = translation_grammar().parse(split(text, language), language)
    return [
        derivation
        for derivation in derivations
        if _has_allowed_length(derivation) and write(derivation.words(language), language) == text
    ]


TRANSLATIONS = (
    Translation("translation", "english", "french"),
    Translation("translation-fr-en", "french", "english"),
    Translation("translation-en-bn", "english", "bangla"),
    Translation("translation-bn-en", "bangla", "english"),
)
