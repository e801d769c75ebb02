"""Corpora that are made, not read: what a model can at best reach on them is known exactly."""

from __future__ import annotations

from types import MappingProxyType

from glassformer.data.corpora.addition import Addition
from glassformer.data.corpora.corpus import Corpus
from glassformer.data.corpora.noise import Repeats, UniformSymbols
from glassformer.data.corpora.recall import Recall
from glassformer.data.corpora.stories import Stories
from glassformer.data.corpora.strings import COPY, REVERSE, SORT
from glassformer.errors import GlassError, nearest

_ALL: tuple[Corpus, ...] = (Stories(), Repeats(), Recall(), COPY, REVERSE, SORT, Addition(), UniformSymbols())
CORPORA = MappingProxyType({corpus.name: corpus for corpus in _ALL})

__all__ = ["CORPORA", "Corpus", "corpus_names", "find_corpus"]


def corpus_names() -> list[str]:
    """The names that `find_corpus` knows, in the order in which to show them."""
    return list(CORPORA)


def find_corpus(name: str) -> Corpus:
    """The corpus of this name.

    Raises:
        GlassError: there is none.
    """
    if name not in CORPORA:
        raise GlassError(f"there is no generated corpus {name!r}", nearest(name, CORPORA))
    return CORPORA[name]
