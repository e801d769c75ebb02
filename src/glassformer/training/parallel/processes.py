"""The interface between the training loop and the processes of a run, and the ordinary case of one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.model.transformer import Model
from glassformer.model.weights import load_weights
from glassformer.runs.folder import Run
from glassformer.tasks.losses import TrainingLoss
from glassformer.text.batches import Batch
from glassformer.training.checkpoint import TrainState, save_checkpoint

Value = TypeVar("Value")
LossOfBatch = Callable[[Batch, int], Tensor]
"""A batch and the targets of the step -> (), its part of the mean loss, which will have a backward pass."""


class Processes(Protocol):
    """The processes of one run. All of them take the same steps and call the same methods in the same order.

    Attributes:
        rank: number of this process, from 0. Process 0, the first, writes the run's files and speaks.
        world: how many there are.
    """

    rank: int
    world: int

    @property
    def is_rank_zero(self) -> bool:
        """Return whether this is the process that writes and speaks."""

    def place(self, model: Model, device: torch.device, dtype: torch.dtype) -> Model:
        """The model on the device, all of it or this process's part; before its optimizers are made."""

    def wrap(self, loss: TrainingLoss) -> LossOfBatch:
        """Return the loss in a form whose backward pass adds up the gradients of all processes."""

    def no_sync(self, last: bool) -> AbstractContextManager[object]:
        """Return a context for a micro-batch whose gradients stay in this process, unless it is the `last` one."""

    def parts(self, rows: Sequence[Any], at_once: int) -> list[tuple[Sequence[Any], bool]]:
        """This process's share of a step's rows, in parts of so many for a forward pass each.

        Every process has equally many parts. One whose rows are spent has rows of others, and False: not to count.
        """

    def turns(self, groups: Iterable[list[Any]]) -> Iterator[tuple[int, list[Any], bool]]:
        """The groups that this process measures, each with the rows before it, and whether it counts, as in `parts`."""

    def all_reduce_sum(self, number: float) -> float:
        """Return the sum of each process's number, the same in all of them."""

    def all_reduce_max(self, number: float) -> float:
        """Return the largest of each process's number, the same in all of them."""

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """(), the norm of the whole model's gradients together, after they were added up."""

    def gather(self, value: Value) -> list[Value]:
        """Return the value of every process, by rank."""

    def on_rank_zero(self, make: Callable[[], Value]) -> Value:
        """Call `make` in process 0 alone, and return its value in all; a `GlassError` there is raised in all."""

    def raise_on_all(self, error: GlassError) -> NoReturn:
        """Raise an error that every process has, so that only process 0 reports it."""

    def whole(self, model: Model) -> Model | None:
        """A model to look at alone, with all weights; None except in the first process."""

    def save(self, run: Run, model: Model, optimizers: list[Optimizer], state: TrainState, config: Config) -> None:
        """Write a checkpoint, whole or not at all."""

    def load(self, model: Model, checkpoint: Path) -> None:
        """Fill the model with a checkpoint's weights."""


class OneProcess:
    """No others: nothing to share, to wait for or to ask."""

    rank = 0
    world = 1
    is_rank_zero = True

    def place(self, model: Model, device: torch.device, dtype: torch.dtype) -> Model:
        """On the device."""
        return model.to(device)

    def wrap(self, loss: TrainingLoss) -> LossOfBatch:
        """Return the loss as it is."""
        return loss

    def no_sync(self, last: bool) -> AbstractContextManager[object]:
        """Return an empty context: there is nothing to sum over."""
        return nullcontext()

    def parts(self, rows: Sequence[Any], at_once: int) -> list[tuple[Sequence[Any], bool]]:
        """Return all rows."""
        return [(rows[i : i + at_once], True) for i in range(0, len(rows), at_once)]

    def turns(self, groups: Iterable[list[Any]]) -> Iterator[tuple[int, list[Any], bool]]:
        """Yield all groups."""
        before = 0
        for group in groups:
            yield before, group, True
            before += len(group)

    def all_reduce_sum(self, number: float) -> float:
        """Return the number."""
        return number

    def all_reduce_max(self, number: float) -> float:
        """Return the number."""
        return number

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """()."""
        return torch.nn.utils.get_total_norm(gradients)

    def gather(self, value: Value) -> list[Value]:
        """The value."""
        return [value]

    def on_rank_zero(self, make: Callable[[], Value]) -> Value:
        """Call `make`."""
        return make()

    def raise_on_all(self, error: GlassError) -> NoReturn:
        """Raise the error."""
        raise error

    def whole(self, model: Model) -> Model | None:
        """The model."""
        return model

    def save(self, run: Run, model: Model, optimizers: list[Optimizer], state: TrainState, config: Config) -> None:
        """By this process."""
        save_checkpoint(run, model, optimizers, state, config)

    def load(self, model: Model, checkpoint: Path) -> None:
        """By this process."""
        load_weights(model, checkpoint / "model.safetensors")


def without_targets(batch: Batch) -> Batch:
    """Return the same batch with no prediction that counts: its loss and gradients are 0."""
    return replace(batch, loss_mask=torch.zeros_like(batch.loss_mask), n_targets=0)
