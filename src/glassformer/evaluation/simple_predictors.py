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
from glassformer.evaluation.classification import shown
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
    """Return the fast baselines for a run, the uniform distribution first; empty if there is nothing to predict."""
    corpus = config.data.source if config.data.source in CORPORA else None
    if data.labels:
        return _of_labels(data, corpus)
    if not data.kind.running_text:
        return _of_targets(data)
    train = data.train.tokens["text"]
    held = data.validation.tokens["text"]
    if config.train.task == "lm":
        found = baselines(train, held, data.tokenizer, corpus, config.data.windows, COUNTED)
        return [FastBaseline(each.name, each.loss, None, each.note) for each in found]
    words = data.tokenizer.text_ids  # special tokens are never masked
    size = data.tokenizer.vocab_size
    return by_frequency(counts_of(train.tokens, size)[words], counts_of(held.tokens, size)[words], size)


def _of_targets(data: Prepared) -> list[FastBaseline]:
    """Return the baselines that predict target tokens without reading the source or earlier target tokens."""
    size = data.tokenizer.vocab_size
    known = counts_of(_predicted(data.train), size)
    return by_frequency(known, counts_of(_predicted(data.validation), size), size)


def _predicted(store: RecordStore) -> NDArray[np.integer[Any]]:
    """Return the target tokens that count for the loss."""
    tokens = store.target.tokens
    return tokens if store.loss_mask is None else tokens[store.loss_mask]


def _of_labels(data: Prepared, corpus: str | None) -> list[FastBaseline]:
    """Return the baselines that predict labels without reading the text."""
    assert data.train.labels is not None
    assert data.validation.labels is not None
    size = len(data.labels)
    known = counts_of(data.train.labels, size)
    held = counts_of(data.validation.labels, size)
    most = int(known.argmax())
    right = float(held[most] / max(1, held.sum()))
    rungs = [
        FastBaseline("uniform", math.log(size), 1 / size, f"each of {size:,} labels equally likely"),
        FastBaseline(
            "frequencies",
            _loss(known, held, size),
            right,
            f"label frequencies of the training split; prediction: always {shown(data.labels[most])}",
        ),
    ]
    generated = CORPORA.get(corpus or "")
    if isinstance(generated, LabelledCorpus):
        rungs.append(
            FastBaseline("best possible", None, 1 - generated.bayes_error(), "on average: 1 - the Bayes error")
        )
    return rungs


def by_frequency(known: NDArray[np.int64], held: NDArray[np.int64], size: int) -> list[FastBaseline]:
    """Return the uniform baseline and the unigram baseline.

    Args:
        known, held: counts (n,) of the n predictable tokens in the training split and in the evaluation data.
        size: vocabulary size V.
    """
    note = f"token frequencies in {int(known.sum()):,} training tokens, one added to each count"
    return [
        FastBaseline("uniform", math.log(size), None, f"each of {size:,} tokens equally likely"),
        FastBaseline("unigram", _loss(known, held, size), None, note),
    ]


def _loss(known: NDArray[np.int64], held: NDArray[np.int64], size: int) -> float:
    """Return the mean of -ln p in nats, where p is (count + 1) / (all counts + size)."""
    costs = math.log(int(known.sum()) + size) - np.log(known + 1)
    return float((held * costs).sum() / max(1, held.sum()))


def counts_of(numbers: NDArray[np.integer[Any]], size: int) -> NDArray[np.int64]:
    """Count how often each number from 0 to size - 1 occurs; memory does not grow with the number of tokens."""
    counts = np.zeros(size, dtype=np.int64)
    for start in range(0, len(numbers), CHUNK):
        counts += np.bincount(numbers[start : start + CHUNK], minlength=size)
    return counts
