"""Choose how many threads training uses: try one thread and all, and take the faster number.

More threads are slower where another program keeps a core busy, or where a model is small. The bits of sums depend on
their number, so only runs limited by minutes choose, which follow the clock anyway.
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
"""Seconds for which each number is tried."""
EVERY = 300.0
"""Wall seconds after which the numbers are tried again."""
STEPS = 2
"""Least counted steps of a trial while training."""


class ThreadChoice:
    """The number of threads of a run, chosen among a few.

    Attributes:
        now: the number in use.
        tried: number -> seconds of a step, when they were last tried.

    Args:
        numbers: to choose from; the last is in use.
        note: is told what is chosen.
        use: makes torch use so many threads.
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
        """Try each number before training, and use the fastest.

        Args:
            step: takes a training step by its number, on a copy that is thrown away.
            seconds: for which each number is tried, after one step to warm up. If that step takes longer, it counts.
            clock: tells how long steps take.
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
        self.note(f"threads: {self.now}, the faster of those tried ({speeds} a step)")

    def give_back(self) -> None:
        """Use as many threads as before the choice."""
        self.use(self.numbers[-1])

    def stepped(self, took: float, now: float) -> None:
        """Count a step of training, and set the threads of the next one.

        Args:
            took: its seconds.
            now: the wall second.
        """
        if self._next is None:
            self._next = now + EVERY
        if not self._trials:
            if now >= self._next:
                self._trials = [self.now, *(number for number in self.numbers if number != self.now)]
                self._begin_trial()
            return
        self._times.append(took)
        counted_steps = self._times[1:]  # the first one warms up
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
            self.note(f"threads: {before} -> {self.now}, which is faster now")

    def _begin_trial(self) -> None:
        self._times = []
        self.use(self._trials[0])

    def _take(self, found: dict[int, float]) -> None:
        self.tried = found
        self.now = min(found, key=lambda number: found[number])
        self.use(self.now)


def choice_of(config: Config, note: Callable[[str], None]) -> ThreadChoice | None:
    """Return the choice between one thread and all; None for a run that does not choose.

    A run chooses on a CPU with several threads, if minutes limit it and no number of threads is set.
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
    """Restore the random state and the number of threads of torch afterwards, for callers from Python."""
    threads = torch.get_num_threads()
    try:
        with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
            yield
    finally:
        torch.set_num_threads(threads)
