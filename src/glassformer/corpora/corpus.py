"""Interfaces of generated corpora: documents with exact probabilities, pairs, labels, conversations, minimal pairs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

LEARNS_PAIRS: Mapping[str, str] = {
    "model.norm": "rmsnorm",
    "model.activation": "swiglu",
    "model.tied": "false",
    "train.optimizer": "muon",
    "train.learning_rate": "1e-2",
    "train.beta2": "0.98",
    "train.schedule": "linear",
    "train.warmup": "50",
    "train.batch": "64",
}
"""Settings with which small vocabularies of pairs are learnt in minutes. Places are learned ones: cross-attention must
know where in the source it looks, which rotary and relative places do not tell it."""
TEXT_TASKS = ("lm", "masked")
"""Tasks of a corpus of documents: to be continued, and to have gaps filled in."""


@runtime_checkable
class Generated(Protocol):
    """The interface of every generated corpus.

    Item `i` (document, pair, labelled text) is a pure function of `(seed, i)`: asking for more never changes the
    first ones. None has a line break or a tab inside.
    """

    @property
    def name(self) -> str:
        """Return the name for `glass train NAME`."""

    @property
    def summary(self) -> str:
        """One line that says what it holds."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return some of "lm", "masked", "classify", "translate", "summarize", "chat"; the first is the default."""

    def recommended(self, task: str) -> Mapping[str, str]:
        """Settings that suit it for this task, as `Config.with_changes` takes them."""


@runtime_checkable
class Corpus(Generated, Protocol):
    """A source of text that is made, not read, so that what a model can at best reach is known.

    All logarithms are natural; a document's end is part of what is counted (a reader who does not know the length has
    to guess it).
    """

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """The first `size` documents for this seed."""

    def entropy(self) -> float | None:
        """Exact mean of -log p(document), in nats per document; None where it is not known."""

    def log_probability(self, document: str) -> float | None:
        """Exact log p(document); minus infinity for a text it never makes; None where it is not known."""

    def mean_characters(self) -> float | None:
        """Exact mean length of a document, in characters; None where it is not known."""


@runtime_checkable
class PairCorpus(Generated, Protocol):
    """Sources, each with its one right target: to translate, or to summarise."""

    def pairs(self, size: int, seed: int) -> Iterator[tuple[str, str]]:
        """The first `size` pairs (source, target) for this seed."""

    def answer(self, source: str) -> str | None:
        """Return the one right target; None where this corpus has no such source."""


@runtime_checkable
class LabelledCorpus(Generated, Protocol):
    """Texts with a label drawn first, so that the best possible classifier is known."""

    def labelled(self, size: int, seed: int) -> Iterator[tuple[str, str]]:
        """The first `size` pairs (text, label) for this seed."""

    def posterior(self, text: str) -> Mapping[str, float]:
        """Exact p(label | text), for every label.

        Raises:
            GlassError: the corpus never makes this text.
        """

    def bayes_error(self) -> float:
        """Exact share of texts that the best possible classifier gets wrong."""


@runtime_checkable
class ConversationCorpus(Generated, Protocol):
    """Conversations whose answers are known."""

    def conversations(self, size: int, seed: int) -> Iterator[list[dict[str, str]]]:
        """The first `size` conversations for this seed: messages with `role` and `content`."""

    def answer(self, question: str, told: str) -> str | None:
        """Return the right answer to a question about what was told; None where nothing was told of it."""


@dataclass(frozen=True)
class MinimalPair:
    """Two texts with equally many words, of which a model that knows the rule finds `good` more likely."""

    good: str
    bad: str
    scored_from: int
    """Tokens count from this character on, in either text (0: all of them); at or before the first difference, or,
    for partial scoring, behind a difference whose length is the same."""
    cell: str
    """Number of the subject and of the last noun before the verb: SS, SP, PS or PP; which noun, in `coreference`; how
    far back, in `brackets`."""
    attractors: int
    """Nouns between subject and verb whose number is not the subject's; in `brackets` 1 where the one opened last is of
    another kind than the one to close."""
    twin: int
    """Pairs of the same number belong together."""


@runtime_checkable
class MinimalPairCorpus(Corpus, Protocol):
    """Documents to train on, and pairs that ask whether a rule was learnt; of words, with combinations never trained
    on."""

    def minimal_pairs(self, size: int, seed: int) -> Iterator[MinimalPair]:
        """The first `size` pairs for this seed."""


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
