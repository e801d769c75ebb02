"""The clock of a run starts with its process, continues when the run is resumed, and is independent of the wall
clock."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from glassformer.training import clock
from glassformer.training.clock import RunClock, process_began, since
from glassformer.training.parallel.processes import OneProcess

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")


class Fake:
    """A clock that a test sets."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_the_start_of_the_process_is_fixed() -> None:
    first = process_began()
    assert first <= time.monotonic()
    assert process_began() == pytest.approx(first, abs=0.5)  # the system counts in hundredths of a second


@LINUX
def test_the_start_of_a_process_is_measured() -> None:
    before = time.monotonic()
    code = "from glassformer.training.clock import process_began; print(process_began())"
    began = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert before - 0.05 <= began <= time.monotonic()


@LINUX
def test_the_age_is_parsed_after_the_program_name(tmp_path: Path) -> None:
    """The program name may contain spaces and parentheses: proc(5)."""
    import os

    ticks = os.sysconf("SC_CLK_TCK")
    began = int((time.clock_gettime(time.CLOCK_BOOTTIME) - 7.0) * ticks)
    stat = tmp_path / "stat"
    stat.write_text(f"41 (a) b (c) S {' '.join(map(str, range(1, 19)))} {began} 99 98\n", encoding="utf-8")
    assert clock._process_age(stat) == pytest.approx(7.0, abs=0.5)


@pytest.mark.parametrize(
    "content",
    [None, "", "1 (x) S 2 3", "1 (x) S " + "z " * 30, "1 (x) S " + "0 " * 30, "1 (x) S " + "99999999999999 " * 30],
)
def test_without_system_information_the_process_starts_now(content: str | None, tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    if content is not None:
        stat.write_text(content, encoding="utf-8")
    assert clock._process_age(stat) is None


def test_the_wall_clock_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = since()
    monkeypatch.setattr(time, "time", lambda: 1e12)
    assert 0 <= seconds() < 1e6


def test_seconds_count_from_a_reading() -> None:
    assert since(time.monotonic() - 100.0)() >= 100.0


def test_earlier_processes_are_added_and_laps_are_consecutive() -> None:
    here = Fake(2.0)
    run = RunClock(here, OneProcess())
    run.earlier = 40.0
    assert run.read() == 42.0
    here.now = 5.0
    assert run.now == 42.0  # a reading stays until the next one
    assert run.read_elapsed() == 3.0
    assert run.now == 45.0


def test_all_processes_use_the_reading_of_the_slowest() -> None:
    class Three(OneProcess):
        def all_reduce_max(self, number: float) -> float:
            return max(number, 6.5, 1.0)

    run = RunClock(Fake(2.0), Three())
    assert run.read() == 6.5
