"""The output of a report: text, or one JSON object on one line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from glassformer.base.report import SimpleReport, emit


def test_a_report_is_text_or_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    report = SimpleReport({"text": "বাংলা", "path": "a\nb"}, ["first", "second"])
    emit(report, as_json=False)
    assert capsys.readouterr().out == "first\nsecond\n"
    emit(report, as_json=True)
    printed = capsys.readouterr().out
    assert printed == '{"text": "বাংলা", "path": "a\\nb"}\n'
    assert json.loads(printed) == report.facts()


def test_numbers_that_json_does_not_know_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    fields = {"loss": math.nan, "rows": [{"ratio": -math.inf, "count": 3}], "span": (1.5, math.inf)}
    emit(SimpleReport(fields, []), as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "loss": None,
        "rows": [{"ratio": None, "count": 3}],
        "span": [1.5, None],
    }


def test_commands_write_json_only_through_emit() -> None:
    commands = Path(__file__).parents[2] / "src" / "glassformer" / "app" / "cli"
    found = {path.name for path in commands.glob("*.py") if "print(json" in path.read_text("utf-8")}
    assert found == set()
