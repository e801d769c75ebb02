"""Corpora that are made, not read: what a model can at best reach on them is known exactly, but for a few."""

from __future__ import annotations

from types import MappingProxyType
from typing import TypeVar

from glassformer.base.errors import GlassError, nearest
from glassformer.corpora.addition import Addition
from glassformer.corpora.agreement.corpus import Agreement
from glassformer.corpora.brackets import Brackets
from glassformer.corpora.coreference import Coreference
from glassformer.corpora.corpus import (
    ConversationCorpus,
    Corpus,
    Generated,
    LabelledCorpus,
    MinimalPair,
    MinimalPairCorpus,
    PairCorpus,
)
from glassformer.corpora.noise import Repeats, UniformSymbols
from glassformer.corpora.recall import Recall
from glassformer.corpora.refrains import Refrains
from glassformer.corpora.stories import Stories
from glassformer.corpora.strings import COPY, REVERSE, SORT
from glassformer.corpora.summaries import Summaries
from glassformer.corpora.talk import Talk
from glassformer.corpora.topics import Topics
from glassformer.corpora.translation.corpus import TRANSLATIONS

_ALL: tuple[Generated, ...] = (
    Stories(),
    Repeats(),
    Refrains(),
    Recall(),
    Brackets(),
    COPY,
    REVERSE,
    SORT,
    Addition(),
    UniformSymbols(),
    *TRANSLATIONS,
    Summaries(),
    Topics(),
    Talk(),
    Talk("talk-held-out", held_out=True),
    Agreement(),
    Coreference(),
)
CORPORA = MappingProxyType({corpus.name: corpus for corpus in _ALL})
Kind = TypeVar("Kind")

__all__ = [
    "CORPORA",
    "ConversationCorpus",
    "Corpus",
    "Generated",
    "LabelledCorpus",
    "MinimalPair",
    "MinimalPairCorpus",
    "PairCorpus",
    "corpus_names",
    "find_conversation_corpus",
    "find_corpus",
    "find_labelled_corpus",
    "find_minimal_pair_corpus",
    "find_pair_corpus",
    "find_text_corpus",
]


def corpus_names() -> list[str]:
    """The names that `find_corpus` knows, in the order in which to show them."""
    return list(CORPORA)


def find_corpus(name: str) -> Generated:
    """The corpus of this name, whatever it is for.

    Raises:
        GlassError: there is none.
    """
    if name not in CORPORA:
        raise GlassError(f"there is no generated corpus {name!r}", nearest(name, CORPORA))
    return CORPORA[name]


def find_text_corpus(name: str) -> Corpus:
    """The corpus of this name, which has documents.

    Raises:
        GlassError: there is none, or it has no documents; the remedy names those that have.
    """
    return _find(name, Corpus, "documents")  # type: ignore[type-abstract]


def find_pair_corpus(name: str) -> PairCorpus:
    """The corpus of this name, which has pairs of source and target.

    Raises:
        GlassError: there is none, or it has no pairs; the remedy names those that have.
    """
    return _find(name, PairCorpus, "pairs of source and target")  # type: ignore[type-abstract]


def find_labelled_corpus(name: str) -> LabelledCorpus:
    """The corpus of this name, which has labelled texts.

    Raises:
        GlassError: there is none, or it has no labels; the remedy names those that have.
    """
    return _find(name, LabelledCorpus, "labels")  # type: ignore[type-abstract]


def find_conversation_corpus(name: str) -> ConversationCorpus:
    """The corpus of this name, which has conversations.

    Raises:
        GlassError: there is none, or it has no conversations; the remedy names those that have.
    """
    return _find(name, ConversationCorpus, "conversations")  # type: ignore[type-abstract]


def find_minimal_pair_corpus(name: str) -> MinimalPairCorpus:
    """The corpus of this name, which has minimal pairs.

    Raises:
        GlassError: there is none, or it has no minimal pairs; the remedy names those that have.
    """
    return _find(name, MinimalPairCorpus, "minimal pairs")  # type: ignore[type-abstract]


def _find(name: str, kind: type[Kind], what: str) -> Kind:
    corpus = find_corpus(name)
    if isinstance(corpus, kind):
        return corpus
    able = ", ".join(other for other, found in CORPORA.items() if isinstance(found, kind))
    raise GlassError(f"the corpus {name} has no {what}", f"Corpora with {what}: {able}.")
