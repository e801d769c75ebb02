"""Plan runs of five tasks through the command line, then train them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from glassformer.runs.folder import Run
from glassformer.text.tokenizers import Tokenizer
from tests.journey.command_output import REBUILT, facts, shown
from tests.journey.commands import here
from tests.journey.damage import tree
from tests.property.trainers import text_file
from tests.unit.example_files import LABELLED, PAIRS, lines, tsv, writer

KEYS = {
    "task",
    "parameters",
    "bytes",
    "vocab_size",
    "training_tokens",
    "validation_tokens",
    "tokens_per_step",
    "steps",
    "epochs",
    "seconds_per_step",
    "train_seconds",
    "peak_memory_bytes",
    "checkpoint_bytes",
    "baselines",
    "warnings",
}
SMALL = [
    "--model.layers",
    "1",
    "--model.width",
    "12",
    "--model.heads",
    "2",
    "--model.context",
    "24",
    "--train.threads",
    "1",
    "--tokenizer.kind",
    "characters",
    "--train.batch",
    "3",
    "--sample.tokens",
    "4",
    "--sample.beams",
    "1",
    "--train.evaluate_every",
    "4",
    "--steps",
    "9",
    "--out",
    "runs/one",
]
SOURCES: dict[str, list[str]] = {
    "lm": ["proverbs.txt"],
    "masked": ["proverbs.txt", "--task", "masked"],
    "classify": ["mails.tsv", "--task", "classify", "--data.label_column", "1"],
    "translate": ["a.en", "a.fr", "--task", "translate"],
    "summarize": ["pairs.tsv", "--task", "summarize", "--train.batch_tokens", "90"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write = writer(tmp_path)
    text_file(tmp_path)
    write("mails.tsv", LABELLED)
    write("pairs.tsv", tsv(PAIRS))
    for side, name in enumerate(("a.en", "a.fr")):
        write(name, lines(pair[side] for pair in PAIRS))
    return tmp_path


def loss_of(name: str, rungs: list[dict[str, Any]]) -> float:
    (found,) = (rung["loss"] for rung in rungs if rung["name"] == name)
    return float(found)


@pytest.mark.thorough
@pytest.mark.parametrize("task", SOURCES)
def test_a_plan_agrees_with_the_run(task: str, folder: Path) -> None:
    before = tree(folder)
    words = [*SOURCES[task], *SMALL]
    plan = facts("plan", *words, "--probe", "0.05", folder=folder)
    assert plan.keys() >= KEYS
    assert plan["task"] == task
    made = {path for path in tree(folder) if path not in before}
    assert all(path == "runs" or path.startswith("runs/.tokens") for path in made)  # the encoded text, and nothing else
    encoded = tree(folder / "runs")
    assert {path: tree(folder)[path] for path in before} == before

    trained = here("train", *words, "--json", folder=folder)
    assert trained.returncode == 0, trained.stderr
    assert REBUILT not in trained.stderr
    assert {path: tree(folder / "runs")[path] for path in encoded} == encoded
    run = Run(folder / "runs" / "one")
    weights, state = (load_file(run.checkpoint("last") / f"{part}.safetensors") for part in ("model", "optimizer"))
    assert plan["parameters"] == sum(value.numel() for value in weights.values()) == sum(plan["components"].values())
    assert plan["bytes"] == 4 * plan["parameters"]
    assert plan["checkpoint_bytes"] == sum(value.nbytes for part in (weights, state) for value in part.values())
    assert plan["vocab_size"] == Tokenizer.load(run.tokenizer_file).vocab_size

    assert plan["steps"] == 9
    assert plan["epochs"] == pytest.approx(9 / plan["steps_per_epoch"])
    assert plan["train_seconds"] == pytest.approx(9 * plan["seconds_per_step"])
    assert plan["seconds_per_step"] > 0
    assert plan["whole_seconds"] > plan["train_seconds"]
    assert loss_of("uniform", plan["baselines"]) > 0
    again = here("plan", *words, "--probe", "0", "--json", folder=folder)  # in the way of no run
    assert again.returncode == 0, again.stderr
    assert REBUILT not in again.stderr


def test_the_baselines_equal_those_of_evaluate(folder: Path) -> None:
    for task, rung in (("lm", "5-gram"), ("classify", "frequencies")):
        words = [*SOURCES[task], *SMALL, "--out", f"runs/{task}"]
        plan = facts("plan", *words, "--probe", "0", folder=folder)
        shown("train", *words, folder=folder)
        later = facts("evaluate", f"runs/{task}", folder=folder)["baselines"]
        if task == "lm":
            assert loss_of(rung, plan["baselines"]) == pytest.approx(loss_of(rung, later))
            continue
        (right,) = (each["accuracy"] for each in later if each["name"] == "majority")
        assert [each["accuracy"] for each in plan["baselines"] if each["name"] == rung] == [pytest.approx(right)]


def test_without_a_probe_nothing_is_timed(folder: Path) -> None:
    plan = facts(
        "plan", *SOURCES["lm"], *SMALL[:-4], "--out", "runs/one", "--minutes", "2", "--probe", "0", folder=folder
    )
    for name in ("steps", "epochs", "seconds_per_step", "train_seconds", "peak_memory_bytes"):
        assert plan[name] is None
    assert plan["parameters"] > 0


@pytest.mark.thorough
def test_minutes_are_converted_to_steps_in_readable_output(folder: Path) -> None:
    words = [*SOURCES["lm"], *SMALL[:-4], "--out", "runs/one", "--minutes", "5", "--probe", "0.05"]
    words += ["--recipe", "shakespeare-nano"]  # without one the steps would be chosen, too
    plan = facts("plan", *words, folder=folder)
    assert 0.95 * 300 <= plan["whole_seconds"] <= 300
    assert plan["train_seconds"] < plan["whole_seconds"]
    assert any("memorized" in warning for warning in plan["warnings"])
    text = shown("plan", *words, folder=folder)
    for words_of in (
        "model    decoder, 1 layer,",
        f"{plan['parameters']:,} parameters",
        "an epoch",
        "s per step on cpu",
        "s of training",
        "memory ",
        "per checkpoint",
        "baselines on the validation split",
        "5-gram",
        "note: the text is read",
    ):
        assert words_of in text


@pytest.mark.thorough
def test_sizes_are_chosen_from_text_time_and_speed(folder: Path) -> None:
    words = [*SOURCES["lm"], "--recipe", "auto", "--tokenizer.kind", "characters", "--train.threads", "1"]
    words += ["--sample.tokens", "4", "--model.layers", "1", "--minutes", "0.02", "--out", "runs/auto"]
    plan = facts("plan", *words, "--probe", "0.05", folder=folder)
    assert "model.layers" not in plan["chosen"]
    assert plan["chosen"]["model.width"] == 64  # the smallest: there is a second for 1,800 characters
    assert 0 < plan["loss_band"]["low"] <= plan["loss_band"]["high"] <= loss_of("uniform", plan["baselines"])
    assert "chosen   " in shown("plan", *words, "--probe", "0.05", folder=folder)

    trained = here("train", *words, folder=folder)
    assert trained.returncode == 0, trained.stderr
    run = Run(folder / "runs" / "auto")
    assert (run.config().model.layers, run.config().model.width) == (1, 64)
    kept = json.loads((run.folder / "plan.json").read_text(encoding="utf-8"))
    assert kept["chosen"].keys() == plan["chosen"].keys()
    assert all(sentence in trained.stderr for sentence in kept["why"])
    foreseen = kept["plan"]
    outcome = kept["outcome"]
    steps = [json.loads(line)["step"] for line in run.metrics_file.read_text(encoding="utf-8").splitlines()]
    assert outcome["steps"] == steps[-1]
    assert outcome["validation_share"] <= 1
    start = "forecast (measured values in brackets):"
    (line,) = (line for line in trained.stdout.splitlines() if line.startswith(start))
    assert f"steps {foreseen['steps']:,} ({outcome['steps']:,})" in line
    assert f"({outcome['validation_loss']:.3f})" in line


@pytest.mark.thorough
def test_standard_input_is_read_once(folder: Path) -> None:
    """Standard input is encoded, used for the forecast, and then used for training."""
    words = ["-", "--recipe", "auto", "--tokenizer.kind", "characters", "--minutes", "0.01", "--train.threads", "1"]
    text = (folder / "proverbs.txt").read_text(encoding="utf-8")
    trained = here("train", *words, "--sample.tokens", "4", "--out", "runs/piped", folder=folder, text=text)
    assert trained.returncode == 0, trained.stderr
    assert (folder / "runs" / "piped" / "plan.json").is_file()


def test_a_run_limited_by_steps_is_not_measured_first(folder: Path) -> None:
    trained = here("train", *SOURCES["lm"], *SMALL, folder=folder)
    assert trained.returncode == 0, trained.stderr
    assert "forecast" not in trained.stdout + trained.stderr
    assert not (folder / "runs" / "one" / "plan.json").exists()


def test_no_loss_is_forecast_without_a_formula(folder: Path) -> None:
    plan = facts("plan", *SOURCES["translate"], *SMALL, "--probe", "0", folder=folder)
    assert plan["loss_band"] is None
    text = shown("plan", *SOURCES["translate"], *SMALL, "--probe", "0", folder=folder)
    assert "no loss is predicted for train.task = translate" in text


@pytest.mark.parametrize(
    ("words", "cause", "remedy"),
    [
        (["storys"], "storys", "stories"),
        (["nothing.txt"], "nothing.txt", ""),
        (["empty.txt"], "empty.txt", ""),
        (["proverbs.txt", "--probe", "-1"], "--probe -1", "0 to 600"),
        (["proverbs.txt", "--probe", "1e9"], "--probe 1e+09", "0 to 600"),
        (["proverbs.txt", "--probe", "nan"], "--probe nan", "0 to 600"),
        (["proverbs.txt", "--probe", "long"], "--probe", "--help"),
        (["proverbs.txt", "--set", "train.steeps=3"], "train.steeps", "Did you mean train.steps?"),
        (["a.en", "--task", "translate"], "a.en", "data.target"),
        (["stories", "--task", "translate"], "stories", "lm"),
        (["proverbs.txt", "--resume"], "--resume", "recipe"),
        (["proverbs.txt", "--device", "cuda:77"], "cuda:77", "cpu"),
    ],
)
def test_bad_input_of_plan_is_refused(words: list[str], cause: str, remedy: str, folder: Path) -> None:
    (folder / "empty.txt").touch()
    before = tree(folder)
    done = here("plan", *words, folder=folder)
    assert done.returncode == 2
    assert done.stdout == ""
    problem, advice = done.stderr.splitlines()
    assert cause in problem
    assert remedy in advice
    assert tree(folder) == before


def test_a_text_too_short_for_the_model_is_refused(folder: Path) -> None:
    done = here("plan", "proverbs.txt", "--model.context", "90000", "--tokenizer.kind", "bytes", folder=folder)
    assert done.returncode == 2
    problem, advice = done.stderr.splitlines()[-2:]
    assert "needs 90,001" in problem
    assert "model.context" in advice
