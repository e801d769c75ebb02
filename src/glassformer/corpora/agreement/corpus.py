"""`agreement`: documents, their exact probability, and minimal pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from glassformer.base.errors import GlassError
from glassformer.base.wording import counted, span
from glassformer.corpora.agreement.exact import FRONTED, cost, kinds, mean_length, read
from glassformer.corpora.agreement.items import NUMBERS, draw_item, longest_chain
from glassformer.corpora.corpus import TEXT_TASKS, MinimalPair, below, generator

PAIRS_FROM = 1 << 32
"""Minimal pairs take their random numbers from here on, documents from 0 on."""
CELLS = ("SS", "SP", "PS", "PP")


@dataclass(frozen=True)
class Agreement:
    """Sentences, and minimal pairs.

    Args:
        most: nouns in a chain of a document, at most; every number from 0 on is equally likely.

    Raises:
        GlassError: there are not so many different nouns for every subject.
    """

    most: int = 4
    name: str = "agreement"
    summary: str = "verbs agree with far subjects: the keys to the cabinet are old; minimal pairs"
    tasks: tuple[str, ...] = TEXT_TASKS

    def __post_init__(self) -> None:
        _refuse_length(self.most, 0, held=False)

    def recommended(self, task: str) -> Mapping[str, str]:
        """Words as tokens, one sentence per row."""
        return {"tokenizer.kind": "words", "data.windows": "documents", "model.context": "40"}

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """One sentence per document; every noun is singular or plural with equal chance."""
        for index in range(size):
            numbers = generator(seed, index)
            nouns = below(numbers, self.most + 1)
            item = draw_item(numbers, nouns, numbers.random() < FRONTED, held=False)
            subject, front, *chain = (NUMBERS[below(numbers, 2)] for _ in range(nouns + 2))
            yield item.text(subject, "".join(chain), front, subject)

    def minimal_pairs(
        self, size: int, seed: int, held: bool = True, nouns: Sequence[int] = (1, 2, 3, 4)
    ) -> Iterator[MinimalPair]:
        """Pair 4 i + k is twin i in cell k: a multiple of 4 x len(nouns) x 4 pairs is balanced in everything.

        Args:
            size: pairs.
            seed: of the words.
            held: combinations of nouns that no document has; False: only such as documents have, to compare.
            nouns: lengths of chains, in turn: 1 to 4, also where documents have shorter ones only.

        Raises:
            GlassError: a chain is empty, or longer than the nouns that are held out (or not) suffice for.
        """
        for length in nouns:
            _refuse_length(length, 1, held)
        for index in range(size):
            twin, cell = divmod(index, len(CELLS))
            numbers = generator(seed, PAIRS_FROM + twin)
            length = nouns[twin % len(nouns)]
            fronted = twin // len(nouns) % 4
            item = draw_item(numbers, length, fronted % 2 == 1, held)
            subject, other = tuple(CELLS[cell])
            wrong = "P" if subject == "S" else "S"
            front = wrong if fronted == 3 else subject
            good, bad = (item.text(subject, other * length, front, verb) for verb in (subject, wrong))
            yield MinimalPair(good, bad, 0, CELLS[cell], length if other != subject else 0, twin)

    def entropy(self) -> float:
        """The mean cost of a sentence over its subject, its frame, the length of its chain, and a noun in front."""
        return math.fsum(chance * cost(kind, self.most) for kind, chance in kinds(self.most))

    def log_probability(self, document: str) -> float:
        """By reading the sentence back; minus infinity also where the verb does not agree."""
        kind = read(document, self.most)
        return -math.inf if kind is None else -cost(kind, self.most)

    def mean_characters(self) -> float:
        """The mean over the same kinds of sentences, of each part by itself."""
        return math.fsum(chance * mean_length(kind) for kind, chance in kinds(self.most))


def _refuse_length(nouns: int, fewest: int, held: bool) -> None:
    if not fewest <= nouns <= longest_chain(held):
        raise GlassError(
            f"a chain of {counted(nouns, 'nouns')} was asked for", f"Give {span(fewest, longest_chain(held))}."
        )
