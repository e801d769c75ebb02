"""`glass train DATA --from RUN`: every task, its messages, and wrong uses, which are refused and write nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import glassformer
from glassformer.app.cli.main import main
from glassformer.app.server.listing import Listing
from glassformer.app.server.registry import ModelRegistry
from glassformer.base.errors import GlassError
from glassformer.base.locks import folder_lock
from glassformer.training import step_measurement
from glassformer.training.step_measurement import Probe
from tests.journey.command_output import facts
from tests.journey.commands import here as glass
from tests.journey.task_runs import DOES, TASKS, refused
from tests.trained import copy_runs

TEXTS = {
    "lm": ["book.txt"],
    "masked": ["book.txt"],
    "classify": ["mails.csv"],
    "translate": ["train.en", "train.de"],
    "two": ["pairs.tsv"],
    "summarize": ["articles.jsonl"],
    "chat": ["talks.jsonl"],
}
FEW = ["--steps", "4", "--train.batch", "4", "--train.threads", "1", "--train.evaluate_every", "2"]


def taught(name: str, home: Path, *more: str, out: str) -> dict[str, Any]:
    """Train a new run from a run of `task_home` or its copy, and return the JSON output."""
    words = ["train", *TEXTS[name], "--from", f"runs/{name}", *FEW, "--out", out, "--json", *more]
    done = glass(*words, folder=home)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", TASKS)
def test_a_child_run_trains_and_works_without_its_parent(name: str, task_home: Path, tmp_path: Path) -> None:
    copy_runs(task_home, tmp_path)
    said = taught(name, tmp_path, out="children/new")
    assert said["steps_done"] == 4
    assert said["first_loss"] > 0
    before, after = said["parent_losses"]
    assert before > 0
    assert after > 0
    for file in ("tokenizer.json", "source_tokenizer.json"):
        own = tmp_path / "children/new" / file
        assert own.exists() == (tmp_path / "runs" / name / file).exists()
        assert not own.exists() or own.read_bytes() == (tmp_path / "runs" / name / file).read_bytes()
    listed = Listing(ModelRegistry([tmp_path / "children/new", tmp_path / "runs" / name], "cpu")).all()
    assert [run["parent"] for run in listed] == [name, None]
    shutil.rmtree(tmp_path / "runs" / name)
    command, given = DOES[name]
    done = glass(command, "children/new", given, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    done = glass("evaluate", "children/new", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    done = glass("train", "--resume", "--out", "children/new", "--steps", "6", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    again = json.loads(done.stdout)
    assert again["steps_done"] == 6
    assert again["first_loss"] == said["first_loss"]
    assert again["parent_losses"][0] == before  # the parent's text is stored beside the runs, not in them


def test_runs_of_one_task_start_runs_of_another_task(task_home: Path, tmp_path: Path) -> None:
    copy_runs(task_home, tmp_path)
    lines = (tmp_path / "book.txt").read_text(encoding="utf-8").splitlines()
    rows = [f"{line[:60]}\t{['odd', 'even'][number % 2]}\n" for number, line in enumerate(lines) if line.strip()]
    (tmp_path / "labels.tsv").write_text("text\tlabel\n" + "".join(rows), encoding="utf-8")
    data = ["labels.tsv", "--task", "classify"]
    done = glass("train", *data, "--from", "runs/masked", *FEW, "--out", "labels", folder=tmp_path)
    assert (done.returncode, "no head" in done.stderr) == (0, True), done.stderr
    assert "the head of the classifier is new (random weights: even, odd)" in done.stderr
    assert glass("classify", "labels", "It was a day", folder=tmp_path).returncode == 0
    data = ["pairs.tsv", "--task", "summarize"]
    done = glass("train", *data, "--from", "runs/two", *FEW, "--out", "short", "--mix", "0.5", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "on the parent's held-out text, the loss was" in done.stdout


def test_the_parents_text_may_be_missing(task_home: Path, tmp_path: Path) -> None:
    copy_runs(task_home, tmp_path)
    shutil.rmtree(tmp_path / "runs" / ".tokens")
    done = glass("train", "book.txt", "--from", "runs/lm", *FEW, "--out", "runs/new", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "forgetting is not measured: the text of the parent, book.txt, is missing" in done.stderr
    assert "parent's held-out" not in done.stdout
    words = ["train", "book.txt", "--from", "runs/lm", *FEW, "--out", "runs/mixed", "--mix", "0.2"]
    problem, remedy = refused(*words, folder=tmp_path)
    assert "is missing" in problem
    assert "without data.mix" in remedy
    assert not (tmp_path / "runs/mixed").exists()


def test_plan_from_a_run_uses_the_recipe_fine_tune(task_home: Path) -> None:
    done = glass("plan", "book.txt", "--from", "runs/lm", "--probe", "0", "--json", folder=task_home)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["loss_band"] is None
    assert not (task_home / "runs/book").exists()


@pytest.mark.parametrize("is_there", [True, False])
def test_the_plan_counts_evaluations_of_child_and_parent(
    is_there: bool, task_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_runs(task_home, tmp_path)
    if not is_there:
        shutil.rmtree(tmp_path / "runs" / ".tokens")
    found: list[Probe] = []
    measure = step_measurement.probe

    def watched(*given: Any) -> Probe:
        found.append(measure(*given))
        return found[-1]

    monkeypatch.setattr(step_measurement, "probe", watched)
    words = ["book.txt", "--from", "runs/lm", *FEW, "--out", "children/new"]
    plan = facts("plan", *words, "--probe", "0.02", folder=tmp_path)
    (measured,) = found
    assert measured.parent_seconds is not None
    assert (measured.parent_seconds > 0) == is_there
    once = 4 * measured.seconds_per_step + measured.last_evaluation_seconds
    thrice = measured.evaluation_seconds + measured.checkpoint_seconds  # at the start, and after steps 2 and 4
    twice = measured.sample_seconds + measured.parent_seconds
    assert plan["whole_seconds"] == pytest.approx(once + 2 * twice + 3 * thrice)


def test_python_can_train_from_a_run(task_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(task_home)
    settings = {"train.threads": 1, "train.batch": 4}
    model = glassformer.fit("book.txt", begin_from="runs/lm", steps=3, settings=settings, out=tmp_path / "new")
    assert model.config.train.learning_rate == 5e-4
    assert model.generate("It was", tokens=3, seed=1)
    with pytest.raises(GlassError, match="cannot start"):
        glassformer.fit("mails.csv", begin_from="runs/lm", task="classify", out=tmp_path / "other")


LM = "book.txt --from runs/lm"
WRONG = {  # the words of the command, a part of the problem, a part of the remedy
    "no such run": ("book.txt --from runs/nothing", "runs/nothing", ""),
    "a folder that is no run": ("book.txt --from .", "is not a run", ""),
    "without data": ("--from runs/lm", "--from was given without DATA", "glass train DATA --from RUN"),
    "another width": (f"{LM} --model.width 32", "model.width = 32", "trained with 24"),
    "more layers": (f"{LM} --model.layers 2", "model.layers = 2", "trained with 1"),
    "another context": (f"{LM} --model.context 20", "model.context = 20", "trained with 40"),
    "other positions": (f"{LM} --set model.positions=alibi", "model.positions = alibi", "rotary"),
    "another activation": (f"{LM} --model.activation relu", "model.activation = relu", "swiglu"),
    "another tokenizer": (f"{LM} --tokenizer.kind bytes", "tokenizer.kind = bytes", "words"),
    "another vocabulary": (f"{LM} --tokenizer.vocab_size 99", "vocab_size = 99", "trained with 2048"),
    "a recipe of another model": (f"{LM} --recipe shakespeare", "model.", "has the model and tokenizer of RUN"),
    "lm to classify": ("mails.csv --task classify --from runs/lm", "train.task = classify cannot start", "one of: lm"),
    "lm to translate": (
        "pairs.tsv --task translate --from runs/lm",
        "train.task = translate cannot start",
        "one of: lm",
    ),
    "classify to masked": ("book.txt --task masked --from runs/classify", "cannot start from", "one of: classify"),
    "classify to lm": ("book.txt --task lm --from runs/classify", "cannot start from", "one of: classify"),
    "masked to lm": ("book.txt --task lm --from runs/masked", "cannot start from", "masked, classify"),
    "translate to lm": ("book.txt --task lm --from runs/translate", "cannot start from", "translate, summarize"),
    "an unknown task": ("book.txt --task talk --from runs/lm", "talk", ""),
    "a text of other letters": ("bangla.txt --from runs/lm", "are unknown to the tokenizer", "leave --from out"),
    "layers in the wrong order": (f"{LM} --train.freeze layers.9-1", "layers.9-1", "embedding"),
    "no such part": (f"{LM} --train.freeze layers.7", "layers.7", "embedding"),
    "mixing without a parent": ("book.txt --mix 0.1", "data.mix = 0.1 without --from", ""),
    "all of it mixed": (f"{LM} --mix 1", "data.mix", ""),
    "an existing run": (f"{LM} --out runs/lm", "already contains a run", "--out"),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_reuse_is_refused_and_nothing_is_written(case: str, task_home: Path, tmp_path: Path) -> None:
    copy_runs(task_home, tmp_path)
    (tmp_path / "bangla.txt").write_text("আমার সোনার বাংলা আমি তোমায় ভালোবাসি\n" * 50, encoding="utf-8")
    command, problem, remedy = WRONG[case]
    words = command.split()
    before = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if ".tokens" not in path.parts}
    out = [] if "--out" in words else ["--out", "runs/new"]
    told = refused("train", *words, "--steps", "2", "--train.threads", "1", *out, folder=tmp_path)
    assert problem in " ".join(told)
    assert remedy in " ".join(told)
    after = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if ".tokens" not in path.parts}
    assert after == before


def test_a_parent_that_is_still_training_is_refused(task_home: Path) -> None:
    with folder_lock(task_home / "runs/lm"):
        problem, remedy = refused("train", "book.txt", "--from", "runs/lm", "--out", "new", folder=task_home)
    assert "is being trained" in problem
    assert "Ctrl-C" in remedy


def test_a_damaged_parent_is_refused(task_home: Path, tmp_path: Path) -> None:
    copy_runs(task_home, tmp_path)
    weights = next((tmp_path / "runs/lm/checkpoints").glob("*/model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-9])
    best = tmp_path / "runs/lm/best"
    best.write_text(weights.parent.name + "\n", encoding="utf-8")
    refused("train", "book.txt", "--from", "runs/lm", "--out", "new", folder=tmp_path)
    assert not (tmp_path / "new").exists()


def test_help_mentions_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert "--from RUN" in capsys.readouterr().out
