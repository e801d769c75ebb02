"""Components of a training step: the model on its device, the optimizers, and the micro-batches of a step's rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from glassformer.base.config import Config
from glassformer.model.device import choose_device, synchronize
from glassformer.model.dropout import draw_dropout_from
from glassformer.model.precision import choose_precision
from glassformer.model.transformer import Model
from glassformer.tasks.losses import TrainingLoss
from glassformer.tasks.task import Task
from glassformer.text.batches import Batch
from glassformer.training.averaging import WeightAverage
from glassformer.training.checkpoint import seed_torch, step_seed
from glassformer.training.compiling import compiled, refuse_without_compiler
from glassformer.training.optimizers import make_optimizers, set_rate
from glassformer.training.out_of_memory import OomRetries
from glassformer.training.parallel.processes import OneProcess, Processes, without_targets
from glassformer.training.recomputing import recompute_blocks

COMPILED_STEP = Lock()
"""Lock of a step of compiled code, which draws dropout from PyTorch's generators, shared by all threads."""
TOKENS_AT_ONCE = 3072
"""Maximum number of tokens in a training forward pass on a CPU if `train.micro_batch` is unset; a longer row is one
forward pass. Measured with widths of 128 and 384: 2,000 to 6,000 tokens are fastest; with 16,000, a float32 step takes
an eighth longer."""


@dataclass(frozen=True)
class Gradients:
    """Loss and gradient norm of one step; the gradients themselves are in the model's parameters.

    Attributes:
        loss: mean loss over all targets, in nats.
        norm: () total norm of all gradients.
        targets: number of targets in the loss, in all processes together.
        batches: micro-batches of this process.
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
    """Model, optimizers and loss for training steps.

    The only state consists of the weights, the optimizer state and `oom_retries`.

    Attributes:
        loss: the `TrainingLoss` of the model, wrapped by `Processes.wrap`, and compiled if `train.compile` is set.
            Before training, another function may be assigned; the manifest then has its name.
        oom_retries: counter of the retries after running out of memory; each retry halves the micro-batch.

    Args:
        model: model to train, which is moved to the device in the settings.
        task: task that provides the rows of each step.
        config: all settings.
        processes: processes that share the rows of every step; None: only this process.
    """

    def __init__(self, model: Model, task: Task, config: Config, processes: Processes | None = None) -> None:
        self.task = task
        self.config = config
        self.processes = processes or OneProcess()
        self.device = choose_device(config.train.device)
        self.dtype = choose_precision(config.train.precision, self.device)
        self.model = self.processes.prepare_model(model, self.device, self.dtype)
        if config.train.checkpoint_blocks:
            recompute_blocks(self.model)
        self.generator = torch.Generator()  # of dropout; compiled code draws only from PyTorch's generator
        draw_dropout_from(self.model, None if config.train.compile else self.generator)
        self.optimizers = make_optimizers(self.model, config.train)
        self.loss = self.processes.wrap(TrainingLoss(self.model, config.train.label_smoothing))
        if config.train.compile:
            refuse_without_compiler(self.device)
            self.loss = compiled(self.loss)
        self._loss_of_task = self.loss
        self.oom_retries = OomRetries(self.processes)

    @property
    def other_loss(self) -> str | None:
        """Return the name of the function that was assigned to `loss`; None if it is the loss of the task."""
        if self.loss is self._loss_of_task:
            return None
        kind = self.loss if hasattr(self.loss, "__qualname__") else type(self.loss)
        return f"{kind.__module__}.{kind.__qualname__}"

    @contextmanager
    def seeded(self, step: int) -> Iterator[None]:
        """Let the dropout of a step depend only on (seed, step, rank), whatever other threads do."""
        seed = step_seed(self.config.train.seed, step, self.processes.rank)
        if not self.config.train.compile:
            self.generator.manual_seed(seed)
            yield
            return
        with COMPILED_STEP, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            seed_torch(seed)
            yield

    def batches(self, rows: Sequence[Any]) -> list[Batch]:
        """Return this process's rows of a step as micro-batches, one per forward pass."""
        size = min(len(rows), self.config.train.micro_batch or self._rows_at_once(rows))
        parts = self.processes.parts(rows, self.oom_retries.halved(size))
        return [
            Batch.from_rows(part) if is_counted else without_targets(Batch.from_rows(part))
            for part, is_counted in parts
        ]

    def _rows_at_once(self, rows: Sequence[Any]) -> int:
        """Return the number of rows per forward pass if `train.micro_batch` is unset.

        On a CPU, it is the largest number of rows that have at most `TOKENS_AT_ONCE` tokens, padding included, but at
        least one. On other devices, it is the number of all rows.
        """
        if self.device.type != "cpu":
            return len(rows)
        return max(1, TOKENS_AT_ONCE // max(map(len, rows)))

    @property
    def average(self) -> WeightAverage | None:
        """Return the `WeightAverage` among the optimizers; None if `train.average` is "none"."""
        last = self.optimizers[-1]
        return last if isinstance(last, WeightAverage) else None

    def averaged(self) -> AbstractContextManager[None]:
        """Return a context in which the model has the averaged weights, if there are any, for evaluation and saving."""
        return nullcontext() if self.average is None else self.average.exchanged()

    def gradient_norm(self) -> Tensor:
        """Return the total norm of all gradients, the same in all processes, as a tensor of shape ()."""
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        return self.processes.norm(gradients)

    def clip(self, norm: Tensor) -> None:
        """Clip the gradients, whose total norm is `norm`, to a norm of at most `train.clip` if that is set."""
        if self.config.train.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.config.train.clip, norm)

    def update(self, gradients: Gradients, factor: float) -> None:
        """Clip the gradients, and update the weights with every learning rate at `factor` times its peak.

        This method returns after the device has finished the step.
        """
        set_rate(self.optimizers, factor)
        self.clip(gradients.norm)
        for optimizer in self.optimizers:
            optimizer.step()
        synchronize(self.device)
