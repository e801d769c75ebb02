"""The report of `glass verify` shows what was checked: no check passes without data or on changed weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.base.files import MANIFEST
from glassformer.model import transformer
from glassformer.runs.folder import open_run
from glassformer.training.loop import train
from glassformer.training.reporting import Silent
from glassformer.training.setup import new_training
from glassformer.verification import numeric_checks
from glassformer.verification import report as reports
from glassformer.verification.check import format_number
from glassformer.verification.report import VerificationReport, verify_run
from glassformer.verification.verified_run import VerifiedRun
from tests.journey.commands import here
from tests.property.trainers import small_config

TRAIN = {"steps": 2, "batch": 3, "warmup": 0, "threads": 1, "evaluate_every": 2}
MODEL = {"layers": 1, "heads": 2, "head_width": 6, "width": 10, "hidden": 14}


def trained(folder: Path, **model: Any) -> Path:
    """Return a run of two steps."""
    config = small_config(folder).replace(train=TRAIN, model={**MODEL, **model})
    with new_training(config, folder / "run", Silent()) as trainer:
        assert train(trainer)
    return folder / "run"


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that no test changes."""
    return trained(tmp_path_factory.mktemp("report"), context=29)


@pytest.fixture
def run(once: Path, tmp_path: Path) -> Path:
    """Return a copy of the run, which a test may damage."""
    return Path(shutil.copytree(once, tmp_path / "run"))


def found(run: Path, *only: str) -> dict[str, bool | None]:
    """Return the results of these checks."""
    return {result.check.name: result.ok for result in verify_run(run, only=only).results}


def test_a_check_that_could_not_be_made_is_no_success(run: Path) -> None:
    with (open_run(run).checkpoint("best") / "model.safetensors").open("ab") as file:
        file.write(b"x")
    report = verify_run(run, only=["reference"])
    assert [result.ok for result in report.results] == [None]
    assert not report.ok
    assert "0 do not apply, 1 could not run" in report.summary()
    done = here("verify", str(run), "--only", "reference", "--json", folder=run.parent)
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (1, False)


@pytest.mark.parametrize("check", ["reference", "reference-gradients"])
@pytest.mark.parametrize("error", [None, GlassError("x", "y"), RuntimeError("x"), KeyboardInterrupt()])
def test_the_default_precision_is_always_restored(
    check: str, error: BaseException | None, once: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = []
    own = numeric_checks.logits_of

    def watched(model: Any, batch: Any) -> Any:
        inside.append(torch.get_default_dtype())
        if error is not None:
            raise error
        return own(model, batch)

    monkeypatch.setattr(numeric_checks, "logits_of", watched)
    with suppress(RuntimeError, KeyboardInterrupt):
        verify_run(once, only=[check])
    assert inside == [torch.float64]
    assert torch.get_default_dtype() == torch.float32


def test_checks_that_did_not_run_share_one_line(run: Path) -> None:
    with (open_run(run).checkpoint("best") / "model.safetensors").open("ab") as file:
        file.write(b"x")
    done = here("verify", str(run), folder=run.parent)
    lines = done.stdout.splitlines()
    (told,) = [line for line in lines if "did not run" in line]
    made = [line for line in lines if line.startswith(("pass  ", "FAIL  "))]
    why, names = told.removeprefix("-     did not run: ").rsplit(": ", 1)
    assert "model.safetensors" in why
    assert "cached-logits" in names
    assert len(names.split(", ")) + len(made) == len(reports.CHECKS)
    assert f"{len(names.split(', '))} could not run" in lines[-1]


def test_an_empty_checkpoint_manifest_is_detected(run: Path) -> None:
    (open_run(run).checkpoint("best") / MANIFEST).write_text('{"files": {}}', encoding="utf-8")
    assert found(run, "checkpoints") == {"checkpoints": False}


def test_a_run_without_a_manifest_is_reported_with_its_path(run: Path) -> None:
    (run / "manifest.json").unlink()
    (result,) = verify_run(run, only=["vocabulary"]).results
    assert (result.ok, result.note) == (False, f"{run / 'manifest.json'} is missing")


def test_weights_that_change_during_verification_are_not_approved(run: Path) -> None:
    def train_on(_: object) -> None:
        with (open_run(run).checkpoint("best") / "model.safetensors").open("ab") as file:
            file.write(b"x")

    with pytest.raises(GlassError, match="the best checkpoint of"):
        verify_run(run, only=["loss"], tell=train_on)


def test_a_single_token_has_no_padding_and_no_future(tmp_path: Path) -> None:
    run = trained(tmp_path, context=1)
    assert found(run, "padding-blind", "future-blind", "loss") == {
        "padding-blind": None,
        "future-blind": None,
        "loss": True,
    }


def test_notes_count_attention_layers_and_steps(once: Path, tmp_path: Path) -> None:
    cached, explicit = verify_run(once, only=["fused-explicit", "cached-logits"]).results
    assert explicit.note == "1 attention layer, explicit against fused"
    assert ", 16 steps; and " in cached.note
    lines = [f"the {animal} {verb} ." for animal in ("dog", "cat", "bird") for verb in ("runs", "sits", "sings")]
    for side in ("source", "target"):
        (tmp_path / side).write_text("\n".join(5 * lines) + "\n", encoding="utf-8")
    sections = {
        "model": {**MODEL, "context": 9},
        "tokenizer": {"kind": "words"},
        "data": {"source": str(tmp_path / "source"), "target": str(tmp_path / "target")},
        "train": {**TRAIN, "task": "translate"},
    }
    with new_training(Config.from_dict(sections), tmp_path / "run", Silent()) as trainer:
        assert train(trainer)
    cached, explicit = verify_run(tmp_path / "run", only=["fused-explicit", "cached-logits"]).results
    assert explicit.note == "3 attention layers, explicit against fused"
    assert cached.note.endswith(" rows, 9 steps")


def test_rows_of_two_tokens_are_padded(tmp_path: Path) -> None:
    run = trained(tmp_path, context=2)
    assert not VerifiedRun(open_run(run)).batch.attention_mask.all()
    assert found(run, "padding-blind", "future-blind") == {"padding-blind": True, "future-blind": True}


def test_an_ignored_long_window_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(tmp_path, context=150, window=73)
    assert found(run, "reference") == {"reference": True}
    own = transformer.self_attention_mask
    monkeypatch.setattr(
        transformer, "self_attention_mask", lambda q, k, real, causal, window: own(q, k, real, causal, None)
    )
    assert found(run, "reference") == {"reference": False}


def test_a_report_that_cannot_be_saved_is_shown(once: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = reports.select_checks(["loss"])
    own: Callable[..., Any] = reports.select_checks
    monkeypatch.setattr(reports, "select_checks", lambda only: own(only) if only else checks)

    def refuse(report: VerificationReport) -> Path:
        raise GlassError("no permission to use verify.json", "Change its permissions, or choose another path.")

    monkeypatch.setattr(reports, "save", refuse)
    done = here("verify", str(once), "--json", folder=once.parent)
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (0, True)
    assert done.stderr == "the report is not saved: no permission to use verify.json\n"


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, ""), (0.0, "0"), (12.0, "12"), (1234567.0, "1.2e+06"), (3.04e-7, "3.0e-07"), (float("inf"), "inf")],
)
def test_every_measured_number_can_be_printed(number: float | None, text: str) -> None:
    """Infinity is the distance of tensors of different shapes."""
    assert format_number(number) == text


def test_nan_can_be_printed() -> None:
    assert format_number(float("nan")) == "nan"
