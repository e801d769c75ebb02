"""Time limit of a run: measure the costs of the run, and decide when to evaluate and when to stop.

`Pace` is for runs with `train.minutes`; `Untimed` has the same interface for runs without a time limit.
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
"""Number of recent steps whose mean time predicts the time of the next step."""
TRIAL_SHARE = 1 / 200
LONGEST_TRIAL = 0.5
"""The speed of evaluation is measured on more and more rows, until a measurement takes the fraction `TRIAL_SHARE` of
the time limit or `LONGEST_TRIAL` seconds, whichever is less, or uses all rows."""


class Pace:
    """Clock and time budget of one run. All processes must call the same methods in the same order.

    Args:
        minutes: `train.minutes`.
        clock: clock of the run.
        wanted_rows: number of validation rows per evaluation according to the settings.
        all_rows: number of rows in the validation split.
    """

    def __init__(self, minutes: float, clock: RunClock, wanted_rows: int, all_rows: int) -> None:
        self.clock = clock
        self.budget = Budget(60 * minutes, wanted_rows, all_rows)
        self.state = TrainState()
        self._recent_steps: deque[float] = deque(maxlen=RECENT)

    def follow(self, state: TrainState) -> None:
        """Continue from a state of the run, including the times of earlier legs.

        If the state has no wall times (a run without a time limit), its training seconds are used.
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
        """Return the wall seconds of the run at the last reading of the clock."""
        return self.clock.now

    @property
    def rows(self) -> int:
        """Return the number of validation rows in an evaluation during training."""
        chosen_rows = self.state.times.rows
        return self.budget.wanted_rows if chosen_rows is None else min(chosen_rows, self.budget.wanted_rows)

    def part(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return the evenly spaced rows that an evaluation during training uses."""
        return evenly(rows, self.rows)

    def must_end(self) -> bool:
        """Return whether training must end now; at least one step is taken."""
        return self.state.step > 0 and self.budget.must_end(self.clock.now, self.rows)

    def fraction_done(self) -> float:
        """Return the fraction of training that is done, for the learning-rate schedule."""
        return self.budget.fraction_done(self.clock.now, self.state.times.began, self.rows)

    def seconds_left(self) -> float:
        """Return the seconds until the time limit."""
        return max(0.0, self.budget.seconds - self.clock.now)

    def allows_evaluation(self) -> bool:
        """Return whether there is time for an evaluation that is due."""
        first = not self.state.evaluations
        return self.budget.allows_evaluation(self.clock.now, self.state.times.evaluations, self.rows, first)

    def measure(self, loss: Callable[[int], object], sample: Callable[[], float]) -> None:
        """Measure the cost of an evaluation, choose its rows before the first one, and call `training_begins`.

        Args:
            loss: function that computes the loss over the given number of rows.
            sample: function that generates a short sample, and returns the length of a full sample divided by that of
                the short one.
        """
        self.clock.read()
        self.budget.row = self._seconds_per_row(loss, self.budget.all_rows)
        sample()  # warm-up
        self._count_evaluation_seconds()
        length_ratio = sample()
        self.budget.sample = length_ratio * self._count_evaluation_seconds()
        times = self.state.times
        if times.rows is None and not self.state.evaluations:
            times.rows = self.budget.rows()
        self.training_begins()

    def training_begins(self) -> None:
        """Record the current time as the start of training if no step was taken yet."""
        if self.state.step == 0:
            self.state.times.began = self.clock.now

    def _seconds_per_row(self, loss: Callable[[int], object], max_rows: int) -> float:
        """Return the seconds per row that `loss` takes; it is called with numbers of rows up to `max_rows`."""
        trial_seconds = min(LONGEST_TRIAL, TRIAL_SHARE * self.budget.seconds)
        count = 1
        while True:
            loss(count)
            seconds = self._count_evaluation_seconds()
            if seconds >= trial_seconds or count == max_rows:
                return seconds / count
            count = min(max_rows, 2 * count)

    def _count_evaluation_seconds(self) -> float:
        """Return the seconds since the last reading of the clock, and count them as evaluation time."""
        seconds = self.clock.read_elapsed()
        self.state.times.evaluations += seconds
        return seconds

    def stepped(self) -> float:
        """Record the end of a step, and return its duration in seconds."""
        seconds = self.clock.read_elapsed()
        self._recent_steps.append(seconds)
        self.budget.step = sum(self._recent_steps) / len(self._recent_steps)
        return seconds

    def evaluated(self, rows: int) -> None:
        """Record the time of the loss just computed over `rows` rows."""
        self.budget.row = self._count_evaluation_seconds() / rows

    def sampled(self) -> None:
        """Record the time of the sample just generated."""
        self.budget.sample = self._count_evaluation_seconds()

    def parents_text_measured(self) -> None:
        """Record the time of the loss on the parent's text, which is computed again at the end."""
        self.budget.parents_text = self._count_evaluation_seconds()

    def reserve_for_parents_text(self, loss: Callable[[int], object], rows: int) -> None:
        """Estimate the time of the loss on the parent's text at the end; called in a resumed leg.

        Args:
            loss: function that computes the loss over the given number of rows.
            rows: number of rows of the parent's text on which the loss was computed before the first step.
        """
        self.budget.parents_text = rows * self._seconds_per_row(loss, rows)

    def saving(self, last: bool) -> None:
        """Update the times in the state before it is saved.

        The times include an estimate of the time to save the state and, if `last`, of the work after that.
        """
        times = self.state.times
        now = self.clock.read() + self.budget.save
        if last:
            times.final_rows = self.budget.final_rows(now)
            end = now + self.budget.final(times.final_rows)
            now = max(end, self.budget.seconds) if self.must_end() else end  # a resumed run must be over too
        times.other = now - self.state.train_seconds

    def saved(self) -> None:
        """Record the time of the checkpoint just written."""
        self.budget.save = self.clock.read_elapsed()

    @property
    def is_final_part_known(self) -> bool:
        """Return whether the rows of the final evaluation were chosen when the last step was saved.

        The rows were not chosen if training was not yet over when this step was saved, for example because a signal
        stopped the run.
        """
        return self.state.times.final_rows is not None

    def final_part(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return the evenly spaced rows that the final evaluation uses."""
        if self.state.times.final_rows is None:
            self.state.times.final_rows = self.budget.final_rows(self.clock.read())
        return evenly(rows, min(self.state.times.final_rows, self.budget.all_rows))

    def overrun(self) -> str | None:
        """Return a note with the shortest useful time limit if the run took over 1.1 times its limit, else None."""
        seconds = self.clock.read() + self.budget.reserved_seconds
        if seconds <= 1.1 * self.budget.seconds:
            return None
        least_minutes = self.budget.least_minutes(self.state.times.began, self.rows)
        taken = f"{seconds / 60:{'.2g' if seconds < 600 else ',.0f'}}"
        unit = "minute" if taken == "1" else "minutes"
        return (
            f"the run took {taken} {unit}, more than train.minutes = {self.budget.seconds / 60:g}: "
            f"give at least --minutes {least_minutes:g} on this machine"
        )


class Untimed:
    """Replacement for `Pace` in runs without a time limit; it measures nothing and allows every evaluation."""

    earlier = 0.0
    now = 0.0
    is_final_part_known = True

    def follow(self, state: TrainState) -> None:
        """Do nothing: there is no clock."""

    def part(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return all rows of an evaluation."""
        return rows

    def must_end(self) -> bool:
        """Return False: there is no time limit."""
        return False

    def fraction_done(self) -> None:
        """Return None: progress does not depend on time."""

    def seconds_left(self) -> None:
        """Return None: there is no time limit."""

    def allows_evaluation(self) -> bool:
        """Return True: every evaluation that is due takes place."""
        return True

    def measure(self, loss: Callable[[int], object], sample: Callable[[], float]) -> None:
        """Do nothing: `loss` and `sample` are not called."""

    def stepped(self) -> float:
        """Return 0: steps are not timed."""
        return 0.0

    def evaluated(self, rows: int) -> None:
        """Do nothing: evaluations are not timed."""

    def sampled(self) -> None:
        """Do nothing: samples are not timed."""

    def training_begins(self) -> None:
        """Do nothing: the start of training is not recorded."""

    def parents_text_measured(self) -> None:
        """Do nothing: the loss on the parent's text is not timed."""

    def reserve_for_parents_text(self, loss: Callable[[int], object], rows: int) -> None:
        """Do nothing: `loss` is not called."""

    def saving(self, last: bool) -> None:
        """Do nothing: no times are saved."""

    def saved(self) -> None:
        """Do nothing: no time is reserved for the next checkpoint."""

    def final_part(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return all rows, the whole validation split."""
        return rows

    def overrun(self) -> None:
        """Return None: there is no time limit to exceed."""


def evenly(rows: Sequence[Any], count: int) -> Sequence[Any]:
    """Return `count` evenly spaced rows, or all rows if there are at most `count`."""
    if count >= len(rows):
        return rows
    return LazyRows(range(count), lambda number: rows[number * len(rows) // count])
