"""`glass probe` on tiny runs of several tasks: output, agreement with `glass evaluate`, errors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from glassformer.base.locks import folder_lock
from glassformer.evaluation.probes.probe import PROBES
from tests.journey.commands import here
from tests.journey.task_runs import refused
from tests.property.trainers import change_manifest

QUICK = ("--size", "64")


def facts(*arguments: str, folder: Path) -> dict[str, Any]:
    """Return the one JSON object that a command writes to standard output with --json."""
    done = here(*arguments, "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("task", ["lm", "masked"])
def test_all_probes_run_on_models_trained_on_other_data(task_home: Path, task: str) -> None:
    done = here("probe", f"runs/{task}", *QUICK, folder=task_home)
    assert done.returncode == 0, done.stderr
    found = facts("probe", f"runs/{task}", *QUICK, folder=task_home)
    left_out = [note.partition(" is left out: ")[0] for note in found["notes"] if "is left out" in note]
    assert left_out == ["coreference", "pronouns-bn", "brackets", "senses"]  # the run has no token for their words
    assert tuple(found["probes"]) == tuple(name for name in PROBES if name not in left_out)
    for name, result in found["probes"].items():
        assert f"{name}: " in done.stdout
        if name == "surprisal":
            continue
        assert "this run was not trained on the corpus" in result["notes"][0]
        for group in result["groups"]:
            low, high = group["ci95"]
            assert 0 <= low <= group["share"] <= high <= 1
            assert group["count"] > 0
            assert 0 < group["chance"] < 1
            assert "bigram" in group["rules"]
    assert done.stdout.count("this run was not trained on the corpus") == len(found["probes"]) - 1
    assert ("pseudo-log-likelihood" in done.stdout) == (task == "masked")


@pytest.mark.parametrize("task", ["classify", "translate", "two", "summarize"])
def test_runs_without_probabilities_of_a_text_are_refused(task_home: Path, task: str) -> None:
    problem, remedy = refused("probe", f"runs/{task}", folder=task_home)
    assert problem.startswith("this run was trained to ")
    assert "nothing to probe" in problem
    assert "--task lm or --task masked" in remedy


@pytest.mark.parametrize("text", [None, "sentences.txt"])
def test_mean_surprisal_equals_the_loss_of_evaluate(task_home: Path, text: str | None) -> None:
    flag = () if text is None else ("--text", text)
    found = facts("probe", "runs/lm", "surprisal", *flag, folder=task_home)["probes"]
    assert list(found) == ["surprisal"]
    measured = facts("evaluate", "runs/lm", *flag[1:], folder=task_home)
    assert found["surprisal"]["mean"] == pytest.approx(measured["loss"], abs=1e-5)
    assert found["surprisal"]["tokens"] == measured["tokens"]
    assert len(found["surprisal"]["each"]) == (0 if text is None else measured["tokens"])
    if text is not None:
        assert list(facts("probe", "runs/lm", *flag, folder=task_home)["probes"]) == ["surprisal"]


def test_the_column_can_be_given_as_the_error_suggests(task_home: Path, tmp_path: Path) -> None:
    rows = "".join(f"It was the dog number {n}.\tIt waits for day {n} again.\n" for n in range(40))
    table = tmp_path / "two.tsv"
    table.write_text(f"first\tsecond\n{rows}", encoding="utf-8")
    problem, remedy = refused("probe", "runs/lm", "--text", table, folder=task_home)
    assert "columns first, second all contain text" in problem
    assert "Set data.column to the name of the column" in remedy
    one = facts("probe", "runs/lm", "--text", str(table), "--data.column", "second", folder=task_home)["probes"]
    alone = tmp_path / "one.tsv"
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    alone.write_text("".join(line.split("\t")[1] for line in lines), encoding="utf-8")
    plain = facts("probe", "runs/lm", "--text", str(alone), folder=task_home)["probes"]
    other = facts("probe", "runs/lm", "--text", str(table), "--data.column", "first", folder=task_home)["probes"]
    assert one["surprisal"]["tokens"] > 200
    assert one["surprisal"]["mean"] != other["surprisal"]["mean"]
    assert one["surprisal"]["mean"] == plain["surprisal"]["mean"]
    assert "was given without --text" in refused("probe", "runs/lm", "--data.column", "second", folder=task_home)[0]
    assert "was given without --text" in refused("probe", "runs/lm", "--data.header", "no", folder=task_home)[0]
    with_names = ["--text", str(alone), "--data.header", "no"]
    more = facts("probe", "runs/lm", *with_names, folder=task_home)["probes"]
    assert more["surprisal"]["tokens"] > plain["surprisal"]["tokens"]


def test_user_provided_minimal_pairs_are_measured(task_home: Path) -> None:
    found = facts("probe", "runs/lm", "--pairs", "minimal-pairs.jsonl", folder=task_home)["probes"]
    assert list(found) == ["pairs"]
    groups = {group["group"]: group for group in found["pairs"]["groups"]}
    assert list(groups) == ["all pairs", "noun", "order"]
    assert groups["all pairs"]["count"] == groups["noun"]["count"] + groups["order"]["count"] == 48
    both = facts("probe", "runs/lm", "induction", "--pairs", "minimal-pairs.jsonl", *QUICK, folder=task_home)
    assert list(both["probes"]) == ["pairs", "induction"]


def test_the_same_questions_give_the_same_answers(task_home: Path) -> None:
    words = ("probe", "runs/lm", "agreement", "recall", *QUICK)
    assert facts(*words, folder=task_home) == facts(*words, folder=task_home)
    assert facts(*words, folder=task_home) != facts(*words, "--seed", "9", folder=task_home)


def test_a_moved_run_is_probed_without_frequency_baselines(task_home: Path, tmp_path: Path) -> None:
    shutil.copytree(task_home / "runs" / "lm", tmp_path / "moved")
    change_manifest(tmp_path / "moved", lambda manifest: manifest["data"].update(tokens=str(tmp_path / "gone")))
    found = facts("probe", "moved", *QUICK, folder=tmp_path)
    assert any("heuristics need the training text" in note for note in found["notes"])
    assert any("surprisal is left out" in note for note in found["notes"])
    assert list(found["probes"]) == ["agreement", "induction", "recall"]
    assert list(found["probes"]["agreement"]["groups"][0]["rules"]) == ["last noun", "first noun", "majority"]
    problem, remedy = refused("probe", "moved", "surprisal", folder=tmp_path)
    assert problem == "the run's own text is not available"
    assert remedy == "Name a text: --text FILE."


def test_a_text_longer_than_the_context_is_reported(task_home: Path, tmp_path: Path) -> None:
    long = {"sentence_good": "the dog " * 30 + "sleeps", "sentence_bad": "the dog " * 30 + "waits"}
    path = tmp_path / "long.jsonl"
    path.write_text(json.dumps(long), encoding="utf-8")
    problem, remedy = refused("probe", "runs/lm", "--pairs", path, folder=task_home)
    assert problem.startswith("'the dog the dog")
    assert "has 61 tokens, but this run reads at most 40" in problem
    assert "larger model.context" in remedy


def test_a_run_with_a_short_context_gets_probes_that_fit(task_home: Path) -> None:
    words = ["--model.layers=1", "--model.width=8", "--model.heads=1", "--model.context=12", "--train.threads=1"]
    made = here(
        "train", "book.txt", *words, "--tokenizer.kind=words", "--steps=2", "--out", "runs/short", folder=task_home
    )
    assert made.returncode == 0, made.stderr
    found = facts("probe", "runs/short", *QUICK, folder=task_home)
    assert list(found["probes"]) == ["induction", "surprisal"]
    assert [note.split()[0] for note in found["notes"]] == [
        "agreement",
        "coreference",
        "pronouns-bn",
        "recall",
        "brackets",
        "senses",
    ]
    problem, _ = refused("probe", "runs/short", "agreement", *QUICK, folder=task_home)
    assert "this run reads at most 12" in problem


def test_invalid_probe_requests_are_refused(task_home: Path) -> None:
    assert refused("probe", "runs/lm", "agrement", folder=task_home) == (
        "unknown probe 'agrement'",
        "Did you mean agreement?",
    )
    assert "does not exist" in refused("probe", "runs/lm", "--text", "no.txt", folder=task_home)[0]
    assert refused("probe", "runs/lm", "--pairs", "book.txt", folder=task_home)[0].startswith(
        "book.txt, line 1 is not JSON"
    )
    assert "--size 0 is below 1" in refused("probe", "runs/lm", "--size", "0", folder=task_home)[0]
    assert "below 0" in refused("probe", "runs/lm", "--seed", "-1", folder=task_home)[0]
    assert "there is no run at" in refused("probe", "runs/no", folder=task_home)[0]


def test_a_run_that_is_still_training_is_reported(task_home: Path) -> None:
    with folder_lock(task_home / "runs" / "lm"):
        done = here("probe", "runs/lm", "induction", *QUICK, folder=task_home)
    assert done.returncode == 0, done.stderr
    assert "is still training: this is its best checkpoint so far" in done.stderr
