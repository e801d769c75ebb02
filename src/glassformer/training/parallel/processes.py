"""Interface between the training loop and the processes of a run, and its implementation for one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
"""Function of a batch and the number of targets in the step; returns the batch's contribution to the mean loss, ()."""


class Processes(Protocol):
    """Interface of the processes of one run, which must call the same methods in the same order.

    Attributes:
        rank: index of this process, from 0. Process 0 writes the run's files and prints messages.
        world_size: number of processes.
    """

    rank: int
    world_size: int

    @property
    def is_rank_zero(self) -> bool:
        """Return whether this is process 0; only process 0 prints messages and writes files other than shards."""

    def prepare_model(self, model: Model, device: torch.device, dtype: torch.dtype) -> Model:
        """Move the model, or this process's shard of the model, to the device; call this before making optimizers."""

    def wrap(self, loss: TrainingLoss) -> LossOfBatch:
        """Return the loss as a function whose backward pass also sums the gradients of all processes."""

    def no_sync(self, last: bool) -> AbstractContextManager[object]:
        """Return a context that may skip the sum of gradients over processes, unless this is the `last` micro-batch."""

    def parts(self, rows: Sequence[Any], at_once: int) -> list[tuple[Sequence[Any], bool]]:
        """Return this process's rows in chunks of at most `at_once` rows, and for each chunk whether its targets count.

        Every process gets the same number of chunks. If a process has too few rows for that, it also gets a row of
        another process as a chunk, and the targets of this row do not count.
        """

    def distribute_groups(self, groups: Iterable[list[Any]]) -> Iterator[tuple[int, list[Any], bool]]:
        """Yield this process's groups of rows: (number of rows before the group, group, whether its losses count)."""

    def all_reduce_sum(self, number: float) -> float:
        """Return the sum of the number over all processes, the same in every process."""

    def all_reduce_max(self, number: float) -> float:
        """Return the maximum of the number over all processes, the same in every process."""

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the total norm of all gradients after their sum over processes, as a tensor of shape ()."""

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all processes, in order of rank."""

    def require_equal(self, facts: Mapping[str, str]) -> None:
        """Raise a `GlassError` in all processes if a value is not the same in all; it names values and ranks."""

    def on_rank_zero(self, make: Callable[[], Value]) -> Value:
        """Call `make` in process 0 only, and return its value in all processes; a `GlassError` is raised in all."""

    def raise_on_all(self, error: GlassError) -> NoReturn:
        """Raise an error that occurs in every process, so that only process 0 reports it."""

    def full_model(self, model: Model) -> Model | None:
        """Return a model with all weights in process 0, for use without the other processes; None elsewhere."""

    def save(self, run: Run, model: Model, optimizers: list[Optimizer], state: TrainState, config: Config) -> None:
        """Write a checkpoint atomically."""

    def load(self, model: Model, checkpoint: Path) -> None:
        """Load a checkpoint's weights into the model."""


class OneProcess:
    """Implementation of `Processes` for a run in a single process."""

    rank = 0
    world_size = 1
    is_rank_zero = True

    def prepare_model(self, model: Model, device: torch.device, dtype: torch.dtype) -> Model:
        """Move the model to the device."""
        return model.to(device)

    def wrap(self, loss: TrainingLoss) -> LossOfBatch:
        """Return the loss unchanged."""
        return loss

    def no_sync(self, last: bool) -> AbstractContextManager[object]:
        """Return an empty context, as there are no other processes."""
        return nullcontext()

    def parts(self, rows: Sequence[Any], at_once: int) -> list[tuple[Sequence[Any], bool]]:
        """Return all rows in chunks of at most `at_once` rows, each with True, because all targets count."""
        return [(rows[i : i + at_once], True) for i in range(0, len(rows), at_once)]

    def distribute_groups(self, groups: Iterable[list[Any]]) -> Iterator[tuple[int, list[Any], bool]]:
        """Yield all groups of rows: (number of rows before the group, group, True)."""
        rows_before = 0
        for group in groups:
            yield rows_before, group, True
            rows_before += len(group)

    def all_reduce_sum(self, number: float) -> float:
        """Return the number unchanged."""
        return number

    def all_reduce_max(self, number: float) -> float:
        """Return the number unchanged."""
        return number

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the total norm of the gradients, as a tensor of shape ()."""
        return torch.nn.utils.get_total_norm(gradients)

    def gather(self, value: Value) -> list[Value]:
        """Return a list with only this value."""
        return [value]

    def require_equal(self, facts: Mapping[str, str]) -> None:
        """Do nothing, as there are no other processes."""

    def on_rank_zero(self, make: Callable[[], Value]) -> Value:
        """Call `make`, and return its value."""
        return make()

    def raise_on_all(self, error: GlassError) -> NoReturn:
        """Raise the error: there is no other process."""
        raise error

    def full_model(self, model: Model) -> Model | None:
        """Return the model itself: this process has all weights."""
        return model

    def save(self, run: Run, model: Model, optimizers: list[Optimizer], state: TrainState, config: Config) -> None:
        """Write a checkpoint atomically."""
        save_checkpoint(run, model, optimizers, state, config)

    def load(self, model: Model, checkpoint: Path) -> None:
        """Load a checkpoint's weights into the model."""
        load_weights(model, checkpoint / "model.safetensors")


def without_targets(batch: Batch) -> Batch:
    """Return the batch without targets, so that its loss and gradients are 0."""
    return replace(batch, loss_mask=torch.zeros_like(batch.loss_mask), n_targets=0)
