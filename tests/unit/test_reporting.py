"""The output that a user sees during training."""

from __future__ import annotations

import sys

import pytest

from glassformer.training.reporting import OnlyWarnings, PlainLines, Status, choose_reporter, duration


def status(step: int, **changes: float | None) -> Status:
    """Return the status of a run of 100 steps."""
    facts: dict[str, float | None] = {"fraction_done": step / 100, "loss": 2.34567, "validation_loss": None} | changes
    return Status(step=step, learning_rate=1e-3, tokens_per_second=123456.7, seconds_left=4000.0, **facts)  # type: ignore[arg-type]


def test_a_full_progress_bar_fits_80_columns() -> None:
    bar = 7
    space = 1
    assert bar + space + len(status(99999, validation_loss=2.3456).short()) <= 80


def test_plain_lines_come_at_each_evaluation_and_each_tenth_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = PlainLines()
    for step in range(1, 101):
        reporter.status(status(step, validation_loss=None if step < 55 else 2.0))
    steps = [int(line.split()[1]) for line in capsys.readouterr().err.splitlines()]
    assert 55 in steps
    assert len(steps) == 11


def test_without_standard_error_only_warnings_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert isinstance(choose_reporter(), OnlyWarnings)


def test_durations_are_readable() -> None:
    assert [duration(seconds) for seconds in (0.4, 59.4, 75, 3700)] == ["0s", "59s", "1m 15s", "1h 1m"]
