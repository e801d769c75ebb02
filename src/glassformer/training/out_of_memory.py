"""Compute a training step again with micro-batches of half the rows when memory runs out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from glassformer.base.errors import GlassError, is_out_of_memory
from glassformer.text.batches import Batch
from glassformer.training.parallel.processes import Processes


class OomRetries:
    """Halve the micro-batch each time memory runs out. The global batch, and so the mean gradient, stay the same.

    Attributes:
        count: how often memory ran out; the micro-batch is halved as often.

    Args:
        processes: the processes of the run. Of several, none retries: the others are in the middle of the step.
    """

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.count = 0

    def attempts(self) -> Iterator[int]:
        """Yield once, and again each time memory ran out inside `watch` meanwhile."""
        before = -1
        while self.count > before:
            before = self.count
            yield before

    def halved(self, rows: int) -> int:
        """Return the rows of a micro-batch that had so many before memory ran out."""
        return max(1, rows >> self.count)

    @contextmanager
    def watch(self, batches: Sequence[Batch]) -> Iterator[None]:
        """Count a retry if memory runs out inside. What the failed attempt held is free when the block is left.

        Args:
            batches: the micro-batches that the block computes.

        Raises:
            GlassError: memory is short for a single row.
        """
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or self.processes.world > 1:
                raise
            if max(len(batch.inputs) for batch in batches) == 1:
                raise GlassError(
                    f"there is not enough memory for one row at a time ({str(error)[:200] or 'Python has none left'})",
                    "Lower model.context or the model's size; what was saved is intact.",
                ) from error
            self.count += 1
