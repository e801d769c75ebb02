"""A task that mixes rows of another text into training, so that the model forgets less of that text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from glassformer.base.config import SampleConfig
from glassformer.model.transformer import Model
from glassformer.tasks.task import Task
from glassformer.text.rows import Row


@dataclass(frozen=True)
class MixedTask:
    """A task that takes a fraction of its training rows from another task; validation and samples are unchanged.

    Attributes:
        main_task: the task of the run.
        other_task: the task that provides the other rows; it needs the same type of model head as `main_task`.
        other_fraction: probability that a row, or a whole step, comes from `other_task`.
        seed: seed of the random choice.
        whole_steps: whether to choose between the tasks once per step instead of per row, which reduces padding if the
            rows of a step have similar lengths.
    """

    main_task: Task
    other_task: Task
    other_fraction: float
    seed: int
    whole_steps: bool

    @property
    def unit(self) -> str:
        """Return the unit of the main task."""
        return self.main_task.unit

    @property
    def choices(self) -> int:
        """Return the number of possible outcomes of a prediction in the main task."""
        return self.main_task.choices

    @property
    def validation_bytes(self) -> int | None:
        """Return the size in bytes of the predicted validation text of the main task; None if undefined."""
        return self.main_task.validation_bytes

    @property
    def unknown_share(self) -> float:
        """Return the fraction of unknown tokens that the main task reports for its validation split."""
        return self.main_task.unknown_share

    @property
    def steps_per_epoch(self) -> float:
        """Return the expected number of steps in one pass over the training split of the main task."""
        return self.main_task.steps_per_epoch / (1 - self.other_fraction)

    def rows(self, step: int) -> Sequence[Row]:
        """Return the rows of a step; each row, or the step, is from `other_task` with probability `other_fraction`."""
        random = np.random.default_rng((self.seed, step))
        if self.whole_steps:
            return (self.other_task if random.random() < self.other_fraction else self.main_task).rows(step)
        rows = list(self.main_task.rows(step))
        others = self.other_task.rows(step)
        replaced = random.random(len(rows)) < self.other_fraction
        return [others[index % len(others)] if replaced[index] else row for index, row in enumerate(rows)]

    def held_out(self, limit: int | None) -> Sequence[Row]:
        """Return validation rows of the main task."""
        return self.main_task.held_out(limit)

    def sample(self, model: Model, settings: SampleConfig) -> tuple[str, str]:
        """Return a sample of the main task."""
        return self.main_task.sample(model, settings)

    def concerns(self, model: Model, loss: Callable[[Sequence[Row]], float]) -> Iterator[str]:
        """Yield the concerns of the main task."""
        return self.main_task.concerns(model, loss)
