"""Rows of results, and measurement in turns, so that a slower machine affects all libraries equally."""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OURS = "ours"
Options = argparse.Namespace
Clock = Callable[[], float]


def processor_seconds() -> float:
    """Return the CPU seconds of this process and its finished child processes, over all threads."""
    used = [resource.getrusage(process) for process in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "processor": processor_seconds}


@dataclass(frozen=True)
class Row:
    """Results of one measurement for several libraries.

    Attributes:
        kind: kind of the measurement, such as "training step".
        work: details of the measurement, such as "10.65 M, 64 x 256".
        unit: unit of the values.
        values: name of each library -> its value in each turn. Names that begin with "ours" are our variants; the
            ratios compare the first entry with each peer.
        more_is_better: whether larger values are better.
        facts: additional facts to record.
    """

    kind: str
    work: str
    unit: str
    values: dict[str, list[float]]
    more_is_better: bool = True
    facts: dict[str, Any] = field(default_factory=dict)

    def median(self, name: str) -> float:
        """Return the median over the turns of one library."""
        return statistics.median(self.values[name])

    def ratios(self, name: str) -> list[float]:
        """Return how many times better the first library is than `name` in each turn.

        2 means twice the speed, or half the seconds or bytes.
        """
        pairs = zip(next(iter(self.values.values())), self.values[name], strict=True)
        return [own / other if self.more_is_better else other / own for own, other in pairs]

    def as_json(self) -> dict[str, Any]:
        """Return the values as JSON values, with medians and ratios."""
        names = [name for name in self.values if not name.startswith(OURS)]
        ratios = {name: self.ratios(name) for name in names}
        return {
            "kind": self.kind,
            "work": self.work,
            "unit": self.unit,
            "median": {name: _short(self.median(name)) for name in self.values},
            "ratio": {
                name: {
                    "median": _short(statistics.median(each)),
                    "lowest": _short(min(each)),
                    "highest": _short(max(each)),
                }
                for name, each in ratios.items()
            },
            "turns": {name: [_short(value) for value in each] for name, each in self.values.items()},
            **self.facts,
        }


def _short(value: float) -> float:
    """Round to four significant digits."""
    return float(f"{value:.4g}")


def take_turns(work: dict[str, Callable[[], object]], repeats: int, clock: Clock) -> dict[str, list[float]]:
    """Return the seconds of every repeat; the first turn is a warm-up, and every other turn is in reverse order."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(repeats + 1):
        for name in list(work) if turn % 2 else reversed(work):
            start = clock()
            work[name]()
            if turn:
                seconds[name].append(clock() - start)
    return seconds


def in_a_process(script: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Run a script of this folder with `facts` in a separate process, and return its JSON output."""
    command = [sys.executable, str(HERE / f"{script}.py"), json.dumps(facts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{script} {facts} failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
