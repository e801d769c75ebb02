"""`glass verify`: reports on runs of every task, the saved report, and errors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.base.files import sha256
from glassformer.runs.folder import open_run
from glassformer.verification.report import CHECKS, saved_report
from tests.journey.commands import here
from tests.journey.task_runs import PAIRS, TASKS, refused
from tests.property.trainers import change_manifest

WRITING = {"cached-logits", "backend-logits", "cached-text", "batched-text", "beam-one", "beam-cached"}
QUICK = ("--only", "padding-blind", "--only", "checkpoints")


def report_of(run: str, home: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the JSON output of `glass verify`."""
    done = here("verify", run, "--json", *more, folder=home)
    assert done.stderr == "", done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("task", TASKS)
def test_a_sound_run_of_every_task_passes(task: str, task_home: Path) -> None:
    torch.manual_seed(3)
    before = torch.get_num_threads()
    random = torch.get_rng_state()
    code, report = report_of(f"runs/{task}", task_home)
    found = {check["name"]: check for check in report["checks"]}
    assert (code, report["ok"]) == (0, True), [check for check in report["checks"] if check["ok"] is False]
    assert list(found) == [check.name for check in CHECKS]
    exempt = {name for name, check in found.items() if check["ok"] is None}
    assert exempt - {"device", "export-hf"} == (set() if task in ("lm", "chat", *PAIRS) else {*WRITING, "future-blind"})
    assert all("does not apply: " in found[name]["note"] for name in exempt)
    assert all(check["measured"] <= check["limit"] for name, check in found.items() if name not in exempt)
    assert report["text"] == "the run's validation text"
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.get_num_threads() == before


def test_the_report_is_saved_with_the_hash_of_the_weights(task_home: Path) -> None:
    _, told = report_of("runs/classify", task_home)
    kept = saved_report(open_run(task_home / "runs" / "classify"))
    assert kept is not None
    assert {**kept, "date": ""} == {**told, "date": ""}
    weights = open_run(task_home / "runs" / "classify").checkpoint("best") / "model.safetensors"
    assert kept["weights_sha256"] == sha256(weights)
    assert {"platform", "cores", "threads"} <= kept["machine"].keys()
    assert kept["versions"]["torch"] == torch.__version__


def test_the_table_names_every_check_and_ends_in_a_summary(task_home: Path) -> None:
    done = here("verify", "runs/masked", *QUICK, folder=task_home)
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert lines[0].split()[:5] == ["pass", "checkpoints", "0", "<=", "0"]
    assert lines[1].split()[:5] == ["pass", "padding-blind", "0", "<=", "0"]
    assert "2 checks passed, 0 failed, 0 do not apply" in lines[-1]


@pytest.fixture
def alone(task_home: Path, tmp_path: Path) -> Path:
    """Return a copy of the classifier's run folder, without its `verify.json` and without the files beside the run."""
    return Path(
        shutil.copytree(
            task_home / "runs" / "classify", tmp_path / "alone", ignore=shutil.ignore_patterns("verify.json")
        )
    )


@pytest.mark.thorough
@pytest.mark.parametrize("task", TASKS)
def test_a_run_without_its_text_is_verified_on_a_built_in_text(task: str, task_home: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(task_home / "runs" / task, tmp_path / task))
    gone = {"tokens": str(tmp_path / "gone"), "source": str(tmp_path / "gone.txt")}
    change_manifest(folder, lambda manifest: manifest["data"].update(gone))
    code, report = report_of(task, tmp_path)
    assert code == 0, [check for check in report["checks"] if check["ok"] is False]
    assert "a built-in text" in report["text"]


def test_a_partial_verification_saves_no_report(alone: Path) -> None:
    before = sorted(alone.rglob("*"))
    code, report = report_of("alone", alone.parent, *QUICK)
    assert (code, [check["name"] for check in report["checks"]]) == (0, ["checkpoints", "padding-blind"])
    assert sorted(alone.rglob("*")) == before


def test_a_damaged_run_fails_with_exit_code_1_and_a_report(alone: Path) -> None:
    weights = open_run(alone).checkpoint("best") / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    code, report = report_of("alone", alone.parent)
    assert (code, report["ok"]) == (1, False)
    assert [check["name"] for check in report["checks"] if check["ok"] is False] == ["checkpoints", "settings"]
    assert report["weights_sha256"] == sha256(weights)
    done = here("verify", "alone", folder=alone.parent)
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL  checkpoints")
    assert "2 failed (checkpoints, settings)" in done.stdout


def test_runs_that_cannot_be_verified_are_refused(task_home: Path) -> None:
    problem, remedy = refused("verify", "runs/lm", "--only", "cached-logit", folder=task_home)
    assert problem == "there is no check 'cached-logit'"
    assert "cached-logits" in remedy
    assert refused("verify", "runs/nothing", folder=task_home)[0] == "there is no run at runs/nothing"
    assert (
        refused("verify", "runs/lm", "--device", "cuda:9", folder=task_home)[0] == "this machine has no device cuda:9"
    )
