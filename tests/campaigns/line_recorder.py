"""Pytest plugin that runs chosen tests and records the outcome of each test and the lines of a file that it executes.

`faults.py` loads it in the source trees that it compares; the plugin imports nothing from the project.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

OPENED = 0
"""Entry that is recorded in place of a line number when a test opens the file."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("line recorder")
    group.addoption("--watch", help="file whose executed lines are recorded")
    group.addoption("--results", required=True, help="file to append one JSON object to for each test that ends")
    group.addoption("--cases", type=int, help="run at most this many cases of each test function, evenly spaced")
    group.addoption("--choice", help="JSON file with `ids` to run alone (or null for all) and ids to `leave_out`")


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder."""
    config.pluginmanager.register(Recorder(config))


class Recorder:
    """Recorder of the test that is running."""

    def __init__(self, config: pytest.Config) -> None:
        self.watched: str | None = config.getoption("--watch")
        self.results = Path(config.getoption("--results"))
        self.cases: int | None = config.getoption("--cases")
        self.choice: str | None = config.getoption("--choice")
        self.lines = set[int]()
        self.failed = False
        self.passed = False
        self.recording = False
        if self.watched is not None:
            sys.addaudithook(self._hear)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep only the chosen tests, and move those marked `thorough` to the end."""
        if self.choice is not None:
            choice = json.loads(Path(self.choice).read_text(encoding="utf-8"))
            chosen = [item for item in items if choice["ids"] is None or item.nodeid in choice["ids"]]
            items[:] = [item for item in chosen if item.nodeid not in choice["leave_out"]]
        if self.cases is not None:
            items[:] = spread(items, self.cases)
        items.sort(key=is_thorough)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a failure for a module that cannot be imported."""
        if report.failed:
            self._write({"id": report.nodeid, "passed": False, "failed": True, "thorough": False, "lines": []})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note whether a phase of the test failed, and whether the test function passed."""
        self.failed |= report.failed
        self.passed |= report.when == "call" and report.passed

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Trace one test and its fixtures, then write its record."""
        self.lines.clear()
        self.failed = False
        self.passed = False
        if self.watched is not None:
            self.recording = True
            threading.settrace(self._call)
            sys.settrace(self._call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self.recording = False
            self._write(
                {
                    "id": item.nodeid,
                    "passed": self.passed and not self.failed,
                    "failed": self.failed,
                    "thorough": is_thorough(item),
                    "lines": sorted(self.lines),
                }
            )

    def _write(self, record: dict[str, Any]) -> None:
        with self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Trace only the frames of the watched file."""
        return self._line if frame.f_code.co_filename == self.watched else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines.add(frame.f_lineno)
        return self._line

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.recording and event == "open" and str(arguments[0]) == self.watched:
            self.lines.add(OPENED)


def is_thorough(item: pytest.Item) -> bool:
    """Return whether a test is marked `thorough`, which excludes it from the quick suite."""
    return item.get_closest_marker("thorough") is not None


def spread(items: list[pytest.Item], count: int) -> list[pytest.Item]:
    """Return at most `count` evenly spaced cases of each test function."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = []
    for group in groups.values():
        steps = min(count, len(group))
        kept += [group[number * (len(group) - 1) // max(1, steps - 1)] for number in range(steps)]
    return kept
