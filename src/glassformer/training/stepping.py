"""One optimizer step: rows, batches, gradients, new weights. The trainer takes many; the probe before a run, a few."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from glassformer.config import Config
from glassformer.data.batches import Batch
from glassformer.model.device import autocast, choose_device, choose_precision, synchronize
from glassformer.model.families import Model
from glassformer.training.checkpoint import seed_step
from glassformer.training.objectives import logits_of, summed_loss, tokens_at_once
from glassformer.training.optimizers import make_optimizers, set_rate
from glassformer.training.tasks import Task


@dataclass(frozen=True)
class Gradients:
    """What the rows of one step came to; the gradients themselves lie in the model.

    Attributes:
        loss: mean over all targets, in nats.
        norm: (), of all gradients together.
        targets: how many predictions counted.
        batches: of the step, one for each forward pass.
    """

    loss: float
    norm: torch.Tensor
    targets: int
    batches: list[Batch]

    @property
    def finite(self) -> bool:
        """Whether a step may be taken."""
        return math.isfinite(self.loss) and bool(torch.isfinite(self.norm))


class Stepper:
    """Takes optimizer steps with one model on one task, and keeps nothing of them but weights and optimizer state.

    Args:
        model: moved to the device that the settings name.
        task: gives the rows of each step.
        config: all settings.
    """

    def __init__(self, model: Model, task: Task, config: Config) -> None:
        self.task, self.config = task, config
        self.device = choose_device(config.train.device)
        self.dtype = choose_precision(config.train.precision, self.device)
        self.model = model.to(self.device)
        self.optimizers = make_optimizers(self.model, config.train)

    def gradients(self, step: int) -> Gradients:
        """Those of the rows of one step, which is named by its number alone: also its dropout is."""
        self.model.train()
        rows = self.task.rows(step)
        seed_step(self.config.train.seed, step)
        batches = self.batches(rows)
        loss, targets = self.accumulate(batches)
        found = [p.grad for p in self.model.parameters() if p.grad is not None]
        return Gradients(loss, torch.nn.utils.get_total_norm(found), targets, batches)

    def update(self, gradients: Gradients, factor: float) -> None:
        """New weights from the gradients in the model, with every learning rate at its peak times `factor`."""
        set_rate(self.optimizers, factor)
        if self.config.train.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.config.train.clip, gradients.norm)
        for optimizer in self.optimizers:
            optimizer.step()
        synchronize(self.device)

    def batches(self, rows: Sequence[Any]) -> list[Batch]:
        """The step's rows in groups for one forward pass each."""
        size = self.config.train.micro_batch or self._rows_at_once(rows)
        return [self.task.collate(rows[i : i + size]) for i in range(0, len(rows), size)]

    def accumulate(self, batches: list[Batch]) -> tuple[float, int]:
        """Gradients of the mean loss over all targets of all rows, however they are grouped."""
        targets = max(1, sum(batch.n_targets for batch in batches))
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self.device)
        for batch in batches:
            moved = batch.to(self.device)
            with autocast(self.device, self.dtype):
                logits = logits_of(self.model, moved)  # (B, T, V)
            loss = summed_loss(logits, moved, self.config.train.label_smoothing) / targets
            loss.backward()
            total += loss.detach()
        return float(total), targets

    def _rows_at_once(self, rows: Sequence[Any]) -> int:
        """All rows, or on a CPU as many as keep memory in bounds, which costs no speed there."""
        if self.device.type != "cpu":
            return len(rows)
        return max(1, tokens_at_once(self.model) // max(map(len, rows)))
