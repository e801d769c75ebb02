"""Compute the exact probability of documents under the corpus that generated them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from glassformer.base.wording import counted
from glassformer.corpora import find_text_corpus


class Documents(Protocol):
    """Protocol of a token store, with the members that `true_nats` needs."""

    @property
    def tokens(self) -> NDArray[np.integer[Any]]:
        """Return the ids of all tokens of the text in order, (N,)."""

    @property
    def document_ends(self) -> NDArray[np.integer[Any]]:
        """Return the index one past the last token of each document, (documents,)."""


class TextDecoder(Protocol):
    """Protocol of a tokenizer, with the members that `true_nats` needs."""

    def decode(self, ids: Sequence[int]) -> str:
        """Decode token ids to text; special tokens are dropped."""


def true_nats(documents: Documents, tokenizer: TextDecoder, corpus: str) -> tuple[float, str] | None:
    """Return -ln p of the documents in nats, and a note on how it was computed.

    If decoding does not restore the documents, return the entropy of the corpus times the number of documents. Return
    None if the corpus has no exact probabilities.
    """
    source = find_text_corpus(corpus)
    start = 0
    nats = 0.0
    ends = np.asarray(documents.document_ends).tolist()
    for end in ends:
        log_probability = source.log_probability(tokenizer.decode(documents.tokens[start:end].tolist()))
        if log_probability is None or log_probability == -math.inf:
            mean = source.entropy()
            note = (
                f"exact entropy per document of {corpus}, for {counted(len(ends), 'documents')}: decoding does not "
                "restore the documents"
            )
            return None if mean is None else (mean * len(ends), note)
        nats -= log_probability
        start = end
    return (
        nats,
        f"exact probability of the {counted(len(ends), 'documents')} under {corpus}: no model can do better on average",
    )
