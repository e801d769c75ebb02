"""Choose the examples of a step: any of them, or those of like length, so that little is padding.

Both are pure functions of (seed, step): nothing has to be saved for a run to go on as if it had never stopped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from glassformer.text.document_rows import shuffled

Lengths = npt.NDArray[np.int64]


class AnyLength:
    """`batch` examples a step, every example once an epoch, in an order that is shuffled anew each epoch."""

    def __init__(self, examples: int, batch: int, seed: int) -> None:
        self.examples = examples
        self.batch = batch
        self.seed = seed

    @property
    def steps_per_epoch(self) -> float:
        """Steps in which every example comes once."""
        return self.examples / self.batch

    def step(self, step: int) -> list[int]:
        """The examples of one step."""
        places = (divmod(step * self.batch + number, self.examples) for number in range(self.batch))
        return [shuffled(at, self.examples, self.seed, epoch) for epoch, at in places]


class LikeLength:
    """Examples of like length in one step, as many as fit in `tokens`, padding included.

    The examples are sorted by length and cut into batches; which of equally long ones comes where, and the order of
    the batches, are drawn anew each epoch. The cuts depend on the lengths alone, so every epoch has the same number.

    Args:
        lengths: (N, parts) tokens of each example, by part (source and target; or the text alone).
        tokens: most tokens of a batch, all parts together; an example longer than that is a batch of its own.
        seed: of the orders.
    """

    def __init__(self, lengths: npt.NDArray[np.integer[Any]], tokens: int, seed: int) -> None:
        self.lengths = lengths
        self.seed = seed
        self._cuts = _cuts(lengths[self._sorted(0)], tokens)
        self._order: tuple[int, npt.NDArray[np.int64]] | None = None

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which every example comes once."""
        return len(self._cuts) - 1

    def step(self, step: int) -> list[int]:
        """The examples of one step."""
        epoch, at = divmod(step, self.steps_per_epoch)
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, self._sorted(epoch))
        number = shuffled(at, self.steps_per_epoch, self.seed, epoch)
        return self._order[1][self._cuts[number] : self._cuts[number + 1]].tolist()

    def _sorted(self, epoch: int) -> npt.NDArray[np.int64]:
        """All examples by length (the last part first), equal ones in a random order."""
        key = np.array([self.seed % (1 << 64), epoch], dtype=np.uint64)
        chance = np.random.Philox(key=key).random_raw(len(self.lengths))
        return np.lexsort((chance, *self.lengths.T))


def _cuts(lengths: npt.NDArray[np.integer[Any]], tokens: int) -> list[int]:
    """Return the bounds of batches, for lengths (N, parts) in order."""
    cuts = [0]
    widest = np.zeros(lengths.shape[1], dtype=np.int64)
    for number, parts in enumerate(lengths):
        widest = np.maximum(widest, parts)
        if number > cuts[-1] and (number + 1 - cuts[-1]) * int(widest.sum()) > tokens:
            cuts.append(number)
            widest = parts.astype(np.int64)
    return [*cuts, len(lengths)]
