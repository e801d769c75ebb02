"""Evaluate and count runs of every task, even after they were moved without their data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from glassformer.base.errors import GlassError
from glassformer.model.weights import load_tensors
from glassformer.runs.folder import Run
from tests.journey.command_output import facts, shown
from tests.journey.commands import here
from tests.journey.task_runs import DOES, OTHER_TEXT, PAIRS, RUNS, TASKS, refused, said_of
from tests.property.trainers import change_manifest, record_files


@pytest.fixture(scope="module")
def measured(task_home: Path) -> dict[str, dict[str, Any]]:
    """Return the JSON output of `glass evaluate` for each run on its validation split."""
    return {name: facts("evaluate", f"runs/{name}", folder=task_home) for name in RUNS}


@pytest.mark.parametrize("name", TASKS)
def test_evaluate_prints_the_documented_fields_of_each_task(
    name: str, task_home: Path, measured: dict[str, dict[str, Any]]
) -> None:
    said = measured[name]
    trained = said_of(name, task_home)
    assert {"loss", "loss_ci95", "perplexity", "bits_per_byte", "tokens", "baselines"} <= said.keys()
    for key in ("loss", "loss_ci95", "perplexity", "bits_per_byte"):
        assert said[key] == pytest.approx(trained[key], abs=1e-6)
    own = {
        "lm": {"sliding_loss", "longest_copy", "copy_meter"},
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


@pytest.mark.parametrize("name", ["translate", "classify"])
def test_one_example_has_no_bootstrap_interval(name: str, task_home: Path, tmp_path: Path) -> None:
    """Accuracy and exact match are exceptions, because their intervals do not come from resampling."""
    table = tmp_path / "one.jsonl"
    row: dict[str, str] = {"source": "the old dog sleeps .", "target": "le vieux chien dort ."}
    if name == "classify":
        row = {"text": "win a prize now", "label": "spam"}
    table.write_text(json.dumps(row) + "\n", encoding="utf-8")
    words = ("evaluate", f"runs/{name}", table, "--against", f"runs/{name}")
    said = facts(*words, folder=task_home)
    shares = {"accuracy_ci95", "exact_match_ci95"}
    intervals = {key: value for key, value in said.items() if key.endswith("_ci95")}
    assert len(intervals) > 2
    assert {key for key, value in intervals.items() if value is not None} == shares & intervals.keys()
    assert all(test["interval"] is None for test in said["against"].values())
    text = shown(*words, folder=task_home)
    assert "one example: no interval" in text
    assert "1 pairs" not in text
    assert "1 texts" not in text


def test_classified_texts_are_counted_as_texts(measured: dict[str, dict[str, Any]]) -> None:
    said = measured["classify"]
    assert said["texts"] == said["tokens"] == said["examples"] > 1


def test_evaluate_reports_baselines(measured: dict[str, dict[str, Any]]) -> None:
    names = {task: [row["name"] for row in said["baselines"]] for task, said in measured.items()}
    assert names["masked"] == ["uniform", "unigram"]
    assert names["classify"][0] == "majority"
    for task in PAIRS:
        assert names[task] == ["copy the source", "answer of the nearest source"]
    majority = measured["classify"]["baselines"][0]
    assert majority["accuracy"] == pytest.approx(1 / 3, abs=0.1)
    rows = measured["classify"]["confusion"]
    assert sum(map(sum, rows)) == measured["classify"]["examples"]


@pytest.mark.thorough
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


def test_two_runs_are_compared(task_home: Path) -> None:
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


def test_settings_of_the_command_apply_to_both_runs(task_home: Path) -> None:
    """A run and its copy with another temperature have equal scores if the command sets the temperature for both."""
    settings = ["test.en", "test.de", "--examples", "10", "--sample.temperature=1.5", "--seed", "5"]
    shutil.copytree(task_home / "runs" / "translate", task_home / "reseeded", dirs_exist_ok=True)
    file = task_home / "reseeded" / "config.toml"
    changed = file.read_text(encoding="utf-8").replace("temperature = 0.0", "temperature = 0.9")
    file.write_text(changed, encoding="utf-8", newline="")
    record_files(task_home / "reseeded")
    same = facts("evaluate", "runs/translate", "--against", "reseeded", *settings, folder=task_home)
    assert {test["difference"] for test in same["against"].values()} == {0}
    assert not any("different settings" in note for note in same["notes"])
    own = facts("evaluate", "runs/translate", "--against", "reseeded", *settings[:4], folder=task_home)
    assert any("sample.temperature = 0.0 and 0.9" in note for note in own["notes"])


def test_runs_with_other_labels_are_refused(task_home: Path) -> None:
    shutil.copytree(task_home / "runs" / "classify", task_home / "relabelled", dirs_exist_ok=True)
    file = task_home / "relabelled" / "labels.json"
    file.write_text(file.read_text(encoding="utf-8").replace("spam", "junk"), encoding="utf-8", newline="")
    record_files(task_home / "relabelled")
    cause, remedy = refused("evaluate", "runs/classify", "--against", "relabelled", folder=task_home)
    assert "only this run has spam; only the other run has junk" in cause
    assert "same labels" in remedy


@pytest.mark.parametrize("name", ["translate", "classify"])
def test_the_handling_of_long_texts_can_be_changed(name: str, task_home: Path) -> None:
    long = " ".join(["old"] * 60)
    files = ["long.csv"] if name == "classify" else ["long.en", "long.de"]
    rows = ["label,text", "spam,win a 2 pound prize now", f"family,{long}"]
    for file, lines in zip(files, [rows] if name == "classify" else [["the old dog .", long]] * 2, strict=True):
        (task_home / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    cut = facts("evaluate", f"runs/{name}", *files, "--data.too_long=cut", folder=task_home)
    left = facts("evaluate", f"runs/{name}", *files, "--data.too_long=leave_out", folder=task_home)
    assert (cut["examples"], left["examples"]) == (2, 1), "the figures are of the examples that the loss is of"
    assert cut["tokens"] > left["tokens"]
    assert cut["bits_per_byte"] is None
    assert left["bits_per_byte"] is None
    assert any("left out" in note for note in left["notes"])
    assert any(": cut" in note for note in cut["notes"])
    cause, _ = refused("evaluate", f"runs/{name}", *files, "--data.too_long=refuse", folder=task_home)
    assert "longer than model.context = 40" in cause


def test_arguments_without_effect_are_refused(task_home: Path) -> None:
    for name in ("lm", "masked"):
        cause, _ = refused("evaluate", f"runs/{name}", "sentences.txt", "book.txt", folder=task_home)
        assert "takes one file" in cause
        assert "book.txt" in cause
    for key in ("train.steps", "model.layers", "tokenizer.kind"):
        cause, _ = refused("evaluate", "runs/lm", "sentences.txt", "--set", f"{key}=3", folder=task_home)
        assert key in cause
    cause, remedy = refused("evaluate", "runs/classify", "--data.too_long=cut", folder=task_home)
    assert "data.too_long = cut" in cause
    assert "DATA" in remedy
    cause, _ = refused("evaluate", "runs/classify", "--set", "data.too_lang=cut", folder=task_home)
    assert "no setting" in cause


def test_json_reports_omitted_examples_and_training_overlap(task_home: Path) -> None:
    (task_home / "odd.csv").write_text(
        "label,text\nspam,win a 2 pound prize now\nunheard,hello there\n", encoding="utf-8", newline=""
    )
    notes = facts("evaluate", "runs/classify", "odd.csv", folder=task_home)["notes"]
    assert any("the training split does not have: unheard (1)" in note for note in notes)
    for name in ("train.en", "train.de", "mails.csv"):  # most of what was learnt, in other files
        lines = (task_home / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (task_home / f"most-{name}").write_text("".join(lines[:-1]), encoding="utf-8")
    files = ["most-train.en", "most-train.de"]
    pairs = facts("evaluate", "runs/translate", *files, "--examples=3", folder=task_home)["notes"]
    assert any("occur in the training split" in note for note in pairs)
    assert not any("writing" in note for note in pairs)
    mails = facts("evaluate", "runs/classify", "most-mails.csv", folder=task_home)["notes"]
    assert any("occur in the training split" in note for note in mails)


def test_the_training_text_is_evaluated_on_its_validation_split(task_home: Path) -> None:
    for name, files in {"classify": ["mails.csv"], "lm": ["book.txt"], "masked": ["book.txt"]}.items():
        own = facts("evaluate", f"runs/{name}", folder=task_home)
        named = here("evaluate", f"runs/{name}", *files, "--json", folder=task_home)
        assert f"{files[0]} is the training data of runs/{name}: evaluating on its validation split" in named.stderr
        assert json.loads(named.stdout)["loss"] == own["loss"]
        assert json.loads(named.stdout)["tokens"] == own["tokens"]


def test_evaluate_and_plan_name_the_same_baselines_for_masked(
    task_home: Path, measured: dict[str, dict[str, Any]]
) -> None:
    from glassformer.evaluation.simple_predictors import fast_baselines
    from glassformer.runs.folder import open_run
    from glassformer.runs.run_text import find_or_encode_text

    run = open_run(task_home / "runs" / "masked")
    rungs = fast_baselines(run.config(), find_or_encode_text(run, run.config(), print))
    assert [(rung.name, rung.note) for rung in rungs] == [
        (row["name"], row["note"]) for row in measured["masked"]["baselines"]
    ]


@pytest.mark.parametrize("name", TASKS)
def test_count_equals_the_size_of_the_weights(name: str, task_home: Path) -> None:
    said = facts("count", f"runs/{name}", folder=task_home)
    weights = load_tensors(Run(task_home / "runs" / name).checkpoint() / "model.safetensors")
    assert said["parameters"] == sum(tensor.numel() for tensor in weights.values())


@pytest.mark.thorough
@pytest.mark.parametrize("name", TASKS)
def test_a_run_folder_works_alone(name: str, task_home: Path, tmp_path: Path) -> None:
    command, text = DOES[name]
    before = shown(command, f"runs/{name}", text, folder=task_home)
    shutil.copytree(task_home / "runs" / name, tmp_path / "taken away")
    change_manifest(tmp_path / "taken away", lambda manifest: manifest["data"].update(tokens=".gone"))
    assert shown(command, "taken away", text, folder=tmp_path) == before
    for file in OTHER_TEXT[name]:
        shutil.copy(task_home / file, tmp_path)
    there = facts("evaluate", "taken away", *OTHER_TEXT[name], folder=tmp_path)
    if "notes" in there:
        assert any("baselines that need the training text are left out" in note for note in there["notes"])
    assert "unigram" not in [row["name"] for row in there.get("baselines", [])]
    assert there["loss"] == facts("evaluate", f"runs/{name}", *OTHER_TEXT[name], folder=task_home)["loss"]
    cause, _ = refused("evaluate", "taken away", folder=tmp_path)
    assert RUNS[name][0] in cause


def test_evaluation_works_from_python(task_home: Path, tmp_path: Path) -> None:
    from glassformer.runs.opening import OpenedRun
    from glassformer.tasks import MaskFiller, TextClassifier, Translator

    kinds = {"masked": MaskFiller, "classify": TextClassifier, "translate": Translator, "summarize": Translator}
    for name, kind in kinds.items():
        assert isinstance(OpenedRun.load(task_home / "runs" / name).text_model, kind)
    shutil.copytree(task_home / "runs" / "classify", tmp_path / "nameless")
    (tmp_path / "nameless" / "labels.json").unlink()
    with pytest.raises(GlassError, match=r"labels\.json is missing"):
        OpenedRun.load(tmp_path / "nameless")


def test_progress_messages_are_not_notes_on_the_results(task_home: Path, tmp_path: Path) -> None:
    shutil.copytree(task_home / "runs" / "classify", tmp_path / "runs" / "classify")
    shutil.copy(task_home / "mails.csv", tmp_path)
    change_manifest(tmp_path / "runs" / "classify", lambda manifest: manifest["data"].update(tokens=".gone/0"))
    done = here("evaluate", "runs/classify", "--json", folder=tmp_path)
    assert "training the tokenizer" in done.stderr
    assert "training the tokenizer" not in done.stdout
