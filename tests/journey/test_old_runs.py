"""Stored run folders open, answer as before, and resume bit for bit, or within `LIMITS` on other processors.

`tests/fixtures/runs` contains the folders. `tests/fixtures/expected` contains their expected answers, and the expected
weights after three more steps. `tests/fixtures/make_runs.py` describes how they were made. A folder of another format
is refused.
"""

from __future__ import annotations

import json
import shutil
import tomllib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from glassformer.base.config import TASK_FACTS
from tests.fixtures.replaying import (
    EXPECTED,
    RUNS,
    Done,
    copy_runs,
    digest,
    facts,
    fingerprint,
    glass,
    glass_all,
    weights,
)

LIMITS = {"fp32-adamw": 1e-5, "bf16-adamw": 1e-3, "fp32-muon": 2e-2, "bf16-muon": 5e-2}
"""Largest allowed `distance` on a processor whose results differ in bits from the recorded ones.

Measured without the pinned environment, with AVX-512 or AVX2 kernels instead of the portable ones: at most 1.2e-6,
1.8e-4, 5.1e-3 and 2.4e-2. Muon's distances are the largest because its iterations in bfloat16 amplify the smallest
singular values, which are noise, several hundred times.
"""
NAMES = sorted(path.parent.name for path in RUNS.glob("*/config.toml"))


@dataclass(frozen=True)
class Replayed:
    """Results of a stored run in this test.

    Attributes:
        folder: the copy of the run folder, after training was resumed.
        answers: results of the recorded commands, in order.
        resumed: result of the resumed training.
    """

    folder: Path
    answers: list[Done]
    resumed: Done


def expected(name: str) -> dict[str, Any]:
    """Return the recorded results of a stored run."""
    found: dict[str, Any] = json.loads((EXPECTED / f"{name}.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Replayed]:
    """Run the recorded commands of all stored runs and resume the runs, in one process."""
    folder = tmp_path_factory.mktemp("old-runs")
    copy_runs(NAMES, folder)
    recorded = {name: expected(name) for name in NAMES}
    commands = {name: [each["command"] for each in recorded[name]["answers"]] for name in NAMES}
    done = iter(glass_all([words for name in NAMES for words in [*commands[name], recorded[name]["resume"]]], folder))
    return {name: Replayed(folder / name, [next(done) for _ in commands[name]], next(done)) for name in NAMES}


def test_every_stored_run_has_its_expectations() -> None:
    assert sorted(TASK_FACTS) == NAMES
    assert [path.stem for path in sorted(EXPECTED.glob("*.json"))] == NAMES
    assert [path.stem for path in sorted(EXPECTED.glob("*.safetensors"))] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_old_run_gives_its_recorded_answers(name: str, replayed: dict[str, Replayed]) -> None:
    recorded = expected(name)["answers"]
    for asked, done in zip(recorded, replayed[name].answers, strict=True):
        assert done.code == 0, done.err
        assert facts(asked["command"], done) == {
            what: pytest.approx(value, rel=1e-5) if isinstance(value, float) else value
            for what, value in asked["answer"].items()
        }


@pytest.mark.parametrize("name", NAMES)
def test_an_old_run_resumes_bit_for_bit(name: str, replayed: dict[str, Replayed]) -> None:
    recorded = expected(name)
    run = replayed[name]
    assert run.resumed.code == 0, run.resumed.err
    found = weights(run.folder)
    if digest(found) == recorded["weights_sha256"]:
        return
    here = fingerprint()
    there = recorded["made_by"]["processor"]
    assert here != there, f"{name}: other weights than before, in the environment in which they were recorded"
    limit = LIMITS[kind(name)]
    apart = distance(found, load_file(EXPECTED / f"{name}.safetensors"), weights(RUNS / name))
    warnings.warn(f"{name}: bits differ, {here} is not {there}; distance {apart:.1e}, limit {limit}", stacklevel=1)
    assert apart < limit


@pytest.mark.parametrize("command", [["generate", "format-1", "Dear"], ["evaluate", "format-1"], ["heads", "format-1"]])
def test_a_run_of_another_format_is_refused(command: list[str], tmp_path: Path) -> None:
    shutil.copytree(EXPECTED.parent / "format-1", tmp_path / "format-1")
    done = glass(command, tmp_path)
    assert done.code == 2
    assert done.err.splitlines() == [
        "format-1 was made by another version of glassformer: its format is 1, but this version (0.1.0) reads format 2",
        "Use the version that made it, or train the run again.",
    ]


def test_a_run_of_another_format_is_not_resumed(tmp_path: Path) -> None:
    shutil.copytree(EXPECTED.parent / "format-1", tmp_path / "format-1")
    files = {path: path.read_bytes() for path in (tmp_path / "format-1").rglob("*") if path.is_file()}
    done = glass(["train", "--resume", "--out", "format-1", "--steps", "9"], tmp_path)
    assert done.code == 2
    assert "its format is 1" in done.err
    assert all(path.read_bytes() == content for path, content in files.items())


def kind(name: str) -> str:
    """Return the precision and the optimizer of a stored run."""
    train = tomllib.loads((RUNS / name / "config.toml").read_text(encoding="utf-8"))["train"]
    return f"{train['precision']}-{train['optimizer']}"


def distance(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], before: dict[str, np.ndarray]) -> float:
    """Return the distance between two sets of weights, divided by the distance of the second from `before`."""
    assert found.keys() == wanted.keys()
    apart = sum(float(np.square(found[name] - wanted[name]).sum()) for name in wanted)
    moved = sum(float(np.square(wanted[name] - before[name]).sum()) for name in wanted)
    return (apart / moved) ** 0.5
