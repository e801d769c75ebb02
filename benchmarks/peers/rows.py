"""What is measured, and how: all in turn, so that a machine that slows down slows everyone."""

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
    """What this process and those that it waited for have used, all threads together: others' work does not count."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "processor": processor_seconds}


@dataclass(frozen=True)
class Row:
    """One piece of work, done by several.

    Attributes:
        kind: of work: "training step".
        work: what exactly: "10.65 M, 64 x 256".
        unit: of the values.
        values: of each one, by turns; names that begin with "ours" are ours, the first of all is compared with.
        more_is_better: whether the largest value wins.
        facts: what else is worth keeping.
    """

    kind: str
    work: str
    unit: str
    values: dict[str, list[float]]
    more_is_better: bool = True
    facts: dict[str, Any] = field(default_factory=dict)

    def median(self, name: str) -> float:
        """Of one's turns."""
        return statistics.median(self.values[name])

    def ratios(self, name: str) -> list[float]:
        """How many times better ours is, turn by turn: 2 is twice the speed, or half the seconds or bytes."""
        pairs = zip(next(iter(self.values.values())), self.values[name], strict=True)
        return [own / other if self.more_is_better else other / own for own, other in pairs]

    def as_json(self) -> dict[str, Any]:
        """Everything measured, medians and ratios besides."""
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
    """Four digits."""
    return float(f"{value:.4g}")


def take_turns(work: dict[str, Callable[[], object]], repeats: int, clock: Clock) -> dict[str, list[float]]:
    """Seconds of every repeat of each; the first turn only warms up, and every other one goes backwards."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(repeats + 1):
        for name in list(work) if turn % 2 else reversed(work):
            start = clock()
            work[name]()
            if turn:
                seconds[name].append(clock() - start)
    return seconds


def in_a_process(script: str, facts: dict[str, Any]) -> dict[str, Any]:
    """What a script of this folder prints as JSON, in a process of its own that gets `facts`."""
    command = [sys.executable, str(HERE / f"{script}.py"), json.dumps(facts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{script} {facts} failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
