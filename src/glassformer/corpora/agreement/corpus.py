"""The corpus `agreement`: documents, their exact probability, and minimal pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from glassformer.base.errors import GlassError
from glassformer.base.wording import counted, span
from glassformer.corpora.agreement.exact import FRONTED, kinds, mean_length, negative_log_probability, parse
from glassformer.corpora.agreement.items import NUMBERS, draw_item, longest_chain
from glassformer.corpora.corpus import TEXT_TASKS, MinimalPair, below, generator

PAIRS_FROM = 1 << 32
"""First index of the random generators of minimal pairs; documents start at 0."""
CELLS = ("SS", "SP", "PS", "PP")


@dataclass(frozen=True)
class Agreement:
    """The corpus `agreement`: sentences, and minimal pairs.

    Args:
        most: maximum number of nouns in the chain of a document; all numbers from 0 to `most` are equally likely.

    Raises:
        GlassError: `most` is negative, or some subject has too few different nouns for such a chain.
    """

    most: int = 4
    name: str = "agreement"
    summary: str = "verbs that agree with distant subjects: the keys to the cabinet are old; minimal pairs"
    tasks: tuple[str, ...] = TEXT_TASKS

    def __post_init__(self) -> None:
        _refuse_length(self.most, 0, held=False)

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return settings with words as tokens and one sentence per row."""
        return {"tokenizer.kind": "words", "data.windows": "documents", "model.context": "40"}

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """Yield one sentence per document; every noun is singular or plural with equal probability."""
        for index in range(size):
            numbers = generator(seed, index)
            nouns = below(numbers, self.most + 1)
            item = draw_item(numbers, nouns, numbers.random() < FRONTED, held=False)
            subject, front, *chain = (NUMBERS[below(numbers, 2)] for _ in range(nouns + 2))
            yield item.text(subject, "".join(chain), front, subject)

    def minimal_pairs(
        self, size: int, seed: int, held: bool = True, nouns: Sequence[int] = (1, 2, 3, 4)
    ) -> Iterator[MinimalPair]:
        """Yield minimal pairs; pair 4 i + k belongs to group i and has the cell `CELLS[k]`.

        Args:
            size: number of pairs; balanced over all conditions if it is a multiple of 16 len(nouns).
            seed: random seed.
            held: whether to use held-out combinations of nouns; False: combinations that occur in documents.
            nouns: lengths of the chains, used in turn; they may be larger than `most`.

        Raises:
            GlassError: a chain is empty, or longer than the available nouns allow.
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
        """Return the exact mean of -ln p in nats per document, from the probabilities of all kinds of sentences."""
        return math.fsum(
            probability * negative_log_probability(kind, self.most) for kind, probability in kinds(self.most)
        )

    def log_probability(self, document: str) -> float:
        """Return ln p of a document by parsing it; minus infinity for other text, such as one with a wrong verb."""
        kind = parse(document, self.most)
        return -math.inf if kind is None else -negative_log_probability(kind, self.most)

    def mean_characters(self) -> float:
        """Return the exact mean number of characters of a document."""
        return math.fsum(probability * mean_length(kind) for kind, probability in kinds(self.most))


def _refuse_length(nouns: int, fewest: int, held: bool) -> None:
    if not fewest <= nouns <= longest_chain(held):
        raise GlassError(
            f"a sentence with {counted(nouns, 'nouns')} in the chain is not possible",
            f"Give a number of nouns: {span(fewest, longest_chain(held))}.",
        )
