"""What stepper and trainer know of the processes of a run, and the ordinary case: there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from glassformer.config import Config
from glassformer.data.batches import Batch
from glassformer.errors import GlassError
from glassformer.model.transformer import Model
from glassformer.model.weights import load_weights
from glassformer.runs import Run
from glassformer.training.checkpoint import TrainState, save_checkpoint

Value = TypeVar("Value")
Forward = Callable[..., Tensor]
"""What is called for a forward pass that will have a backward pass."""


class Processes(Protocol):
    """The processes of one run. All of them take the same steps and call the same methods in the same order.

    Attributes:
        rank: number of this process, from 0. Process 0, the first, writes the run's files and speaks.
        world: how many there are.
    """

    rank: int
    world: int

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and speaks."""

    def place(self, model: Model, device: torch.device, dtype: torch.dtype) -> Model:
        """The model on the device, all of it or this process's part; before its optimizers are made."""

    def forward_of(self, model: Model) -> Forward:
        """What to call so that the gradients of all processes are added up in the backward pass."""

    def adding_up(self, last: bool) -> AbstractContextManager[object]:
        """Around a forward and backward pass: gradients need not be added up before the step's `last` one."""

    def parts(self, rows: Sequence[Any], at_once: int) -> list[tuple[Sequence[Any], bool]]:
        """This process's share of a step's rows, in parts of so many for a forward pass each.

        Every process has equally many parts. One whose rows are spent has rows of others, and False: not to count.
        """

    def turns(self, groups: Iterable[list[Any]]) -> Iterator[tuple[int, list[Any], bool]]:
        """The groups that this process measures, each with the rows before it, and whether it counts, as in `parts`."""

    def total(self, number: float) -> float:
        """Its sum over all processes, the same everywhere."""

    def most(self, number: float) -> float:
        """The largest of all processes."""

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """(), the norm of the whole model's gradients together, after they were added up."""

    def gather(self, value: Value) -> list[Value]:
        """That of every process, by rank."""

    def from_first(self, make: Callable[[], Value]) -> Value:
        """What `make` gives in the first process, where alone it is called; an error there is one everywhere."""

    def alike(self, error: GlassError) -> GlassError:
        """An error that all processes raise at once, so that it is said once."""

    def whole(self, model: Model) -> Model | None:
        """A model to look at alone, with all weights; None except in the first process."""

    def save(self, run: Run, model: Model, optimizers: list[Optimizer], state: TrainState, config: Config) -> None:
        """Write a checkpoint, whole or not at all."""

    def load(self, model: Model, checkpoint: Path) -> None:
        """Fill the model with a checkpoint's weights."""


class OneProcess:
    """No others: nothing to share, to wait for or to ask."""

    rank, world, first = 0, 1, True

    def place(self, model: Model, device: torch.device, dtype: torch.dtype) -> Model:
        """On the device."""
        return model.to(device)

    def forward_of(self, model: Model) -> Forward:
        """The model."""
        return model

    def adding_up(self, last: bool) -> AbstractContextManager[object]:
        """Backward passes add up by themselves."""
        return nullcontext()

    def parts(self, rows: Sequence[Any], at_once: int) -> list[tuple[Sequence[Any], bool]]:
        """All rows."""
        return [(rows[i : i + at_once], True) for i in range(0, len(rows), at_once)]

    def turns(self, groups: Iterable[list[Any]]) -> Iterator[tuple[int, list[Any], bool]]:
        """All groups."""
        before = 0
        for group in groups:
            yield before, group, True
            before += len(group)

    def total(self, number: float) -> float:
        """The number."""
        return number

    def most(self, number: float) -> float:
        """The number."""
        return number

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """()."""
        return torch.nn.utils.get_total_norm(gradients)

    def gather(self, value: Value) -> list[Value]:
        """The value."""
        return [value]

    def from_first(self, make: Callable[[], Value]) -> Value:
        """Made here."""
        return make()

    def alike(self, error: GlassError) -> GlassError:
        """The error."""
        return error

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
    """The same batch, of which no prediction counts: its loss and gradients are 0."""
    return replace(batch, loss_mask=torch.zeros_like(batch.loss_mask), n_targets=0)
