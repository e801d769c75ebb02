"""Retry a training step with micro-batches of half the rows when memory runs out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from glassformer.base.errors import GlassError, is_out_of_memory
from glassformer.text.batches import Batch
from glassformer.training.parallel.processes import Processes


class OomRetries:
    """Retries of a step that ran out of memory. Each retry halves the micro-batch; the global batch is unchanged.

    Attributes:
        count: number of retries so far.

    Args:
        processes: the processes of the run. With several processes there are no retries, because the other processes
            are still in the step.
    """

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.count = 0

    def attempts(self) -> Iterator[int]:
        """Yield once for the first attempt, and again each time memory ran out inside `watch`."""
        previous_count = -1
        while self.count > previous_count:
            previous_count = self.count
            yield previous_count

    def halved(self, rows: int) -> int:
        """Return the rows of a micro-batch after all retries, at least 1, given their number before the first retry."""
        return max(1, rows >> self.count)

    @contextmanager
    def watch(self, batches: Sequence[Batch]) -> Iterator[None]:
        """Count a retry if memory runs out inside the context; the memory of the failed attempt is free afterwards.

        Args:
            batches: micro-batches of the attempt.

        Raises:
            GlassError: memory ran out with micro-batches of one row.
            MemoryError, RuntimeError: memory ran out with several processes, or the error has another cause.
        """
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or self.processes.world_size > 1:
                raise
            if max(len(batch.inputs) for batch in batches) == 1:
                raise GlassError(
                    f"there is not enough memory for one row at a time ({str(error)[:200] or 'Python has none left'})",
                    "Lower model.context or the model's size; saved checkpoints are intact.",
                ) from error
            self.count += 1
