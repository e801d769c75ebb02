"""Evaluation report of a masked language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from glassformer.base.wording import counted
from glassformer.evaluation.metrics import Metric, facts_of, loss_words, whole_set
from glassformer.evaluation.resampling import Indices
from glassformer.evaluation.simple_predictors import by_frequency, counts_of
from glassformer.evaluation.training_overlap import Reading
from glassformer.model.device import autocast
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Model
from glassformer.tasks.losses import tokens_at_once
from glassformer.tasks.task import MaskedTask
from glassformer.tasks.task_rows import groups
from glassformer.text.batches import Batch
from glassformer.text.store import TokenStore
from glassformer.training.validation import LossEstimate, validation_loss


@dataclass(frozen=True)
class MaskedReport:
    """Evaluation results of a masked language model.

    Attributes:
        measured_on: name of the evaluation data.
        estimate: loss in nats per masked token.
        unknown_share: fraction of the text's tokens that are unknown.
        metrics: top-1 and top-5 accuracy.
        baselines: (name, nats per token, accuracy, note) of each simple predictor on the same tokens.
        reading: documents that were left out, and overlap of the text with the training text.
    """

    measured_on: str
    estimate: LossEstimate
    unknown_share: float
    metrics: list[Metric]
    baselines: list[tuple[str, float, float, str]]
    reading: Reading

    def facts(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        names = ("name", "loss", "accuracy", "note")
        return {
            **self.estimate.facts(None, self.unknown_share),
            **facts_of(self.metrics),
            "baselines": [dict(zip(names, row, strict=True)) for row in self.baselines],
            **self.reading.facts(),
        }

    def text(self) -> str:
        """Format the report as text."""
        lines = [
            f"on {self.measured_on}: {counted(self.estimate.tokens, 'masked tokens')}",
            f"{loss_words(self.estimate.loss, self.estimate.ci95, 'nats per masked token')}, "
            f"perplexity {self.estimate.perplexity:.2f}",
            *([f"{self.unknown_share:.3%} of the tokens are unknown"] if self.unknown_share else []),
            *(metric.line() for metric in self.metrics),
            "",
            f"{'predictor':<14}{'nats/token':>11}{'accuracy':>10}",
        ]
        for name, loss, accuracy, note in [
            *self.baselines,
            ("this model", self.estimate.loss, self.metrics[0].value, ""),
        ]:
            lines.append(f"{name:<14}{loss:>11.4f}{accuracy:>10.4f}   {note}".rstrip())
        return "\n".join(lines)


def masked_report(
    model: Model,
    task: MaskedTask,
    text: str,
    train: TokenStore | None,
    device: torch.device,
    dtype: torch.dtype,
    reading: Reading,
) -> MaskedReport:
    """Evaluate predictions of masked tokens on the whole text, with masks that are the same at every evaluation.

    Args:
        model: an encoder.
        task: masked task whose validation split is the text to evaluate.
        text: name of the evaluation data, for the report.
        train: the encoded training text, for the unigram baseline; None: leave that baseline out.
        device, dtype: the device of the model, and the precision of its matrix multiplications.
        reading: documents that were left out, and overlap of the text with the training text.
    """
    rows = task.held_out(None)
    estimate = validation_loss(model, rows, device, dtype)
    hits: list[tuple[int, int, int]] = []  # (top-1 hits, top-5 hits, masked tokens) of each row
    truth: list[np.ndarray] = []
    with inference(model), autocast(device, dtype):
        for group in groups(rows, min(8192, tokens_at_once(model))):
            batch = Batch.from_rows(group).to(device)
            top_five = model(batch.inputs, batch.attention_mask).topk(min(5, task.choices), dim=-1).indices  # (B, T, 5)
            correct = (top_five == batch.targets[..., None]) & batch.loss_mask[..., None]  # (B, T, 5)
            top_one_hits = correct[..., 0].sum(1)
            top_five_hits = correct.any(-1).sum(1)
            masked_counts = batch.loss_mask.sum(1)
            hits += list(zip(top_one_hits.tolist(), top_five_hits.tolist(), masked_counts.tolist(), strict=True))
            truth.append(batch.targets[batch.loss_mask].cpu().numpy())
    counts = np.array(hits, dtype=np.float64)  # (rows, 3)
    metrics = [
        whole_set("accuracy", "accuracy", lambda indices: _accuracy(counts, 0, indices), len(counts)),
        whole_set("accuracy_of_five", "top-5 accuracy", lambda indices: _accuracy(counts, 1, indices), len(counts)),
    ]
    return MaskedReport(
        measured_on=text,
        estimate=estimate,
        unknown_share=task.unknown_share,
        metrics=metrics,
        baselines=_baselines(task, train, np.concatenate(truth)),
        reading=reading,
    )


def _accuracy(counts: np.ndarray, column: int, indices: Indices) -> float:
    """Return the accuracy in the chosen rows: hits divided by masked tokens."""
    return float(counts[indices, column].sum() / max(1, counts[indices, 2].sum()))


def _baselines(task: MaskedTask, train: TokenStore | None, truth: np.ndarray) -> list[tuple[str, float, float, str]]:
    """Return the loss and accuracy of the uniform predictor and, given `train`, of the unigram predictor."""
    V = task.choices
    text_ids = task.tokenizer.text_ids  # special tokens are never masked
    masked_counts = counts_of(truth, V)[text_ids]
    train_counts = np.zeros_like(masked_counts) if train is None else counts_of(train.tokens, V)[text_ids]
    uniform, unigram = by_frequency(train_counts, masked_counts, V)
    rows = [(uniform.name, uniform.loss or 0.0, 1 / V, uniform.note)]
    if train is not None:
        accuracy = float(masked_counts[train_counts.argmax()] / max(1, masked_counts.sum()))
        rows.append((unigram.name, unigram.loss or 0.0, accuracy, unigram.note))
    return rows
