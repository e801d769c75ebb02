"""Data-parallel processes, each with the whole model; gradients are summed during the backward pass.

This is PyTorch's `DistributedDataParallel` (DDP; Li et al. 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from glassformer.base.errors import GlassError, ReportedElsewhereError
from glassformer.model.transformer import Model
from glassformer.model.weights import load_weights
from glassformer.runs.folder import Run
from glassformer.tasks.losses import TrainingLoss
from glassformer.training.checkpoint import TrainState, save_checkpoint
from glassformer.training.parallel.processes import LossOfBatch

Value = TypeVar("Value")
WAIT = timedelta(hours=6)
"""Maximum wait for another process, which may be encoding a large text. If a process ends, this is detected at once."""


class Replicas:
    """Data-parallel process with the whole model (DDP); create it after `torch.distributed.init_process_group`."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.is_rank_zero = self.rank == 0
        self._group = dist.new_group(backend="gloo", timeout=WAIT)  # for everything except gradients
        self._replica: DistributedDataParallel | None = None

    def prepare_model(self, model: Model, device: torch.device, dtype: torch.dtype) -> Model:
        """Move the whole model to this process's device."""
        return model.to(device)

    def wrap(self, loss: TrainingLoss) -> LossOfBatch:
        """Return the loss wrapped in DDP, which copies the weights of process 0 to all processes."""
        unused = any(p.numel() == 0 for p in loss.parameters())  # in attention layers without heads
        self._replica = DistributedDataParallel(loss, find_unused_parameters=unused)
        # A lambda, because DDP compares the annotations of a hook with its own types.
        self._replica.register_comm_hook(None, lambda state, bucket: _sum(bucket))
        return self._replica

    def no_sync(self, last: bool) -> AbstractContextManager[object]:
        """Return DDP's `no_sync` unless this is the `last` micro-batch, so that gradients are sent once per step."""
        return nullcontext() if last or self._replica is None else self._replica.no_sync()

    def parts(self, rows: Sequence[Any], at_once: int) -> list[tuple[Sequence[Any], bool]]:
        """Return rows rank, rank + world_size, … in chunks; the numbers of rows per process differ by at most one."""
        own_rows = rows[self.rank :: self.world_size]
        largest = len(rows[:: self.world_size])
        parts = [own_rows[start : start + at_once] for start in range(0, largest, at_once)]
        return [(part, True) if len(part) else (rows[:1], False) for part in parts]

    def distribute_groups(self, groups: Iterable[list[Any]]) -> Iterator[tuple[int, list[Any], bool]]:
        """Yield one group per round; in the last round, a process without a group repeats one that does not count."""
        rows_before = 0
        current_round: list[tuple[int, list[Any]]] = []
        for group in groups:
            current_round.append((rows_before, group))
            rows_before += len(group)
            if len(current_round) == self.world_size:
                yield *current_round[self.rank], True
                current_round = []
        if current_round:
            yield *current_round[min(self.rank, len(current_round) - 1)], self.rank < len(current_round)

    def all_reduce_sum(self, number: float) -> float:
        """Return the sum over all processes, in double precision."""
        return self._all_reduce(torch.tensor(float(number), dtype=torch.float64), dist.ReduceOp.SUM).item()

    def all_reduce_max(self, number: float) -> float:
        """Return the maximum over all processes, in double precision."""
        return self._all_reduce(torch.tensor(float(number), dtype=torch.float64), dist.ReduceOp.MAX).item()

    def _all_reduce(self, numbers: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
        dist.all_reduce(numbers, operation, self._group)
        return numbers

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the total norm of the gradients, which are the same in all processes, as a tensor of shape ()."""
        return torch.nn.utils.get_total_norm(gradients)

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all processes, in order of rank; values are pickled."""
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, self._group)
        return values

    def require_equal(self, facts: Mapping[str, str]) -> None:
        """Raise a `GlassError` in all processes if a value is not the same in all; it names values and ranks."""
        found = self.gather(dict(facts))
        different = []
        for name in dict.fromkeys(name for each in found for name in each):
            ranks: dict[str, list[str]] = {}
            for rank, each in enumerate(found):
                ranks.setdefault(each.get(name, "missing"), []).append(str(rank))
            if len(ranks) > 1:
                values = (f"{value[:80]} (rank {', '.join(having)})" for value, having in ranks.items())
                different.append(f"{name} is {', '.join(values)}")
        if different:
            more = f"; and {len(different) - 3} more" if len(different) > 3 else ""
            self.raise_on_all(
                GlassError(
                    f"the processes of this run differ: {'; '.join(different[:3])}{more}",
                    "Give the same options on every host, and install the same versions.",
                )
            )

    def on_rank_zero(self, make: Callable[[], Value]) -> Value:
        """Call `make` in process 0 while the others wait, and broadcast its value or its error."""
        message: list[Any] = [None, None]  # value, error
        failed: GlassError | None = None
        if self.is_rank_zero:
            try:
                message[0] = make()
            except GlassError as error:
                failed = error
                message[1] = (error.problem, error.remedy)
        dist.broadcast_object_list(message, src=0, group=self._group)
        if failed is not None:
            raise failed
        if message[1] is not None:
            raise ReportedElsewhereError(*message[1])
        return message[0]

    def raise_on_all(self, error: GlassError) -> NoReturn:
        """Raise the error in process 0, and a `ReportedElsewhereError` in the other processes."""
        raise error if self.is_rank_zero else ReportedElsewhereError(error.problem, error.remedy)

    def full_model(self, model: Model) -> Model | None:
        """Return the model in process 0, None in other processes."""
        return model if self.is_rank_zero else None

    def save(self, run: Run, model: Model, optimizers: list[Optimizer], state: TrainState, config: Config) -> None:
        """Write a checkpoint in process 0; the other processes wait until it exists."""
        self.on_rank_zero(lambda: str(save_checkpoint(run, model, optimizers, state, config)))

    def load(self, model: Model, checkpoint: Path) -> None:
        """Load a checkpoint's weights into the model of this process."""
        load_weights(model, checkpoint / "model.safetensors")


def _sum(bucket: Any) -> torch.futures.Future[Tensor]:
    """Sum a bucket of gradients over processes.

    DDP's default is the mean, but the loss of each process is already divided by the targets of all processes.
    """
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda future: future.value()[0])
