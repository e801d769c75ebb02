"""Rows of a task, grouped for forward passes, and the loss of each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.model.transformer import Model
from glassformer.tasks.losses import logits_of, token_losses, tokens_at_once
from glassformer.tasks.task import Task
from glassformer.text.batches import Batch
from glassformer.text.rows import Row

MOST_TOKENS = 8192
"""Maximum number of tokens in one forward pass of an evaluation, unless a single row is longer."""


@dataclass(frozen=True)
class TaskRows:
    """Rows of a task, with the device and the precision for running a model on these rows.

    Attributes:
        task: the task.
        rows: rows of the task's training or validation split.
        device: the device of the model.
        dtype: the precision of matrix multiplications in autocast.
    """

    task: Task
    rows: Sequence[Row]
    device: torch.device
    dtype: torch.dtype = torch.float32

    def groups(self, model: Model) -> Iterator[tuple[int, list[Row]]]:
        """Yield the rows of each forward pass, with the index of the first row."""
        first = 0
        for group in groups(self.rows, min(MOST_TOKENS, tokens_at_once(model))):
            yield first, group
            first += len(group)

    def batch(self, rows: Sequence[Row]) -> Batch:
        """Collate rows into a batch on the device."""
        return Batch.from_rows(rows).to(self.device)


def groups(rows: Sequence[Row], most_tokens: int) -> Iterator[list[Row]]:
    """Yield rows in order, in groups of at most `most_tokens` tokens with padding.

    A row of more tokens is yielded as a group of one row.
    """
    group: list[Row] = []
    width = 0
    for row in rows:
        if group and max(width, len(row)) * (len(group) + 1) > most_tokens:
            yield group
            group = []
            width = 0
        group.append(row)
        width = max(width, len(row))
    if group:
        yield group


def row_losses(model: Model, batch: Batch) -> Tensor:
    """Return the sum of -ln p(target) over the targets of each row: (B) in nats."""
    return token_losses(logits_of(model, batch), batch).sum(dim=1)  # (B)
