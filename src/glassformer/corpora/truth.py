"""The floor under every model of a generated corpus: the exact probability of the documents at hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from glassformer.corpora import find_text_corpus


class Documents(Protocol):
    """A token store, as far as true entropies need it."""

    @property
    def tokens(self) -> NDArray[np.integer[Any]]:
        """Token ids, (N,)."""

    @property
    def document_ends(self) -> NDArray[np.integer[Any]]:
        """One past the last token of each document."""


class TextDecoder(Protocol):
    """A tokenizer, as far as true entropies need it."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of tokens; special ones are left out."""


def true_nats(documents: Documents, tokenizer: TextDecoder, corpus: str) -> tuple[float, str] | None:
    """-ln p of the documents themselves, and what the figure rests on.

    Where the tokenizer does not give the documents back, their expected value. None where the corpus does not know.
    """
    source = find_text_corpus(corpus)
    start = 0
    nats = 0.0
    ends = np.asarray(documents.document_ends).tolist()
    for end in ends:
        chance = source.log_probability(tokenizer.decode(documents.tokens[start:end].tolist()))
        if chance is None or chance == -math.inf:
            mean = source.entropy()
            note = f"entropy of {corpus}, exact, times {len(ends):,} documents (the tokenizer does not give them back)"
            return None if mean is None else (mean * len(ends), note)
        nats -= chance
        start = end
    return nats, f"exact probability of these {len(ends):,} documents under {corpus}: no model can do better on average"
