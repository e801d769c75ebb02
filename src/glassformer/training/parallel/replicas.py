"""Processes with a whole model each. Gradients are added up while the backward pass runs (DDP, Li et al. 2020)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from glassformer.base.config import Config
from glassformer.base.errors import GlassError, SaidElsewhereError
from glassformer.model.transformer import Model
from glassformer.model.weights import load_weights
from glassformer.runs.folder import Run
from glassformer.tasks.losses import TrainingLoss
from glassformer.training.checkpoint import TrainState, save_checkpoint
from glassformer.training.parallel.processes import LossOfBatch

Value = TypeVar("Value")
WAIT = timedelta(hours=6)
"""Longest wait for another process: the first may encode a large text meanwhile. One that died is known at once."""


class Replicas:
    """One of several processes, each with the whole model, after `torch.distributed.init_process_group`."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        self.is_rank_zero = self.rank == 0
        self._talk = dist.new_group(backend="gloo", timeout=WAIT)  # of all; gradients have the default group
        self._replica: DistributedDataParallel | None = None

    def place(self, model: Model, device: torch.device, dtype: torch.dtype) -> Model:
        """Put the whole model on this process's device."""
        return model.to(device)

    def wrap(self, loss: TrainingLoss) -> LossOfBatch:
        """Return the loss in DDP, which gives all processes the weights of the first."""
        unused = any(p.numel() == 0 for p in loss.parameters())  # of an attention whose heads were all removed
        self._replica = DistributedDataParallel(loss, find_unused_parameters=unused)
        self._replica.register_comm_hook(None, lambda state, bucket: _sum(bucket))  # it compares annotations, so none
        return self._replica

    def no_sync(self, last: bool) -> AbstractContextManager[object]:
        """Return DDP's `no_sync` unless this is the `last` micro-batch: gradients then travel once a step."""
        return nullcontext() if last or self._replica is None else self._replica.no_sync()

    def parts(self, rows: Sequence[Any], at_once: int) -> list[tuple[Sequence[Any], bool]]:
        """Rows rank, rank + world, …: so the shares differ by one row at most, and long rows are spread."""
        own = rows[self.rank :: self.world]
        largest = len(rows[:: self.world])
        parts = [own[start : start + at_once] for start in range(0, largest, at_once)]
        return [(part, True) if len(part) else (rows[:1], False) for part in parts]

    def turns(self, groups: Iterable[list[Any]]) -> Iterator[tuple[int, list[Any], bool]]:
        """Yield one group per process and round; in a last round with too few, some repeat another's group."""
        before = 0
        round_: list[tuple[int, list[Any]]] = []
        for group in groups:
            round_.append((before, group))
            before += len(group)
            if len(round_) == self.world:
                yield *round_[self.rank], True
                round_ = []
        if round_:
            yield *round_[min(self.rank, len(round_) - 1)], self.rank < len(round_)

    def all_reduce_sum(self, number: float) -> float:
        """Return the sum over processes, in double precision."""
        return self._over_all(torch.tensor(float(number), dtype=torch.float64), dist.ReduceOp.SUM).item()

    def all_reduce_max(self, number: float) -> float:
        """Return the largest of all processes, in double precision."""
        return self._over_all(torch.tensor(float(number), dtype=torch.float64), dist.ReduceOp.MAX).item()

    def _over_all(self, numbers: Tensor, how: dist.ReduceOp.RedOpType) -> Tensor:
        dist.all_reduce(numbers, how, self._talk)
        return numbers

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """(): the same everywhere, for the gradients are."""
        return torch.nn.utils.get_total_norm(gradients)

    def gather(self, value: Value) -> list[Value]:
        """Pickled, within the group alone."""
        found: list[Any] = [None] * self.world
        dist.all_gather_object(found, value, self._talk)
        return found

    def on_rank_zero(self, make: Callable[[], Value]) -> Value:
        """Call `make` in process 0 while the others wait, and broadcast its value or its error."""
        told: list[Any] = [None, None]
        failed: GlassError | None = None
        if self.is_rank_zero:
            try:
                told[0] = make()
            except GlassError as error:
                failed = error
                told[1] = (error.problem, error.remedy)
        dist.broadcast_object_list(told, src=0, group=self._talk)
        if failed is not None:
            raise failed
        if told[1] is not None:
            raise SaidElsewhereError(*told[1])
        return told[0]

    def raise_on_all(self, error: GlassError) -> NoReturn:
        """Raise the error; in all but process 0 as one that is reported elsewhere."""
        raise error if self.is_rank_zero else SaidElsewhereError(error.problem, error.remedy)

    def whole(self, model: Model) -> Model | None:
        """The first one's."""
        return model if self.is_rank_zero else None

    def save(self, run: Run, model: Model, optimizers: list[Optimizer], state: TrainState, config: Config) -> None:
        """By the first process; the others wait, so that all see the checkpoint afterwards."""
        self.on_rank_zero(lambda: str(save_checkpoint(run, model, optimizers, state, config)))

    def load(self, model: Model, checkpoint: Path) -> None:
        """By each process."""
        load_weights(model, checkpoint / "model.safetensors")


def _sum(bucket: Any) -> torch.futures.Future[Tensor]:
    """DDP's own way gives the mean over processes; ours are shares of one mean over targets, so they are added."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])
