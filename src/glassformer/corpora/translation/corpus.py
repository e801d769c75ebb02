"""`translation` and its other directions: pairs drawn from the grammar, and the one right answer to any source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from glassformer.corpora.corpus import LEARNS_PAIRS, generator
from glassformer.corpora.synchronous import Derivation
from glassformer.corpora.translation.clauses import translation_grammar
from glassformer.corpora.translation.spelling import split, write

FEWEST = 5
"""Words that an English sentence has at least."""
MOST = 25
"""Words that a sentence of any language has at most."""


@dataclass(frozen=True)
class Translation:
    """Sentences in one language, each with its translation.

    Args:
        name: of the corpus.
        source: the language to translate from: "english", "french" or "bangla".
        target: the language to translate into.
    """

    name: str
    source: str
    target: str
    tasks: tuple[str, ...] = ("translate",)

    @property
    def summary(self) -> str:
        """One line."""
        return f"{self.source.title()} to {self.target.title()} from one grammar: agreement from afar, one right answer"

    def recommended(self, task: str) -> Mapping[str, str]:
        """Words as tokens."""
        return {
            **LEARNS_PAIRS,
            "tokenizer.kind": "words",
            "model.context": "64",
            "model.layers": "2",
            "model.width": "128",
            "data.size": "60000",
            "train.steps": "2000" if self.source == "bangla" else "1000",  # its pronouns have no gender
        }

    def pairs(self, size: int, seed: int) -> Iterator[tuple[str, str]]:
        """All directions have the same sentences for the same seed."""
        for index in range(size):
            derivation = draw(seed, index)
            yield (
                write(derivation.words(self.source), self.source),
                write(derivation.words(self.target), self.target),
            )

    def answer(self, source: str) -> str | None:
        """By reading the source back into the derivation that made it."""
        for derivation in readings(source, self.source):
            return write(derivation.words(self.target), self.target)
        return None


def draw(seed: int, index: int) -> Derivation:
    """Derivation `index`: the first one of fitting length."""
    numbers = generator(seed, index)
    while True:
        derivation = translation_grammar().draw(numbers)
        if _fits(derivation):
            return derivation


def _fits(derivation: Derivation) -> bool:
    english, *others = (
        sum(word != "," for word in derivation.words(language)) for language in ("english", "french", "bangla")
    )
    return FEWEST <= english <= MOST and max(others) <= MOST


def readings(text: str, language: str) -> list[Derivation]:
    """Every derivation that is written as exactly this text."""
    found = translation_grammar().read(split(text, language), language)
    return [one for one in found if _fits(one) and write(one.words(language), language) == text]


TRANSLATIONS = (
    Translation("translation", "english", "french"),
    Translation("translation-fr-en", "french", "english"),
    Translation("translation-en-bn", "english", "bangla"),
    Translation("translation-bn-en", "bangla", "english"),
)
