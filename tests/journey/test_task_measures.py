"""Every task measured, counted, and carried away without its data, through the real command line."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from glassformer.errors import GlassError
from glassformer.model.weights import load_tensors
from glassformer.runs import Run
from tests.journey.commands import here
from tests.journey.task_runs import DOES, OTHER_TEXT, PAIRS, RUNS, TASKS, refused, said_of
from tests.journey.test_commands import facts, shown


@pytest.fixture(scope="module")
def measured(task_home: Path) -> dict[str, dict[str, Any]]:
    """What `glass evaluate` says of each run on its own validation part."""
    return {name: facts("evaluate", f"runs/{name}", folder=task_home) for name in RUNS}


@pytest.mark.parametrize("name", TASKS)
def test_evaluate_says_what_programs_rely_on(name: str, task_home: Path, measured: dict[str, dict[str, Any]]) -> None:
    said, trained = measured[name], said_of(name, task_home)
    assert {"loss", "loss_ci95", "perplexity", "bits_per_byte", "tokens", "baselines"} <= said.keys()
    for key in ("loss", "loss_ci95", "perplexity", "bits_per_byte"):
        assert said[key] == pytest.approx(trained[key], abs=1e-6)
    own = {
        "lm": {"sliding_loss", "longest_copy"},
        "masked": {"accuracy", "accuracy_of_five"},
        "classify": {"accuracy", "macro_f1", "confusion", "classes", "calibration_error", "reliability", "brier"},
    }
    figures = {"bleu", "bleu_lowercase", "chrf", "rouge1", "rouge2", "rougeL", "exact_match", "samples", "examples"}
    assert own.get(name, figures) <= said.keys()
    for key in ("bleu", "chrf", "rougeL", "accuracy", "macro_f1"):
        if key in said:
            low, high = said[f"{key}_ci95"]
            assert low <= said[key] <= high
    if name in PAIRS:
        assert "tok:13a" in said["bleu_signature"]
        assert "nw:2" in said["chrf_signature"]


def test_evaluate_knows_what_to_beat(measured: dict[str, dict[str, Any]]) -> None:
    names = {task: [row["name"] for row in said["baselines"]] for task, said in measured.items()}
    assert names["masked"] == ["uniform", "unigram"]
    assert names["classify"][0] == "majority"
    for task in PAIRS:
        assert names[task] == ["copy the source", "answer of the nearest source"]
    majority = measured["classify"]["baselines"][0]
    assert majority["accuracy"] == pytest.approx(1 / 3, abs=0.1)
    rows = measured["classify"]["confusion"]
    assert sum(map(sum, rows)) == measured["classify"]["examples"]


@pytest.mark.parametrize("name", TASKS)
def test_evaluate_measures_other_files(name: str, task_home: Path) -> None:
    done = here("evaluate", f"runs/{name}", *OTHER_TEXT[name], folder=task_home)
    assert done.returncode == 0, done.stderr
    said = facts("evaluate", f"runs/{name}", *OTHER_TEXT[name], folder=task_home)
    assert f"loss {said['loss']:.4f}" in done.stdout
    assert OTHER_TEXT[name][0] in done.stdout
    if name in PAIRS:
        assert said["examples"] == (30 if name != "summarize" else 15)
        assert said["bleu_signature"] in done.stdout


def test_against_another_run(task_home: Path) -> None:
    said = facts("evaluate", "runs/translate", "--against", "runs/two", "test.en", "test.de", folder=task_home)
    assert set(said["against"]) == {"bleu", "bleu_lowercase", "chrf", "rouge1", "rouge2", "rougeL", "exact_match"}
    other = facts("evaluate", "runs/two", "test.en", "test.de", folder=task_home)
    for key, test in said["against"].items():
        assert test["difference"] == pytest.approx(said[key] - other[key])
        assert 0 < test["p"] <= 1
    same_run = facts("evaluate", "runs/classify", "--against", "runs/classify", folder=task_home)["against"]
    assert {test["difference"] for test in same_run.values()} == {0}
    cause, _ = refused("evaluate", "runs/translate", "--against", "runs/classify", folder=task_home)
    assert "train.task" in cause
    cause, remedy = refused("evaluate", "runs/masked", "--against", "runs/masked", folder=task_home)
    assert "--against compares" in cause
    assert "compare" in remedy


@pytest.mark.parametrize("name", TASKS)
def test_count_is_the_size_of_the_weights(name: str, task_home: Path) -> None:
    said = facts("count", f"runs/{name}", folder=task_home)
    weights = load_tensors(Run(task_home / "runs" / name).checkpoint() / "model.safetensors")
    assert said["parameters"] == sum(tensor.numel() for tensor in weights.values())


@pytest.mark.parametrize("name", TASKS)
def test_a_run_folder_alone_is_enough(name: str, task_home: Path, tmp_path: Path) -> None:
    command, text = DOES[name]
    before = shown(command, f"runs/{name}", text, folder=task_home)
    shutil.copytree(task_home / "runs" / name, tmp_path / "taken away")
    manifest = tmp_path / "taken away" / "manifest.json"
    manifest.write_text(manifest.read_text(encoding="utf-8").replace(".tokens", ".gone"), encoding="utf-8")
    assert shown(command, "taken away", text, folder=tmp_path) == before
    for file in OTHER_TEXT[name]:
        shutil.copy(task_home / file, tmp_path)
    there = facts("evaluate", "taken away", *OTHER_TEXT[name], folder=tmp_path)
    assert there["loss"] == facts("evaluate", f"runs/{name}", *OTHER_TEXT[name], folder=task_home)["loss"]
    cause, _ = refused("evaluate", "taken away", folder=tmp_path)
    assert RUNS[name][0] in cause


def test_from_python(task_home: Path, tmp_path: Path) -> None:
    from glassformer.text_model import MaskFiller, TextClassifier, Translator, load_text_model

    kinds = {"masked": MaskFiller, "classify": TextClassifier, "translate": Translator, "summarize": Translator}
    for name, kind in kinds.items():
        assert isinstance(load_text_model(task_home / "runs" / name), kind)
    shutil.copytree(task_home / "runs" / "classify", tmp_path / "nameless")
    (tmp_path / "nameless" / "labels.json").unlink()
    with pytest.raises(GlassError, match=r"has no labels\.json"):
        load_text_model(tmp_path / "nameless")
