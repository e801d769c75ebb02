"""The clock of a run: wall time of its processes, from their start to now, earlier legs counted.

It runs on `time.monotonic`: a wall clock that is set forward or back changes nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glassformer.training.parallel.processes import Processes

Seconds = Callable[[], float]
"""Gives the seconds since something began."""


@dataclass
class Times:
    """Times that a run limited by minutes keeps in each checkpoint. A run without minutes leaves them as they are.

    Attributes:
        other: wall seconds beside training; a run has lasted `train_seconds + other`.
        evaluations: wall seconds of evaluations and their samples, and of measuring how long these take.
        began: wall second at which the first step began.
        rows: validation rows of an evaluation while training; None: all that the settings name.
        final_rows: validation rows of the final evaluation; None: not decided yet.
    """

    other: float = 0.0
    evaluations: float = 0.0
    began: float = 0.0
    rows: int | None = None
    final_rows: int | None = None


class RunClock:
    """Reads the wall seconds of a run; all of its processes get the same reading.

    Attributes:
        earlier: seconds of the legs before this one; time between legs does not count.
        now: the last reading.

    Args:
        here: the seconds of this leg in this process.
        processes: the processes that train this run together.
    """

    def __init__(self, here: Seconds, processes: Processes) -> None:
        self.here = here
        self.processes = processes
        self.earlier = 0.0
        self.now = 0.0

    def read(self) -> float:
        """Return the wall seconds of the run; the largest of all processes, which call this together."""
        self.now = self.earlier + self.processes.all_reduce_max(self.here())
        return self.now

    def lap(self) -> float:
        """Read the clock, and return the seconds since the reading before."""
        before = self.now
        return self.read() - before


def since(began: float | None = None) -> Seconds:
    """Return a function that gives the seconds since a reading of `time.monotonic`; None: since now."""
    start = time.monotonic() if began is None else began
    return lambda: time.monotonic() - start


def process_began() -> float:
    """Return what `time.monotonic` gave when this process began; what it gives now, where no system call tells."""
    return time.monotonic() - (_age() or 0.0)


def _age(stat: Path = Path("/proc/self/stat")) -> float | None:
    """Return the seconds since this process began; None where the system does not tell, or tells nonsense."""
    try:
        fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of proc(5): the first two precede ")"
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, AttributeError, ValueError, IndexError):
        return None
    return age if began > 0 and age >= 0 else None
