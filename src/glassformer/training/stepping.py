"""One optimizer step: rows, batches, gradients, new weights. The trainer takes many; the probe before a run, a few."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from glassformer.config import Config
from glassformer.data.batches import Batch
from glassformer.errors import GlassError, is_out_of_memory
from glassformer.model.device import autocast, choose_device, synchronize
from glassformer.model.precision import choose_precision
from glassformer.model.transformer import Model
from glassformer.training.checkpoint import seed_step
from glassformer.training.compiling import compiled, refuse_without_compiler
from glassformer.training.objectives import logits_of, summed_loss, tokens_at_once
from glassformer.training.optimizers import make_optimizers, set_rate
from glassformer.training.parallel.processes import OneProcess, Processes, without_targets
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
        processes: those that share every step's rows; this one alone, unless they are given.
    """

    def __init__(self, model: Model, task: Task, config: Config, processes: Processes | None = None) -> None:
        self.task, self.config, self.processes = task, config, processes or OneProcess()
        self.device = choose_device(config.train.device)
        self.dtype = choose_precision(config.train.precision, self.device)
        self.model = self.processes.place(model, self.device, self.dtype)
        self.forward = self.processes.forward_of(self.model)
        if config.train.compile:
            refuse_without_compiler(self.device)
            self.forward = compiled(self.forward)
        self.optimizers = make_optimizers(self.model, config.train)
        self.oom_retries = 0
        """How often memory ran out: each time the micro-batch is halved."""

    def gradients(self, step: int) -> Gradients:
        """Return the gradients of one step; rows and dropout depend only on `step`."""
        self.model.train()
        rows = self.task.rows(step)
        seed_step(self.config.train.seed, step, self.processes.rank)
        batches = self.batches(rows)
        before = self.oom_retries
        try:
            loss, targets = self.accumulate(batches)
        except (MemoryError, RuntimeError) as error:
            self._halve(error, batches)
        if self.oom_retries > before:  # here, as Python has freed the tensors of that forward pass by now
            return self.gradients(step)
        found = [p.grad for p in self.model.parameters() if p.grad is not None]
        return Gradients(loss, self.processes.norm(found), targets, batches)

    def update(self, gradients: Gradients, factor: float) -> None:
        """New weights from the gradients in the model, with every learning rate at its peak times `factor`."""
        set_rate(self.optimizers, factor)
        if self.config.train.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.config.train.clip, gradients.norm)
        for optimizer in self.optimizers:
            optimizer.step()
        synchronize(self.device)

    def batches(self, rows: Sequence[Any]) -> list[Batch]:
        """This process's rows of the step in groups for one forward pass each."""
        size = min(len(rows), self.config.train.micro_batch or self._rows_at_once(rows))
        size = max(1, size >> self.oom_retries)
        parts = self.processes.parts(rows, size)
        return [self.task.collate(part) if own else without_targets(self.task.collate(part)) for part, own in parts]

    def accumulate(self, batches: list[Batch]) -> tuple[float, int]:
        """Gradients of the mean loss over all targets of all rows, however they are grouped."""
        targets = max(1, int(self.processes.total(sum(batch.n_targets for batch in batches))))
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self.device)
        for number, batch in enumerate(batches, start=1):
            moved = batch.to(self.device)
            with self.processes.adding_up(last=number == len(batches)):
                with autocast(self.device, self.dtype):
                    logits = logits_of(self.model, moved, self.forward)  # (B, T, V)
                loss = summed_loss(logits, moved, self.config.train.label_smoothing) / targets
                loss.backward()
            total += loss.detach()
        return self.processes.total(float(total)), targets

    def _halve(self, error: MemoryError | RuntimeError, batches: list[Batch]) -> None:
        """Half as many rows at once from now on, after an error that says that memory is short; other errors go on."""
        if not is_out_of_memory(error) or self.processes.world > 1:  # others are in the middle of the step
            raise error
        if max(len(batch.inputs) for batch in batches) == 1:
            raise GlassError(
                f"there is not enough memory for one row at a time ({str(error)[:200] or 'Python has none left'})",
                "Lower model.context or the model's size; what was saved is intact.",
            ) from error
        self.oom_retries += 1

    def _rows_at_once(self, rows: Sequence[Any]) -> int:
        """All rows, or on a CPU as many as keep memory in bounds, which costs no speed there."""
        if self.device.type != "cpu":
            return len(rows)
        return max(1, tokens_at_once(self.model) // max(map(len, rows)))
