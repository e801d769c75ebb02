"""Clock of a run: wall time since the start of its processes, including earlier legs (see `legs`).

It uses `time.monotonic`, so changes to the system time have no effect.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glassformer.training.parallel.processes import Processes

Seconds = Callable[[], float]
"""Function that returns the seconds since a fixed moment."""


class RunClock:
    """Clock that measures the wall seconds of a run; all processes get the same reading.

    Attributes:
        earlier: wall seconds of the legs before this one, without the time between legs.
        now: the last reading.

    Args:
        leg_seconds: function that returns the seconds of this leg in this process.
        processes: the processes of the run.
    """

    def __init__(self, leg_seconds: Seconds, processes: Processes) -> None:
        self.leg_seconds = leg_seconds
        self.processes = processes
        self.earlier = 0.0
        self.now = 0.0

    def read(self) -> float:
        """Return the wall seconds of the run, the maximum over all processes; every process must call this."""
        self.now = self.earlier + self.processes.all_reduce_max(self.leg_seconds())
        return self.now

    def read_elapsed(self) -> float:
        """Read the clock, and return the seconds since the last reading."""
        before = self.now
        return self.read() - before


def since(began: float | None = None) -> Seconds:
    """Return a function that returns the seconds since `began`, a value of `time.monotonic`; None: since this call."""
    start = time.monotonic() if began is None else began
    return lambda: time.monotonic() - start


def process_began() -> float:
    """Return the value of `time.monotonic` at the start of this process; if that is unknown, the current value."""
    return time.monotonic() - (_process_age() or 0.0)


def _process_age(stat: Path = Path("/proc/self/stat")) -> float | None:
    """Return the seconds since this process began; None if the system does not report it or the value is invalid."""
    try:
        fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of proc(5): the first two precede ")"
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, AttributeError, ValueError, IndexError):
        return None
    return age if began > 0 and age >= 0 else None
