"""Generated corpora of documents, pairs, labelled texts and conversations, with names for `glass train NAME`.

For most corpora, the best possible loss or accuracy is known exactly.
"""

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
from glassformer.corpora.numbers import Numbers
from glassformer.corpora.pronouns import Pronouns
from glassformer.corpora.recall import Recall
from glassformer.corpora.refrains import Refrains
from glassformer.corpora.senses import Senses
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
    Numbers(),
    *TRANSLATIONS,
    Summaries(),
    Topics(),
    Talk(),
    Talk("talk-held-out", held_out=True),
    Agreement(),
    Coreference(),
    Pronouns(),
    Senses(),
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
    """Return the names of all generated corpora, in display order."""
    return list(CORPORA)


def find_corpus(name: str) -> Generated:
    """Return the corpus with this name, of any kind.

    Raises:
        GlassError: there is no such corpus; the remedy names the nearest corpus, or all corpora if none is near.
    """
    if name not in CORPORA:
        raise GlassError(f"unknown generated corpus {name!r}", nearest(name, CORPORA))
    return CORPORA[name]


def find_text_corpus(name: str) -> Corpus:
    """Return the corpus with this name, which must have documents.

    Raises:
        GlassError: there is no such corpus, or it has no documents. In the second case, the remedy lists the
            corpora with documents.
    """
    return _find(name, Corpus, "documents")  # type: ignore[type-abstract]


def find_pair_corpus(name: str) -> PairCorpus:
    """Return the corpus with this name, which must have pairs of source and target.

    Raises:
        GlassError: there is no such corpus, or it has no pairs. In the second case, the remedy lists the
            corpora with pairs.
    """
    return _find(name, PairCorpus, "pairs of source and target")  # type: ignore[type-abstract]


def find_labelled_corpus(name: str) -> LabelledCorpus:
    """Return the corpus with this name, which must have labelled texts.

    Raises:
        GlassError: there is no such corpus, or it has no labels. In the second case, the remedy lists the
            corpora with labels.
    """
    return _find(name, LabelledCorpus, "labels")  # type: ignore[type-abstract]


def find_conversation_corpus(name: str) -> ConversationCorpus:
    """Return the corpus with this name, which must have conversations.

    Raises:
        GlassError: there is no such corpus, or it has no conversations. In the second case, the remedy lists the
            corpora with conversations.
    """
    return _find(name, ConversationCorpus, "conversations")  # type: ignore[type-abstract]


def find_minimal_pair_corpus(name: str) -> MinimalPairCorpus:
    """Return the corpus with this name, which must have minimal pairs.

    Raises:
        GlassError: there is no such corpus, or it has no minimal pairs. In the second case, the remedy lists the
            corpora with minimal pairs.
    """
    return _find(name, MinimalPairCorpus, "minimal pairs")  # type: ignore[type-abstract]


def _find(name: str, kind: type[Kind], content: str) -> Kind:
    corpus = find_corpus(name)
    if isinstance(corpus, kind):
        return corpus
    matching_names = ", ".join(other for other, candidate in CORPORA.items() if isinstance(candidate, kind))
    raise GlassError(f"the corpus {name} has no {content}", f"Choose a corpus with {content}: {matching_names}.")
