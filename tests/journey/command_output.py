"""Run a command and read its output: text, one JSON object, or the metrics of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.journey.commands import here

REBUILT = "training the tokenizer"  # written only by a command that encodes a text again


def shown(*arguments: str | Path, folder: Path, text: str = "") -> str:
    """Return the standard output of a command that must succeed."""
    done = here(*arguments, folder=folder, text=text)
    assert done.returncode == 0, done.stderr
    return done.stdout


def facts(*arguments: str | Path, folder: Path, text: str = "") -> dict[str, Any]:
    """Return the one JSON object that a command writes with --json; it must write nothing else."""
    return one_object(shown(*arguments, "--json", folder=folder, text=text))


def one_object(output: str) -> dict[str, Any]:
    """Return standard output as a JSON object; the output must be exactly one line, and its numbers must be finite."""
    assert output.count("\n") == 1
    assert output.endswith("\n")
    found = json.loads(output, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert isinstance(found, dict)
    return found


def metrics(run: Path) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
