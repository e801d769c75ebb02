"""Keep a run to its minutes: measure how long things take, and tell the training loop what to do next.

`Pace` is the clock and the budget of such a run; `Untimed` answers the same questions for a run without minutes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from glassformer.tasks.task import LazyRows
from glassformer.training.budget import Budget
from glassformer.training.checkpoint import TrainState
from glassformer.training.clock import RunClock

RECENT = 8
"""Steps whose mean time foretells that of the next one."""
TRIAL_SHARE = 1 / 200
LONGEST_TRIAL = 0.5
"""Seconds for which the speed of evaluation is measured before the first step, and the share of the minutes at most."""


class Pace:
    """The clock and the budget of one run. All of its processes call the same methods in the same order.

    Args:
        minutes: `train.minutes`.
        clock: of the run.
        wanted_rows: validation rows of an evaluation, as the settings have it.
        all_rows: rows of the validation part.
    """

    def __init__(self, minutes: float, clock: RunClock, wanted_rows: int, all_rows: int) -> None:
        self.clock = clock
        self.budget = Budget(60 * minutes, wanted_rows, all_rows)
        self.state = TrainState()
        self._recent: deque[float] = deque(maxlen=RECENT)

    def follow(self, state: TrainState) -> None:
        """Count for this run, whose earlier legs have their time in `state`.

        A checkpoint that keeps no wall time, of an older version or of a run without minutes, counts its seconds of
        training.
        """
        self.state = state
        self.clock.earlier = state.train_seconds + state.times.other
        self.clock.read()

    @property
    def earlier(self) -> float:
        """Return the wall seconds of the legs before this one."""
        return self.clock.earlier

    @property
    def now(self) -> float:
        """Return the wall second of the last reading."""
        return self.clock.now

    @property
    def rows(self) -> int:
        """Return the number of validation rows of an evaluation while training."""
        chosen = self.state.times.rows
        return self.budget.wanted_rows if chosen is None else min(chosen, self.budget.wanted_rows)

    def part(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return those of the rows, evenly spaced, that an evaluation while training has time for."""
        return evenly(rows, self.rows)

    def over(self) -> bool:
        """Return whether training is to end now, after one step at least."""
        return self.state.step > 0 and self.budget.over(self.clock.now, self.rows)

    def share(self) -> float:
        """Return how much of training is over, for the schedule."""
        return self.budget.share(self.clock.now, self.state.times.began, self.rows)

    def seconds_left(self) -> float:
        """Return the seconds to the end of the run."""
        return max(0.0, self.budget.seconds - self.clock.now)

    def allows_evaluation(self) -> bool:
        """Return whether an evaluation that is due is made."""
        first = not self.state.evaluations
        return self.budget.allows_evaluation(self.clock.now, self.state.times.evaluations, self.rows, first)

    def measure(self, loss: Callable[[int], object], sample: Callable[[], float]) -> None:
        """Measure what an evaluation takes, and choose its rows if the run has not; training begins then.

        Args:
            loss: measures the loss over so many rows.
            sample: writes a short sample; returns how many times as long a whole one is.
        """
        self.clock.read()
        self.budget.row = self._seconds_per_row(loss, self.budget.all_rows)
        sample()  # warms up
        self._spent()
        factor = sample()
        self.budget.sample = factor * self._spent()
        times = self.state.times
        if times.rows is None and not self.state.evaluations:
            times.rows = self.budget.rows()
        self.training_begins()

    def training_begins(self) -> None:
        """Count training from now on, if no step was taken yet."""
        if self.state.step == 0:
            self.state.times.began = self.clock.now

    def _seconds_per_row(self, loss: Callable[[int], object], most: int) -> float:
        """Return the seconds of the loss per row; `loss` measures it over so many of `most` rows."""
        enough = min(LONGEST_TRIAL, TRIAL_SHARE * self.budget.seconds)
        count = 1
        while True:
            loss(count)
            took = self._spent()
            if took >= enough or count == most:
                return took / count
            count = min(most, 2 * count)

    def _spent(self) -> float:
        """Return the seconds since the last reading, counted as evaluation."""
        took = self.clock.lap()
        self.state.times.evaluations += took
        return took

    def stepped(self) -> float:
        """Return the seconds of the step that has ended."""
        took = self.clock.lap()
        self._recent.append(took)
        self.budget.step = sum(self._recent) / len(self._recent)
        return took

    def evaluated(self, rows: int) -> None:
        """The loss over so many rows was measured."""
        self.budget.row = self._spent() / rows

    def sampled(self) -> None:
        """Measure the seconds of the sample just written."""
        self.budget.sample = self._spent()

    def parents_text_measured(self) -> None:
        """Measure the seconds of the loss on the text of the run's parent, which is measured again at the end."""
        self.budget.parents_text = self._spent()

    def reserve_for_parents_text(self, loss: Callable[[int], object], rows: int) -> None:
        """Measure, in a resumed leg, what the loss on the text of the run's parent will take at the end.

        Args:
            loss: measures the loss over so many of the rows.
            rows: of the parent's text, as many as were measured before the first step.
        """
        self.budget.parents_text = rows * self._seconds_per_row(loss, rows)

    def saving(self, last: bool) -> None:
        """Put into the state what the checkpoint keeps. Its writing counts as foreseen, and what follows the `last`."""
        times = self.state.times
        now = self.clock.read() + self.budget.save
        if last:
            times.final_rows = self.budget.final_rows(now)
            ended = now + self.budget.final(times.final_rows)
            now = max(ended, self.budget.seconds) if self.over() else ended  # resumed, it is still over
        times.other = now - self.state.train_seconds

    def saved(self) -> None:
        """Measure the seconds of the checkpoint just written."""
        self.budget.save = self.clock.lap()

    @property
    def is_final_part_known(self) -> bool:
        """Return whether the final evaluation's rows are chosen; not if an older version or a signal ended the leg."""
        return self.state.times.final_rows is not None

    def final_part(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return those of the rows, evenly spaced, that the final evaluation has time for."""
        if self.state.times.final_rows is None:
            self.state.times.final_rows = self.budget.final_rows(self.clock.read())
        return evenly(rows, min(self.state.times.final_rows, self.budget.all_rows))

    def overrun(self) -> str | None:
        """Return a note for a run that took longer than its minutes, with the least that makes sense; else None."""
        seconds = self.clock.read() + self.budget.rest
        if seconds <= 1.1 * self.budget.seconds:
            return None
        least = self.budget.least_minutes(self.state.times.began, self.rows)
        return (
            f"this took {seconds / 60:.2g} minutes, longer than train.minutes = {self.budget.seconds / 60:g}: "
            f"--minutes {least:g} is the least that leaves time to train here"
        )


class Untimed:
    """Stands in for `Pace` where minutes limit nothing: it measures nothing, and has time for everything."""

    earlier = 0.0
    now = 0.0
    is_final_part_known = True

    def follow(self, state: TrainState) -> None:
        """Do nothing: no clock runs, so a resumed run has none to go on with."""

    def part(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return all rows of an evaluation: none is left out to save time."""
        return rows

    def over(self) -> bool:
        """Return False: time does not end training."""
        return False

    def share(self) -> None:
        """Return None: time says nothing of how much of training is over."""

    def seconds_left(self) -> None:
        """Return None: time ends nothing."""

    def allows_evaluation(self) -> bool:
        """Return True: every evaluation that is due is made."""
        return True

    def measure(self, loss: Callable[[int], object], sample: Callable[[], float]) -> None:
        """Call neither `loss` nor `sample`: nothing is measured."""

    def stepped(self) -> float:
        """Return 0: nobody asks how long steps take."""
        return 0.0

    def evaluated(self, rows: int) -> None:
        """Do nothing: how long an evaluation took changes no later one."""

    def sampled(self) -> None:
        """Do nothing: how long a sample took changes no later one."""

    def training_begins(self) -> None:
        """Ignore when training begins."""

    def parents_text_measured(self) -> None:
        """Ignore the loss on the parent's text."""

    def reserve_for_parents_text(self, loss: Callable[[int], object], rows: int) -> None:
        """Do not call `loss`: nothing is measured."""

    def saving(self, last: bool) -> None:
        """Leave the state as it is."""

    def saved(self) -> None:
        """Do nothing: no time is reserved for the next checkpoint."""

    def final_part(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return all rows: the last evaluation is on the whole validation part."""
        return rows

    def overrun(self) -> None:
        """Return None: there is no time limit to exceed."""


def evenly(rows: Sequence[Any], count: int) -> Sequence[Any]:
    """Return so many rows, evenly spaced over all; all of them if there are no more."""
    if count >= len(rows):
        return rows
    return LazyRows(range(count), lambda number: rows[number * len(rows) // count])
