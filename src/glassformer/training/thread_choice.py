"""Choose the number of threads for training: try one thread and all threads, and use the faster number.

More threads can be slower if another program uses a core, or if the model is small. The last bits of sums depend on the
number of threads, so only runs with a time limit choose it; these are not reproducible anyway.
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
"""Wall seconds between two trials of the numbers of threads."""
STEPS = 2
"""Minimum number of timed steps per trial during training."""


class ThreadChoice:
    """Choice of the number of threads of a run.

    Attributes:
        now: chosen number of threads; during a trial, torch may use another number.
        tried: number of threads -> seconds per step in the last trial.

    Args:
        numbers: numbers of threads to choose from; the last one is in use at the start.
        note: prints a note on the choice.
        use: sets torch's number of threads.
    """

    def __init__(
        self, numbers: Sequence[int], note: Callable[[str], None], use: Callable[[int], None] = torch.set_num_threads
    ) -> None:
        self.numbers = tuple(numbers)
        self.note = note
        self.use = use
        self.now = self.numbers[-1]
        self.tried: dict[int, float] = {}
        self._next: float | None = None
        self._trials: list[int] = []
        self._times: list[float] = []
        self._found: dict[int, float] = {}

    def try_all(self, step: Callable[[int], object], seconds: float, clock: Seconds) -> None:
        """Try each number of threads before training, and use the fastest.

        Args:
            step: takes the training step with the given index, on a temporary model.
            seconds: time for each number of threads, after one warm-up step; if the warm-up step takes longer, its time
                is the result.
            clock: returns the time in seconds.
        """
        found: dict[int, float] = {}
        for number in self.numbers:
            self.use(number)
            began = clock()
            step(0)
            first = clock() - began
            found[number] = first if first > seconds else _seconds_per_step(step, seconds, clock)
        self._take(found)
        speeds = ", ".join(f"{counted(number, 'threads')} {took:.3g} s" for number, took in found.items())
        self.note(f"threads: {self.now}, the fastest of those tried ({speeds} per step)")

    def give_back(self) -> None:
        """Restore the number of threads that was in use before the choice."""
        self.use(self.numbers[-1])

    def stepped(self, took: float, now: float) -> None:
        """Record a training step, and set the number of threads for the next one.

        Args:
            took: seconds of the step.
            now: current wall second.
        """
        if self._next is None:
            self._next = now + EVERY
        if not self._trials:
            if now >= self._next:
                self._trials = [self.now, *(number for number in self.numbers if number != self.now)]
                self._begin_trial()
            return
        self._times.append(took)
        counted_steps = self._times[1:]  # without the warm-up step
        if len(counted_steps) < STEPS or sum(counted_steps) < TRIAL:
            return
        self._found[self._trials.pop(0)] = sum(counted_steps) / len(counted_steps)
        if self._trials:
            self._begin_trial()
            return
        before = self.now
        self._take(self._found)
        self._found = {}
        self._next = now + EVERY
        if self.now != before:
            self.note(f"threads: {before} -> {self.now}, which is now faster")

    def _begin_trial(self) -> None:
        self._times = []
        self.use(self._trials[0])

    def _take(self, found: dict[int, float]) -> None:
        self.tried = found
        self.now = min(found, key=lambda number: found[number])
        self.use(self.now)


def choice_of(config: Config, note: Callable[[str], None]) -> ThreadChoice | None:
    """Return the choice between one thread and all threads; None for a run that does not choose.

    A run chooses if it trains on a CPU with several threads, has a time limit, and `train.threads` is not set.
    """
    train = config.train
    every = torch.get_num_threads()
    if train.minutes is None or train.threads is not None or every == 1 or choose_device(train.device).type != "cpu":
        return None
    return ThreadChoice((1, every), note)


def _seconds_per_step(step: Callable[[int], object], seconds: float, clock: Seconds) -> float:
    began = clock()
    for number in itertools.count(1):
        step(number)
        took = clock() - began
        if took >= seconds:
            return took / number
    raise AssertionError("unreachable")


@contextmanager
def torch_state_restored() -> Iterator[None]:
    """Return a context that restores torch's random state and number of threads on exit."""
    threads = torch.get_num_threads()
    try:
        with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
            yield
    finally:
        torch.set_num_threads(threads)
