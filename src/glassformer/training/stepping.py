"""Parts of a training step: the model on its device, the optimizers, and the micro-batches of its rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.base.config import Config
from glassformer.model.device import choose_device, synchronize
from glassformer.model.precision import choose_precision
from glassformer.model.transformer import Model
from glassformer.tasks.losses import TrainingLoss
from glassformer.tasks.task import Task
from glassformer.text.batches import Batch
from glassformer.training.averaging import WeightAverage
from glassformer.training.compiling import compiled, refuse_without_compiler
from glassformer.training.optimizers import make_optimizers, set_rate
from glassformer.training.out_of_memory import OomRetries
from glassformer.training.parallel.processes import OneProcess, Processes, without_targets
from glassformer.training.recomputing import recompute_blocks

TOKENS_AT_ONCE = 3072
"""Most tokens of one forward pass on a CPU, in training. Measured with widths of 128 and 384: 2,000 to 6,000 are the
fastest. With 16,000, a step in float32 takes an eighth longer."""


@dataclass(frozen=True)
class Gradients:
    """The result of the backward passes of one step; the gradients themselves are in the model's parameters.

    Attributes:
        loss: mean over all targets, in nats.
        norm: (), of all gradients together.
        targets: number of predictions in the loss.
        batches: the micro-batches of this process.
    """

    loss: float
    norm: Tensor
    targets: int
    batches: list[Batch]

    @property
    def finite(self) -> bool:
        """Return whether loss and gradients are finite, so that the optimizers may step."""
        return math.isfinite(self.loss) and bool(torch.isfinite(self.norm))


class Stepper:
    """Compute gradients and update weights. It keeps no state but weights, optimizer state and `oom_retries`.

    Attributes:
        loss: the `TrainingLoss` of the model, wrapped for several processes or compiled.
        oom_retries: how often the micro-batch was halved.

    Args:
        model: moved to the device that the settings name.
        task: gives the rows of each step.
        config: all settings.
        processes: the processes that share the rows of every step; None: this one alone.
    """

    def __init__(self, model: Model, task: Task, config: Config, processes: Processes | None = None) -> None:
        self.task = task
        self.config = config
        self.processes = processes or OneProcess()
        self.device = choose_device(config.train.device)
        self.dtype = choose_precision(config.train.precision, self.device)
        self.model = self.processes.place(model, self.device, self.dtype)
        if config.train.checkpoint_blocks:
            recompute_blocks(self.model)
        self.optimizers = make_optimizers(self.model, config.train)
        self.loss = self.processes.wrap(TrainingLoss(self.model, config.train.label_smoothing))
        if config.train.compile:
            refuse_without_compiler(self.device)
            self.loss = compiled(self.loss)
        self.oom_retries = OomRetries(self.processes)

    def batches(self, rows: Sequence[Any]) -> list[Batch]:
        """Return this process's rows of a step as micro-batches, one for each forward pass."""
        size = min(len(rows), self.config.train.micro_batch or self._rows_at_once(rows))
        parts = self.processes.parts(rows, self.oom_retries.halved(size))
        return [Batch.from_rows(part) if own else without_targets(Batch.from_rows(part)) for part, own in parts]

    def _rows_at_once(self, rows: Sequence[Any]) -> int:
        """Return all rows; on a CPU as many as have `TOKENS_AT_ONCE`, padding included."""
        if self.device.type != "cpu":
            return len(rows)
        return max(1, TOKENS_AT_ONCE // max(map(len, rows)))

    @property
    def average(self) -> WeightAverage | None:
        """Return what keeps the average of the weights, if the settings ask for one."""
        last = self.optimizers[-1]
        return last if isinstance(last, WeightAverage) else None

    def averaged(self) -> AbstractContextManager[None]:
        """Inside, the model has the weights that are evaluated and kept: their average, if the settings ask for it."""
        return nullcontext() if self.average is None else self.average.exchanged()

    def gradient_norm(self) -> Tensor:
        """Return (), the norm of all gradients together, the same in all processes."""
        found = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        return self.processes.norm(found)

    def clip(self, norm: Tensor) -> None:
        """Scale gradients of norm `norm` so that it is at most `train.clip`, where that is set."""
        if self.config.train.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.config.train.clip, norm)

    def update(self, gradients: Gradients, factor: float) -> None:
        """Update the weights outside of a run, with every learning rate at its peak times `factor`."""
        set_rate(self.optimizers, factor)
        self.clip(gradients.norm)
        for optimizer in self.optimizers:
            optimizer.step()
        synchronize(self.device)
