"""The rows on which losses are measured, and what a model loses on each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.model.transformer import Model
from glassformer.tasks.losses import logits_of, token_losses, tokens_at_once
from glassformer.tasks.task import Task
from glassformer.text.batches import Batch
from glassformer.training.validation import MOST_TOKENS, LossEstimate, groups, validation_loss


@dataclass(frozen=True)
class Rows:
    """Rows of a task.

    Attributes:
        task: makes batches of them.
        rows: of its training part or of its validation part.
        device: of the model.
    """

    task: Task
    rows: Sequence[Any]
    device: torch.device

    def groups(self, model: Model) -> Iterator[tuple[int, list[Any]]]:
        """Rows for one forward pass each, with the number of the first."""
        first = 0
        for group in groups(self.rows, min(MOST_TOKENS, tokens_at_once(model))):
            yield first, group
            first += len(group)

    def batch(self, rows: Sequence[Any]) -> Batch:
        """Rows as a batch on the device."""
        return Batch.from_rows(rows).to(self.device)

    def loss(self, model: Model) -> LossEstimate:
        """The mean loss over all rows, in nats per target, as validation has it: no label smoothing, no dropout."""
        return validation_loss(model, self.rows, self.device)


def training_rows(task: Task, tokens: int, device: torch.device) -> Rows:
    """Rows of the first steps of training, of about so many tokens, short ones first."""
    rows: list[Any] = []
    step = 0
    while sum(map(len, rows)) < tokens:
        rows += task.rows(step)
        step += 1
    return Rows(task, sorted(rows, key=len), device)


def validation_rows(task: Task, tokens: int | None, device: torch.device) -> Rows:
    """Rows of the validation part: of about so many tokens, evenly drawn, or all."""
    return Rows(task, task.held_out(tokens), device)


def row_losses(model: Model, batch: Batch) -> Tensor:
    """The sum of -ln p(target) over the targets of each row: (B) in nats."""
    return token_losses(logits_of(model, batch), batch).sum(dim=1)  # (B)


@contextmanager
def without_dropout(model: Model) -> Iterator[None]:
    """Evaluation mode for a while."""
    before = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(before)
