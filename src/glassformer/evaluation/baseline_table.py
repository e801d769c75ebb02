"""The ladder a model must climb, on the same text: what each simple predictor loses there, and the floor where known.

All figures are nats per predicted token and bits per byte of the validation text. In stream windows a model predicts
every token but the very first; in document windows all of them, the first one after the end token that stands before
each document. Total nats are the loss times that number, and bits per byte the total / ln 2 / bytes, for every line
of the ladder alike.

Where tokens of the validation text are unknown, there are no bits per byte (see `TokenStore.recoverable_bytes`), and
two lines are left out: gzip, which would compress a text without the unknown words, and the true entropy, which
includes them.
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

NGRAM_TOKENS = 5_000_000  # counting holds about 40 bytes per token, 200 MB in all
CHUNK = 1 << 20
BEFORE = 4  # tokens that a 5-gram looks back on
DEFLATE_WINDOW = 32 * 1024  # bytes that gzip can look back on (RFC 1951)
GZIP_TAIL_TOKENS = 32 * 1024  # at least a byte each, nearly always


class Text(Protocol):
    """A token store, as far as baselines need it."""

    @property
    def tokens(self) -> NDArray[np.integer[Any]]:
        """Token ids, (N,)."""

    @property
    def document_ends(self) -> NDArray[np.integer[Any]]:
        """One past the last token of each document."""

    @property
    def bytes(self) -> int:
        """Length of the text in UTF-8."""

    @property
    def unknown(self) -> int:
        """Return how many of the tokens are the unknown token."""


class VocabularyDecoder(Protocol):
    """A tokenizer, as far as baselines need it."""

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V, special tokens included."""

    @property
    def end_id(self) -> int:
        """The token that ends a document."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of tokens; special ones are left out."""


@dataclass(frozen=True)
class Baseline:
    """One step of the ladder.

    Args:
        name: uniform, unigram, 5-gram, gzip, or true entropy.
        loss: nats per predicted token.
        bits_per_byte: of the validation text; None where some of its tokens are unknown.
        note: one line: what the figure rests on.
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
    """The ladder on `validation`, from the weakest predictor to the corpus's own entropy.

    Args:
        train: what the predictors learn from.
        validation: what they are measured on; memory does not grow with it.
        tokenizer: of both.
        corpus: name of the generated corpus that the text is from, where it is one.
        windows: decides whether the stream's first token is predicted (see the head of this file).
        ngram_tokens: the 5-gram counts at most this many tokens, the last ones of `train`.

    Returns:
        uniform, unigram, 5-gram, gzip unless tokens are unknown, and the true entropy where it is known; empty without
        a token to predict.
    """
    first = 0 if windows == "documents" else 1
    predicted = len(validation.tokens) - first
    if predicted <= 0:
        return []

    def step(name: str, nats: float, note: str) -> Baseline:
        bits = None if validation.unknown else nats / math.log(2) / max(1, validation.bytes)
        return Baseline(name, nats / predicted, bits, note)

    vocab_size = tokenizer.vocab_size
    ladder = [step("uniform", predicted * math.log(vocab_size), f"each of {vocab_size:,} tokens equally likely")]
    note = f"token frequencies in {len(train.tokens):,} training tokens, one added to each count"
    ladder.append(step("unigram", _unigram_nats(train, validation, vocab_size, first), note))
    counted = train.tokens[-ngram_tokens:]
    share = "all" if len(counted) == len(train.tokens) else f"the last {len(counted):,}"
    note = f"modified Kneser-Ney, interpolated, on {share} of {len(train.tokens):,} training tokens"
    ladder.append(step("5-gram", _ngram_nats(counted, validation, vocab_size, tokenizer.end_id, first), note))
    if validation.unknown:
        return ladder
    note = "compressed size after the last 32 KiB of the training text (as far back as gzip looks), level 9"
    ladder.append(step("gzip", _gzip_nats(train, validation, tokenizer), note))
    if corpus is not None:
        truth = true_nats(validation, tokenizer, corpus)
        if truth is not None:
            ladder.append(step("true entropy", *truth))
    return ladder


def _unigram_nats(train: Text, validation: Text, vocab_size: int, first: int) -> float:
    counts = np.ones(vocab_size)
    for start in range(0, len(train.tokens), CHUNK):
        counts += np.bincount(train.tokens[start : start + CHUNK], minlength=vocab_size)
    costs = -np.log(counts / counts.sum())
    tokens = validation.tokens
    return sum(float(costs[tokens[at : at + CHUNK]].sum()) for at in range(first, len(tokens), CHUNK))


def _ngram_nats(counted: NDArray[np.integer[Any]], validation: Text, vocab_size: int, end_id: int, first: int) -> float:
    model = KneserNey(counted, vocab_size)
    tokens = validation.tokens
    nats = 0.0
    for at in range(first, len(tokens), CHUNK):
        before = np.asarray(tokens[max(0, at - BEFORE) : at], dtype=np.int64)
        if at == 0:  # as in a row of its own, the first document begins after an end token
            before = np.array([end_id])
        part = np.concatenate([before, np.asarray(tokens[at : at + CHUNK], dtype=np.int64)])
        nats -= float(np.log(model.probabilities(part)[len(before) :]).sum())
    return nats


def _gzip_nats(train: Text, validation: Text, tokenizer: VocabularyDecoder) -> float:
    """By the difference of two compressed sizes: what comes before alone, and with the validation text."""
    known = tokenizer.decode(train.tokens[-GZIP_TAIL_TOKENS:].tolist()).encode("utf-8", "surrogatepass")
    before = zlib.compressobj(9, wbits=31)
    with_text = zlib.compressobj(9, wbits=31)
    size = -len(before.compress(known[-DEFLATE_WINDOW:])) - len(before.flush())
    size += len(with_text.compress(known[-DEFLATE_WINDOW:]))
    start = 0
    for end in _document_groups(validation):
        text = tokenizer.decode(validation.tokens[start:end].tolist())
        size += len(with_text.compress(text.encode("utf-8", "surrogatepass")))
        start = end
    return (size + len(with_text.flush())) * 8 * math.log(2)


def _document_groups(text: Text) -> list[int]:
    """Document ends, some left out: so many tokens at a time that decoding is quick, and cut only between documents."""
    ends: list[int] = []
    for end in np.asarray(text.document_ends).tolist():
        if ends and end - (ends[-2] if len(ends) > 1 else 0) <= CHUNK:
            ends[-1] = end
        else:
            ends.append(end)
    return ends
