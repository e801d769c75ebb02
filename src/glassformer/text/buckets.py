"""Choose the examples of each training step: of any length, or of similar length to reduce padding.

Both choices depend only on the examples, the settings and the step, so training resumes exactly without saved state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from glassformer.text.document_rows import shuffled


class AnyLength:
    """Batches of `batch` examples of any length. Each epoch contains every example once, in a new random order."""

    def __init__(self, examples: int, batch: int, seed: int) -> None:
        self.examples = examples
        self.batch = batch
        self.seed = seed

    @property
    def steps_per_epoch(self) -> float:
        """Return the number of steps in an epoch, which need not be a whole number."""
        return self.examples / self.batch

    def step(self, step: int) -> list[int]:
        """Return the indices of the examples of one step."""
        positions = (divmod(step * self.batch + number, self.examples) for number in range(self.batch))
        return [shuffled(position, self.examples, self.seed, epoch) for epoch, position in positions]


class LengthGroupedBatches:
    """Batches of examples of similar length, as many as fit in `tokens` tokens, padding included.

    The examples are sorted by length and cut into batches. The order of equally long examples and the order of the
    batches are reshuffled in each epoch. The cuts depend only on the lengths and on `tokens`, so every epoch has the
    same number of batches.

    Args:
        lengths: (N, parts) number of tokens in each part of each example (source and target, or only the text).
        tokens: maximum number of tokens in a batch, over all parts; a longer example is the only one in its batch.
        seed: seed of the random orders.
    """

    def __init__(self, lengths: npt.NDArray[np.integer[Any]], tokens: int, seed: int) -> None:
        self.lengths = lengths
        self.seed = seed
        self._batch_bounds = _batch_bounds(lengths[self._sorted(0)], tokens)
        self._order: tuple[int, npt.NDArray[np.int64]] | None = None

    @property
    def steps_per_epoch(self) -> int:
        """Return the number of steps in an epoch."""
        return len(self._batch_bounds) - 1

    def step(self, step: int) -> list[int]:
        """Return the indices of the examples of one step."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, self._sorted(epoch))
        number = shuffled(position, self.steps_per_epoch, self.seed, epoch)
        return self._order[1][self._batch_bounds[number] : self._batch_bounds[number + 1]].tolist()

    def _sorted(self, epoch: int) -> npt.NDArray[np.int64]:
        """Return all examples sorted by the length of the last part, then of the first; ties are in random order."""
        key = np.array([self.seed % (1 << 64), epoch], dtype=np.uint64)
        random = np.random.Philox(key=key).random_raw(len(self.lengths))
        return np.lexsort((random, *self.lengths.T))


def _batch_bounds(lengths: npt.NDArray[np.integer[Any]], tokens: int) -> list[int]:
    """Return the bounds of batches of at most `tokens` tokens, for sorted lengths (N, parts)."""
    bounds = [0]
    widest = np.zeros(lengths.shape[1], dtype=np.int64)
    for number, parts in enumerate(lengths):
        widest = np.maximum(widest, parts)
        if number > bounds[-1] and (number + 1 - bounds[-1]) * int(widest.sum()) > tokens:
            bounds.append(number)
            widest = parts.astype(np.int64)
    return [*bounds, len(lengths)]
