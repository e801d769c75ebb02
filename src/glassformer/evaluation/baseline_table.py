"""Baselines for a language model on the same text: simple predictors, gzip, and the true entropy where it is known.

Losses are in nats per predicted token and in bits per byte of the validation text. In stream windows, every token
except the very first is predicted; in document windows, every token is predicted, the first token of a document from an
end token. Total nats are the loss times the number of predicted tokens; bits per byte are total nats / ln 2 / bytes.

If the validation text has unknown tokens, there are no bits per byte (see `TokenStore.recoverable_bytes`), and two
baselines are left out: gzip, which would compress the text with U+FFFD in place of each unknown symbol, and the true
entropy, which includes the unknown symbols.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from glassformer.corpora.truth import true_nats
from glassformer.evaluation.ngrams import KneserNey

NGRAM_TOKENS = 5_000_000  # counting needs 40 to 140 bytes per token, at most 700 MB in total
CHUNK = 1 << 20
BEFORE = 4  # tokens in the context of a 5-gram
DEFLATE_WINDOW = 32 * 1024  # window of gzip in bytes (RFC 1951)
GZIP_TAIL_TOKENS = 32 * 1024  # nearly every token has at least one byte


class Text(Protocol):
    """Protocol of a token store: the members that baselines need."""

    @property
    def tokens(self) -> NDArray[np.integer[Any]]:
        """Ids of all tokens of the text, in order; (N,)."""

    @property
    def document_ends(self) -> NDArray[np.integer[Any]]:
        """Index one past the last token of each document; (documents,)."""

    @property
    def bytes(self) -> int:
        """Size of the text in UTF-8 bytes."""

    @property
    def unknown(self) -> int:
        """Number of unknown tokens in the text."""


class VocabularyDecoder(Protocol):
    """Protocol of a tokenizer: the members that baselines need."""

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V, including special tokens."""

    @property
    def end_id(self) -> int:
        """Id of the token that ends a document."""

    def decode(self, ids: Sequence[int]) -> str:
        """Decode token ids to text; special tokens are dropped, and unknown tokens become U+FFFD."""


@dataclass(frozen=True)
class Baseline:
    """The loss of one baseline.

    Attributes:
        name: uniform, unigram, 5-gram, gzip, or true entropy.
        loss: nats per predicted token.
        bits_per_byte: bits per byte of the validation text; None if the text has unknown tokens.
        note: one line that explains how the loss was computed.
    """

    name: str
    loss: float
    bits_per_byte: float | None
    note: str


def baselines(
    train: Text,
    validation: Text,
    tokenizer: VocabularyDecoder,
    corpus: str | None = None,
    windows: Literal["stream", "documents"] = "stream",
    ngram_tokens: int = NGRAM_TOKENS,
) -> list[Baseline]:
    """Compute the losses of the baselines on `validation`.

    Args:
        train: text that the predictors are fitted to.
        validation: text on which the loss is computed.
        tokenizer: tokenizer of both texts.
        corpus: name of the generated corpus that the text is from, if any.
        windows: type of windows, which determines whether the first token is predicted (see the module docstring).
        ngram_tokens: maximum number of tokens for the counts of the 5-gram model, taken from the end of `train`.

    Returns:
        Uniform, unigram and 5-gram; if the validation text has no unknown tokens, also gzip and, if known, the true
        entropy. The list is empty if there is no token to predict.
    """
    first = 0 if windows == "documents" else 1
    predicted = len(validation.tokens) - first
    if predicted <= 0:
        return []

    def make_baseline(name: str, nats: float, note: str) -> Baseline:
        bits = None if validation.unknown else nats / math.log(2) / max(1, validation.bytes)
        return Baseline(name, nats / predicted, bits, note)

    vocab_size = tokenizer.vocab_size
    results = [
        make_baseline("uniform", predicted * math.log(vocab_size), f"each of {vocab_size:,} tokens equally likely")
    ]
    note = f"token frequencies in {len(train.tokens):,} training tokens, one added to each count"
    results.append(make_baseline("unigram", _unigram_nats(train, validation, vocab_size, first), note))
    train_tokens = train.tokens[-ngram_tokens:]
    extent = "all" if len(train_tokens) == len(train.tokens) else f"the last {len(train_tokens):,}"
    note = f"modified Kneser-Ney, interpolated, on {extent} of {len(train.tokens):,} training tokens"
    results.append(
        make_baseline("5-gram", _ngram_nats(train_tokens, validation, vocab_size, tokenizer.end_id, first), note)
    )
    if validation.unknown:
        return results
    note = "compressed size after the last 32 KiB of the training text (the window of gzip), level 9"
    results.append(make_baseline("gzip", _gzip_nats(train, validation, tokenizer), note))
    if corpus is not None:
        truth = true_nats(validation, tokenizer, corpus)
        if truth is not None:
            results.append(make_baseline("true entropy", *truth))
    return results


def _unigram_nats(train: Text, validation: Text, vocab_size: int, first: int) -> float:
    counts = np.ones(vocab_size)
    for start in range(0, len(train.tokens), CHUNK):
        counts += np.bincount(train.tokens[start : start + CHUNK], minlength=vocab_size)
    losses = -np.log(counts / counts.sum())
    tokens = validation.tokens
    return sum(float(losses[tokens[start : start + CHUNK]].sum()) for start in range(first, len(tokens), CHUNK))


def _ngram_nats(
    train_tokens: NDArray[np.integer[Any]], validation: Text, vocab_size: int, end_id: int, first: int
) -> float:
    model = KneserNey(train_tokens, vocab_size)
    tokens = validation.tokens
    nats = 0.0
    for start in range(first, len(tokens), CHUNK):
        context = np.asarray(tokens[max(0, start - BEFORE) : start], dtype=np.int64)
        if start == 0:  # in document windows, the first document also follows an end token
            context = np.array([end_id])
        chunk = np.concatenate([context, np.asarray(tokens[start : start + CHUNK], dtype=np.int64)])
        nats -= float(np.log(model.probabilities(chunk)[len(context) :]).sum())
    return nats


def _gzip_nats(train: Text, validation: Text, tokenizer: VocabularyDecoder) -> float:
    """Return the number of nats that the validation text adds to the gzip-compressed end of the training text."""
    train_bytes = tokenizer.decode(train.tokens[-GZIP_TAIL_TOKENS:].tolist()).encode("utf-8", "surrogatepass")
    train_compressor = zlib.compressobj(9, wbits=31)
    full_compressor = zlib.compressobj(9, wbits=31)
    size = -len(train_compressor.compress(train_bytes[-DEFLATE_WINDOW:])) - len(train_compressor.flush())
    size += len(full_compressor.compress(train_bytes[-DEFLATE_WINDOW:]))
    start = 0
    for end in _document_groups(validation):
        text = tokenizer.decode(validation.tokens[start:end].tolist())
        size += len(full_compressor.compress(text.encode("utf-8", "surrogatepass")))
        start = end
    return (size + len(full_compressor.flush())) * 8 * math.log(2)


def _document_groups(text: Text) -> list[int]:
    """Return document ends that divide the text into chunks of at most `CHUNK` tokens, or of one longer document."""
    ends: list[int] = []
    for end in np.asarray(text.document_ends).tolist():
        if ends and end - (ends[-2] if len(ends) > 1 else 0) <= CHUNK:
            ends[-1] = end
        else:
            ends.append(end)
    return ends
