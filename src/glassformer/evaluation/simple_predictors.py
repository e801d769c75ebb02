"""Baselines that a model has to beat, known before it is trained: the simplest predictors of its validation part."""

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
"""Training tokens, the last ones, that the 5-gram counts: before a run nobody wants to wait."""


@dataclass(frozen=True)
class Rung:
    """One predictor.

    Attributes:
        name: uniform, unigram, 5-gram, gzip, true entropy, frequencies, or best possible.
        loss: nats per predicted token, or per text with a label; None where it has no loss.
        accuracy: share of texts labelled right; None where nothing is labelled.
        note: what the figure rests on.
    """

    name: str
    loss: float | None
    accuracy: float | None
    note: str


def ladder(config: Config, data: Prepared) -> list[Rung]:
    """The predictors that cost little, from the weakest; empty where nothing can be predicted."""
    corpus = config.data.source if config.data.source in CORPORA else None
    if data.labels:
        return _of_labels(data, corpus)
    if not data.kind.running_text:
        return _of_targets(data)
    train = data.train.tokens["text"]
    held = data.validation.tokens["text"]
    if config.train.task == "lm":
        found = baselines(train, held, data.tokenizer, corpus, config.data.windows, COUNTED)
        return [Rung(each.name, each.loss, None, each.note) for each in found]
    words = data.tokenizer.text_ids  # special tokens are never hidden
    size = data.tokenizer.vocab_size
    return by_frequency(counts_of(train.tokens, size)[words], counts_of(held.tokens, size)[words], size)


def _of_targets(data: Prepared) -> list[Rung]:
    """Each token of a target without a look at its source, or at what was written before it."""
    size = data.tokenizer.vocab_size
    known = counts_of(_predicted(data.train), size)
    return by_frequency(known, counts_of(_predicted(data.validation), size), size)


def _predicted(store: RecordStore) -> NDArray[np.integer[Any]]:
    """Return the tokens of the last texts that count for the loss."""
    tokens = store.target.tokens
    return tokens if store.loss_mask is None else tokens[store.loss_mask]


def _of_labels(data: Prepared, corpus: str | None) -> list[Rung]:
    """Each text without a look at it."""
    assert data.train.labels is not None
    assert data.validation.labels is not None
    size = len(data.labels)
    known = counts_of(data.train.labels, size)
    held = counts_of(data.validation.labels, size)
    most = int(known.argmax())
    right = float(held[most] / max(1, held.sum()))
    rungs = [
        Rung("uniform", math.log(size), 1 / size, f"each of {size:,} labels equally likely"),
        Rung(
            "frequencies",
            _loss(known, held, size),
            right,
            f"labels as frequent as in training; always {shown(data.labels[most])}",
        ),
    ]
    generated = CORPORA.get(corpus or "")
    if isinstance(generated, LabelledCorpus):
        rungs.append(Rung("best possible", None, 1 - generated.bayes_error(), "on average: 1 - the Bayes error"))
    return rungs


def by_frequency(known: NDArray[np.int64], held: NDArray[np.int64], size: int) -> list[Rung]:
    """Every token alike, and by frequency in the training part.

    Args:
        known, held: (tokens that are predicted,) how often each is in the training part, and in what is measured.
        size: of the vocabulary.
    """
    note = f"token frequencies in {int(known.sum()):,} training tokens, one added to each count"
    return [
        Rung("uniform", math.log(size), None, f"each of {size:,} tokens equally likely"),
        Rung("unigram", _loss(known, held, size), None, note),
    ]


def _loss(known: NDArray[np.int64], held: NDArray[np.int64], size: int) -> float:
    """Mean of -ln p in nats, where p is (count + 1) / (all counts + size)."""
    costs = math.log(int(known.sum()) + size) - np.log(known + 1)
    return float((held * costs).sum() / max(1, held.sum()))


def counts_of(numbers: NDArray[np.integer[Any]], size: int) -> NDArray[np.int64]:
    """Count each of 0 ... size - 1; memory does not grow with the number of tokens."""
    counts = np.zeros(size, dtype=np.int64)
    for start in range(0, len(numbers), CHUNK):
        counts += np.bincount(numbers[start : start + CHUNK], minlength=size)
    return counts
