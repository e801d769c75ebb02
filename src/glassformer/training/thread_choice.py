"""Choose the number of threads for training: try one thread and all threads, and use the faster number.

More threads can be slower if another program uses a core, or if the model is small. The last bits of sums depend on the
number of threads, so only runs with a time limit choose it; such runs are not reproducible anyway.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from glassformer.base.config import Config
from glassformer.base.wording import counted
from glassformer.model.device import choose_device
from glassformer.training.clock import Seconds

TRIAL = 1.0
"""Seconds for each trial of a number of threads; before training, less if the run has little time left."""
EVERY = 300.0
"""Wall-clock seconds between two trials of the numbers of threads."""
STEPS = 2
"""Minimum number of timed steps per trial during training."""


class ThreadChoice:
    """Choice of the number of threads of a run.

    Attributes:
        current: chosen number of threads; during a trial, torch may use another number.
        tried: number of threads -> seconds per step in the last trial.

    Args:
        numbers: numbers of threads to choose from; the last one is in use at the start.
        note: function that prints a note on the choice.
        use: function that sets torch's number of threads.
    """

    def __init__(
        self, numbers: Sequence[int], note: Callable[[str], None], use: Callable[[int], None] = torch.set_num_threads
    ) -> None:
        self.numbers = tuple(numbers)
        self.note = note
        self.use = use
        self.current = self.numbers[-1]
        self.tried: dict[int, float] = {}
        self._next_trial: float | None = None
        self._untried: list[int] = []
        self._trial_times: list[float] = []
        self._trial_results: dict[int, float] = {}

    def try_all(self, step: Callable[[int], object], seconds: float, clock: Seconds) -> None:
        """Try each number of threads before training, and use the fastest.

        Args:
            step: function that takes the training step with the given index, on a temporary model.
            seconds: time for each number of threads, after one warm-up step; if the warm-up step takes longer, its time
                is the result.
            clock: function that returns the time in seconds.
        """
        seconds_per_step: dict[int, float] = {}
        for number in self.numbers:
            self.use(number)
            began = clock()
            step(0)
            warm_up_seconds = clock() - began
            seconds_per_step[number] = (
                warm_up_seconds if warm_up_seconds > seconds else _seconds_per_step(step, seconds, clock)
            )
        self._use_fastest(seconds_per_step)
        speeds = ", ".join(
            f"{counted(number, 'threads')} {step_seconds:.3g} s" for number, step_seconds in seconds_per_step.items()
        )
        self.note(f"threads: {self.current}, the fastest of those tried ({speeds} per step)")

    def restore(self) -> None:
        """Restore the number of threads that was in use before the choice."""
        self.use(self.numbers[-1])

    def stepped(self, step_seconds: float, now: float) -> None:
        """Record a training step, and set the number of threads for the next one.

        Args:
            step_seconds: seconds of the step.
            now: wall-clock seconds since the run began.
        """
        if self._next_trial is None:
            self._next_trial = now + EVERY
        if not self._untried:
            if now >= self._next_trial:
                self._untried = [self.current, *(number for number in self.numbers if number != self.current)]
                self._begin_trial()
            return
        self._trial_times.append(step_seconds)
        timed_steps = self._trial_times[1:]  # without the warm-up step
        if len(timed_steps) < STEPS or sum(timed_steps) < TRIAL:
            return
        self._trial_results[self._untried.pop(0)] = sum(timed_steps) / len(timed_steps)
        if self._untried:
            self._begin_trial()
            return
        previous = self.current
        self._use_fastest(self._trial_results)
        self._trial_results = {}
        self._next_trial = now + EVERY
        if self.current != previous:
            self.note(f"threads: {previous} -> {self.current}, which is now faster")

    def _begin_trial(self) -> None:
        self._trial_times = []
        self.use(self._untried[0])

    def _use_fastest(self, seconds_per_step: dict[int, float]) -> None:
        self.tried = seconds_per_step
        self.current = min(seconds_per_step, key=lambda number: seconds_per_step[number])
        self.use(self.current)


def choice_of(config: Config, note: Callable[[str], None]) -> ThreadChoice | None:
    """Return the choice between one thread and all threads; None for a run that does not choose.

    A run chooses if it trains on a CPU with several threads, has a time limit, and `train.threads` is not set.
    """
    train = config.train
    all_threads = torch.get_num_threads()
    if (
        train.minutes is None
        or train.threads is not None
        or all_threads == 1
        or choose_device(train.device).type != "cpu"
    ):
        return None
    return ThreadChoice((1, all_threads), note)


def _seconds_per_step(step: Callable[[int], object], seconds: float, clock: Seconds) -> float:
    began = clock()
    for number in itertools.count(1):
        step(number)
        elapsed = clock() - began
        if elapsed >= seconds:
            return elapsed / number
    raise AssertionError("unreachable")


@contextmanager
def thread_count_restored() -> Iterator[None]:
    """Return a context that restores torch's number of threads on exit."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
