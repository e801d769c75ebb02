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
"""Settings with which a small model learns a corpus with a small vocabulary in minutes. They keep the default of
`model.positions`, learned, because cross-attention needs the positions of source tokens, which rotary and relative
positions do not provide."""
TEXT_TASKS = ("lm", "masked")
"""Tasks of a corpus of documents: language modelling and masked language modelling."""


@runtime_checkable
class Generated(Protocol):
    """Interface of every generated corpus.

    Item `i` (document, pair, labelled text, conversation) is a pure function of `(seed, i)`, so a larger size does not
    change the first items. No item contains a line break or a tab.
    """

    @property
    def name(self) -> str:
        """Return the name for `glass train NAME`."""

    @property
    def summary(self) -> str:
        """Return the one-line description that `glass data list` prints."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return the supported tasks (such as "lm", "classify" or "translate"), with the default first."""

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return the recommended settings for a task, in the form that `Config.with_changes` accepts."""


@runtime_checkable
class Corpus(Generated, Protocol):
    """Interface of a generated corpus of documents; for most such corpora, the best possible loss is known.

    All logarithms are natural. The probability of a document includes its end, because a model must also predict the
    length.
    """

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """Yield the first `size` documents for this seed."""

    def entropy(self) -> float | None:
        """Return the exact mean of -ln p(document), in nats per document; None if not known."""

    def log_probability(self, document: str) -> float | None:
        """Return the exact ln p(document); minus infinity for text outside the corpus; None if not known."""

    def mean_characters(self) -> float | None:
        """Return the exact mean length of a document in characters; None if not known."""


@runtime_checkable
class PairCorpus(Generated, Protocol):
    """Interface of a generated corpus of sources, each with exactly one correct target."""

    def pairs(self, size: int, seed: int) -> Iterator[tuple[str, str]]:
        """Yield the first `size` pairs (source, target) for this seed."""

    def answer(self, source: str) -> str | None:
        """Return the correct target of a source; None for a source outside the corpus."""


@runtime_checkable
class LabelledCorpus(Generated, Protocol):
    """Interface of a generated corpus of labelled texts, whose best possible classifier is known."""

    def labelled(self, size: int, seed: int) -> Iterator[tuple[str, str]]:
        """Yield the first `size` pairs (text, label) for this seed."""

    def posterior(self, text: str) -> Mapping[str, float]:
        """Return the exact p(label | text) for every label.

        Raises:
            GlassError: the corpus cannot generate this text.
        """

    def bayes_error(self) -> float:
        """Return the exact error rate of the best possible classifier."""


@runtime_checkable
class ConversationCorpus(Generated, Protocol):
    """Interface of a generated corpus of conversations with known answers."""

    def conversations(self, size: int, seed: int) -> Iterator[list[dict[str, str]]]:
        """Yield the first `size` conversations for this seed: lists of messages with `role` and `content`."""

    def answer(self, question: str, told: str) -> str | None:
        """Return the correct answer to a question about the text `told`; None if the text does not answer it."""


@dataclass(frozen=True)
class MinimalPair:
    """Two texts with the same number of words; a model that knows the rule assigns `good` the higher probability."""

    good: str
    bad: str
    scored_from: int
    """Character from which tokens of both texts are scored (0: all tokens). It is at or before the first difference or,
    for partial scoring, after a difference that has the same length in both texts."""
    cell: str
    """Condition of the pair. In `agreement`, the numbers of the subject and of the last noun before the verb: SS, SP,
    PS or PP; in `coreference`, the role of the correct noun; in `brackets`, the range of the distance; in
    `pronouns-bn`, the order of subject and object."""
    attractors: int
    """In `agreement`, the number of nouns between subject and verb whose grammatical number is not the subject's; in
    `brackets`, 1 if the bracket opened last and the one to close differ in kind, otherwise 0; in the other
    corpora, 0."""
    twin: int
    """Number of the group; pairs with the same number are twins."""


@runtime_checkable
class MinimalPairCorpus(Corpus, Protocol):
    """Interface of a generated corpus of documents with minimal pairs that test whether a model has learned a rule.

    Unless requested otherwise, minimal pairs of sentences contain combinations of words that are held out from the
    documents.
    """

    def minimal_pairs(self, size: int, seed: int) -> Iterator[MinimalPair]:
        """Yield the first `size` minimal pairs for this seed."""


def generator(seed: int, index: int) -> random.Random:
    """Return the random generator of item `index`.

    Use only its method `random`, which returns the same numbers in every version of Python.
    """
    return random.Random((seed << 64) | index)


def below(numbers: random.Random, limit: int) -> int:
    """Draw an integer from 0 to `limit` - 1, all equally likely."""
    return int(numbers.random() * limit)


def letters(numbers: random.Random, alphabet: str, length: int) -> str:
    """Draw a string of `length` independent uniform characters of `alphabet`."""
    return "".join(alphabet[below(numbers, len(alphabet))] for _ in range(length))
