"""Fast baselines for a run, computed on its validation split before training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.base.config import Config
from glassformer.corpora import CORPORA, LabelledCorpus
from glassformer.evaluation.baseline_table import CHUNK, baselines
from glassformer.evaluation.classification import shortened_label
from glassformer.text.prepare import Prepared
from glassformer.text.record_store import RecordStore

COUNTED = 500_000
"""Maximum number of training tokens (the last tokens) that the 5-gram model counts, so that it is fast."""


@dataclass(frozen=True)
class FastBaseline:
    """The loss and accuracy of one baseline.

    Attributes:
        name: uniform, unigram, 5-gram, gzip, true entropy, frequencies, or best possible.
        loss: nats per predicted token, or per labelled text; None if the baseline has no loss.
        accuracy: fraction of texts labelled correctly; None if the task has no labels.
        note: how the numbers were computed.
    """

    name: str
    loss: float | None
    accuracy: float | None
    note: str


def fast_baselines(config: Config, data: Prepared) -> list[FastBaseline]:
    """Return the fast baselines for a run, the uniform distribution first.

    The list is empty for a language model whose validation split has no token to predict, and with `data.windows` =
    prefixes or halves.
    """
    corpus = config.data.source if config.data.source in CORPORA else None
    if data.labels:
        return _label_baselines(data, corpus)
    if not data.kind.running_text:
        return _target_baselines(data)
    train = data.train.tokens["text"]
    validation = data.validation.tokens["text"]
    if config.data.windows not in ("stream", "documents"):  # other rows predict only some of the tokens
        return []
    if config.train.task == "lm":
        results = baselines(train, validation, data.tokenizer, corpus, config.data.windows, COUNTED)
        return [FastBaseline(baseline.name, baseline.loss, None, baseline.note) for baseline in results]
    text_ids = data.tokenizer.text_ids  # special tokens are never masked
    size = data.tokenizer.vocab_size
    return by_frequency(counts_of(train.tokens, size)[text_ids], counts_of(validation.tokens, size)[text_ids], size)


def _target_baselines(data: Prepared) -> list[FastBaseline]:
    """Return the baselines that predict target tokens without reading the source or earlier target tokens."""
    size = data.tokenizer.vocab_size
    train_counts = counts_of(_predicted_tokens(data.train), size)
    return by_frequency(train_counts, counts_of(_predicted_tokens(data.validation), size), size)


def _predicted_tokens(store: RecordStore) -> NDArray[np.integer[Any]]:
    """Return the target tokens that contribute to the loss."""
    tokens = store.target.tokens
    return tokens if store.loss_mask is None else tokens[store.loss_mask]


def _label_baselines(data: Prepared, corpus: str | None) -> list[FastBaseline]:
    """Return the baselines that predict labels without reading the text and, if known, the best possible accuracy."""
    assert data.train.labels is not None
    assert data.validation.labels is not None
    size = len(data.labels)
    train_counts = counts_of(data.train.labels, size)
    validation_counts = counts_of(data.validation.labels, size)
    majority = int(train_counts.argmax())
    accuracy = float(validation_counts[majority] / max(1, validation_counts.sum()))
    results = [
        FastBaseline("uniform", math.log(size), 1 / size, f"each of {size:,} labels equally likely"),
        FastBaseline(
            "frequencies",
            _loss(train_counts, validation_counts, size),
            accuracy,
            f"label frequencies of the training split; prediction: always {shortened_label(data.labels[majority])}",
        ),
    ]
    generated_corpus = CORPORA.get(corpus or "")
    if isinstance(generated_corpus, LabelledCorpus):
        results.append(
            FastBaseline("best possible", None, 1 - generated_corpus.bayes_error(), "on average: 1 - the Bayes error")
        )
    return results


def by_frequency(
    train_counts: NDArray[np.int64], evaluation_counts: NDArray[np.int64], size: int
) -> list[FastBaseline]:
    """Return the uniform baseline and the unigram baseline.

    Args:
        train_counts, evaluation_counts: counts (n,) of the n predictable tokens in the training split and in the
            evaluation data.
        size: vocabulary size V.
    """
    note = f"token frequencies in {int(train_counts.sum()):,} training tokens, one added to each count"
    return [
        FastBaseline("uniform", math.log(size), None, f"each of {size:,} tokens equally likely"),
        FastBaseline("unigram", _loss(train_counts, evaluation_counts, size), None, note),
    ]


def _loss(train_counts: NDArray[np.int64], evaluation_counts: NDArray[np.int64], size: int) -> float:
    """Return the mean of -ln p in nats, where p is (count + 1) / (all counts + size)."""
    losses = math.log(int(train_counts.sum()) + size) - np.log(train_counts + 1)
    return float((evaluation_counts * losses).sum() / max(1, evaluation_counts.sum()))


def counts_of(numbers: NDArray[np.integer[Any]], size: int) -> NDArray[np.int64]:
    """Count how often each number from 0 to size - 1 occurs; memory does not grow with the number of tokens."""
    counts = np.zeros(size, dtype=np.int64)
    for start in range(0, len(numbers), CHUNK):
        counts += np.bincount(numbers[start : start + CHUNK], minlength=size)
    return counts
