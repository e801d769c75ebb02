"""Commands of every task, on tiny runs that are made once: train, resume, use.

`test_task_measures.py` evaluates and moves these runs; `test_bad_examples.py` tests errors in training files.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import signal
from pathlib import Path

import pytest

from glassformer.generation.decoding import ENDINGS
from glassformer.launch import start
from glassformer.model.weights import load_tensors
from glassformer.runs.folder import Run
from glassformer.training.reporting import Status
from tests.journey.command_output import facts, metrics, shown
from tests.journey.commands import here
from tests.journey.task_files import write_all
from tests.journey.task_runs import DOES, PAIRS, TASKS, TINY, refused, said_of, train
from tests.property.trainers import same

# ---- train


@pytest.mark.parametrize("name", TASKS)
def test_train_prints_the_documented_json_fields(name: str, task_home: Path) -> None:
    said = said_of(name, task_home)
    assert {"run", "step", "loss", "perplexity", "bits_per_byte", "train_seconds"} <= said.keys()
    assert Path(said["run"]) == Path(f"runs/{name}")
    assert said["perplexity"] == pytest.approx(math.exp(said["loss"]))
    assert (said["bits_per_byte"] is None) == (name in ("masked", "classify", "chat"))
    lines = metrics(task_home / "runs" / name)
    assert [line["step"] for line in lines] == list(range(10, 61, 10))
    best = min((line["validation_loss"], line["step"]) for line in lines if "validation_loss" in line)
    assert said["step"] == best[1]
    assert lines[-1]["loss"] < lines[0]["loss"] - 0.1


@pytest.mark.parametrize("name", TASKS)
def test_the_suggested_next_command_works(name: str, task_home: Path, tmp_path: Path) -> None:
    shutil.copytree(task_home / "runs" / name, tmp_path / "run")
    again = here("train", "--resume", "--out", f"runs/{name}", folder=task_home)
    last = again.stdout.splitlines()[-1]
    command, text = DOES[name]
    assert f"runs/{name} is ready: glass {command} runs/{name}" in last.replace("\\", "/")
    assert shown(command, "run", text, folder=tmp_path).strip()


class StopsAt:
    """A silent reporter that stops the run at a step, as Ctrl-C does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def status(self, status: Status) -> None:
        if status.step == self.step:
            signal.raise_signal(signal.SIGINT)

    def note(self, text: str) -> None:
        """Ignore the text."""

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("name", [name for name in TASKS if name != "lm"])
def test_a_stopped_and_resumed_run_ends_with_the_same_weights(
    name: str, task_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(start, "choose_reporter", lambda: StopsAt(30))
        stopped = here(*train(name, out="stopped"), folder=tmp_path)
    assert stopped.returncode == 130
    assert stopped.stdout == ""
    assert re.search(r"stopped after step 3[01]; everything is saved", stopped.stderr)
    said = facts("train", "--resume", "--out", "stopped", folder=tmp_path)
    assert said["steps_done"] == 60
    for which in ("best", "last"):
        files = [
            Run(path).checkpoint(which) / "model.safetensors"
            for path in (task_home / "runs" / name, tmp_path / "stopped")
        ]
        assert same(*map(load_tensors, files))
    assert said["loss"] == said_of(name, task_home)["loss"]


def test_a_table_and_two_files_with_the_same_pairs_give_the_same_model(task_home: Path, tmp_path: Path) -> None:
    pairs = [line.split("\t") for line in (task_home / "pairs.tsv").read_text(encoding="utf-8").splitlines()[:60]]
    for number, name in enumerate(("a.en", "a.de")):
        (tmp_path / name).write_text("".join(pair[number] + "\n" for pair in pairs), encoding="utf-8")
    (tmp_path / "a.tsv").write_text("".join("\t".join(pair) + "\n" for pair in pairs), encoding="utf-8")
    rows = [json.dumps({"id": 7, "de": german, "en": english}) + "\n" for english, german in pairs]
    (tmp_path / "a.jsonl").write_text("".join(rows), encoding="utf-8")
    named = ["--data.column=en", "--data.target_column=de"]
    losses = {
        out: facts("train", *given, "--task", "translate", *TINY, "--steps=2", "--out", out, folder=tmp_path)["loss"]
        for out, given in {"files": ["a.en", "a.de"], "tsv": ["a.tsv"], "jsonl": ["a.jsonl", *named]}.items()
    }
    assert losses["files"] == losses["tsv"] == losses["jsonl"]


def test_separate_validation_files_are_used(task_home: Path) -> None:
    given = ["train.en", "train.de", "--task=translate", "--data.validation=val.en", "--data.validation_target=val.de"]
    done = here("train", *given, *TINY, "--steps=2", "--out=runs/own", folder=task_home)
    assert done.returncode == 0, done.stderr
    assert "validation: val.en, val.de (30 pairs); training: all of train.en, train.de (280 pairs)" in done.stderr
    assert facts("evaluate", "runs/own", folder=task_home)["examples"] == 30
    mails = ["mails.csv", "--task=classify", "--data.validation=test.csv"]
    done = here("train", *mails, *TINY, "--steps=2", "--out=runs/own-mails", folder=task_home)
    assert done.returncode == 0, done.stderr
    assert "validation: test.csv (36 texts); training: all of mails.csv (144 texts)" in done.stderr


def test_two_vocabularies_are_kept_and_counted(task_home: Path) -> None:
    assert {path.name for path in (task_home / "runs" / "two").glob("*tokenizer.json")} == {
        "tokenizer.json",
        "source_tokenizer.json",
    }
    assert not (task_home / "runs" / "translate" / "source_tokenizer.json").exists()
    log = (task_home / "two.log").read_text(encoding="utf-8")
    assert "source: words, " in log
    assert "target: words, " in log


# ---- use


@pytest.mark.parametrize("name", PAIRS)
def test_generate_writes_a_text_for_a_source(name: str, task_home: Path) -> None:
    source = DOES[name][1]
    said = facts("generate", f"runs/{name}", source, folder=task_home)
    assert {"text", "tokens", "tokens_per_second"} <= said.keys()
    assert 0 < said["tokens"] <= 8
    assert said["samples"][0]["score"] < 0  # four beams where nothing else is said
    assert shown("generate", f"runs/{name}", source, folder=task_home) == said["text"] + "\n"  # without the source
    greedy = facts("generate", f"runs/{name}", source, "--beams", "1", folder=task_home)
    assert greedy["samples"][0]["score"] is None
    assert (
        facts("generate", f"runs/{name}", source, "--beams=1", "--seed=4", folder=task_home)["text"] == greedy["text"]
    )
    ranked = facts("generate", f"runs/{name}", source, "--top", "3", folder=task_home)["candidates"]
    assert len(ranked) == 3
    cause, remedy = refused("generate", f"runs/{name}", folder=task_home)
    assert "needs a source text, but the prompt is missing or empty" in cause
    assert "--input FILE" in remedy


@pytest.mark.parametrize("name", ["lm", "translate"])
def test_samples_of_beam_search_are_the_best_hypotheses(name: str, task_home: Path) -> None:
    text = DOES[name][1]
    rows = facts("generate", f"runs/{name}", text, "--beams=4", "--samples=3", folder=task_home)["samples"]
    scores = [row["score"] for row in rows]
    assert len({row["text"] for row in rows}) == 3
    assert scores == sorted(scores, reverse=True)
    assert rows[0]["text"] == facts("generate", f"runs/{name}", text, "--beams=4", folder=task_home)["text"]
    plain = shown("generate", f"runs/{name}", text, "--beams=4", "--samples=3", folder=task_home)
    assert [line for line in plain.splitlines() if line.startswith("--- ")] == [
        f"--- score {row['score']:.4f}, {row['tokens']} tokens, ended by {ENDINGS[row['ended']]}" for row in rows
    ]
    other = facts("generate", f"runs/{name}", text, "--beams=4", "--samples=3", "--length-penalty=3", folder=task_home)
    assert [row["score"] for row in other["samples"]] != scores
    cause, remedy = refused("generate", f"runs/{name}", text, "--beams=2", "--samples=3", folder=task_home)
    assert "--samples 3 is above the number of beams (2)" in cause
    assert remedy == "Give --beams 3, or, to sample, --beams 1 with a --temperature above 0."


def test_files_are_answered_line_by_line(task_home: Path) -> None:
    sources = (task_home / "sentences.txt").read_text(encoding="utf-8").splitlines()
    lines = shown("generate", "runs/translate", "--input", "sentences.txt", folder=task_home).splitlines()
    assert lines == [facts("generate", "runs/translate", source, folder=task_home)["text"] for source in sources]
    mails = (task_home / "new-mails.txt").read_text(encoding="utf-8").splitlines()
    lines = shown("classify", "runs/classify", "--input", "new-mails.txt", folder=task_home).splitlines()
    said = facts("classify", "runs/classify", "--input", "new-mails.txt", folder=task_home)
    assert [line.split("\t") for line in lines] == [
        [each["label"], f"{each['probability']:.4f}", mail] for each, mail in zip(said["texts"], mails, strict=True)
    ]


def test_classify_gives_every_label_its_probability(task_home: Path) -> None:
    said = facts("classify", "runs/classify", "win a 7 pound prize now", "we are home at 5", folder=task_home)
    assert said["labels"] == ["family", "spam", "work"]
    for each in said["texts"]:
        assert set(each["probabilities"]) == set(said["labels"])
        assert sum(each["probabilities"].values()) == pytest.approx(1, abs=1e-6)
        assert each["probability"] == max(each["probabilities"].values()) == each["probabilities"][each["label"]]
    plain = shown("classify", "runs/classify", "-", folder=task_home, text="win a 7 pound prize now").splitlines()
    first = said["texts"][0]
    assert plain == [f"{share:>8.2%}  {label}" for label, share in first["probabilities"].items()]
    cause, remedy = refused("classify", "runs/classify", folder=task_home)
    assert "was given no text" in cause
    assert remedy == "Give TEXT, or --input FILE with one text per line."
    cause, remedy = refused("classify", "runs/classify", "win", "--input", "mails.txt", folder=task_home)
    assert cause == "glass classify was given both a text and --input mails.txt"
    assert remedy == "Give TEXT or --input FILE, not both."


def test_fill_ranks_the_tokens_for_each_mask(task_home: Path) -> None:
    text = DOES["masked"][1]
    said = facts("fill", "runs/masked", text, "--top", "3", folder=task_home)
    assert [len(candidates) for candidates in said["masks"]] == [3, 3]
    assert "[MASK]" not in said["text"]
    words = said["text"].split()
    assert [words[3], words[7]] == [candidates[0]["text"].strip() for candidates in said["masks"]]
    assert " ".join(word for place, word in enumerate(words) if place not in (3, 7)) == "It was a day when the met"
    assert shown("fill", "runs/masked", "-", folder=task_home, text=text).splitlines()[0] == said["text"]
    cause, remedy = refused("fill", "runs/masked", "nothing to fill in", folder=task_home)
    assert "there is no [MASK] in 'nothing to fill in'" in cause
    assert "Write [MASK] in place of" in remedy
    cause, _ = refused("fill", "runs/masked", "day " * 60 + "[MASK]", folder=task_home)
    assert "the text has 61 tokens, but the model reads at most 40" in cause


@pytest.mark.parametrize("words", [[""], [" \t"], ["win a prize", ""], ["-"]])
def test_no_label_is_given_to_an_empty_text(words: list[str], task_home: Path) -> None:
    cause, remedy = refused("classify", "runs/classify", *words, folder=task_home)
    assert cause == f"{'text 2 of 2' if words[1:] else 'the text'} is empty"
    assert remedy == "Give a text that is not empty."


def test_an_empty_line_keeps_its_position_and_is_reported(task_home: Path) -> None:
    (task_home / "gaps.txt").write_text("win a 7 pound prize now\n\nlunch at 5 with the team\n", encoding="utf-8")
    done = here("classify", "runs/classify", "--input", "gaps.txt", folder=task_home)
    assert done.returncode == 0, done.stderr
    assert [line.split("\t")[2] for line in done.stdout.splitlines()] == [
        "win a 7 pound prize now",
        "",
        "lunch at 5 with the team",
    ]
    assert done.stderr == "1 line of gaps.txt is empty: the label of an empty line is meaningless\n"


@pytest.mark.parametrize("name", ["classify", "translate", "two", "summarize"])
def test_truncation_is_reported_in_numbers(name: str, task_home: Path) -> None:
    command = DOES[name][0]
    long = "the dog " * 29 + "the dog"
    done = here(command, f"runs/{name}", long, folder=task_home)
    assert done.returncode == 0, done.stderr
    what = "text" if name == "classify" else "source"
    assert f"the {what} is longer than the context (model.context = 40)" in done.stderr
    assert "its last 21 tokens" in done.stderr  # 60 words, 39 and an end token fit
    if command == "generate":
        lines = ["the dog", long, "dog " * 44 + "dog"]
        (task_home / "long.txt").write_text("\n".join(lines), encoding="utf-8")
        done = here(command, f"runs/{name}", "--input", "long.txt", folder=task_home)
        assert f"2 of 3 {what}s are longer" in done.stderr
        assert "up to 21 tokens" in done.stderr
    quiet = here(command, f"runs/{name}", DOES[name][1], folder=task_home)
    assert quiet.stderr == ""


@pytest.mark.parametrize("name", TASKS)
def test_unseen_symbols_are_named(name: str, task_home: Path) -> None:
    command, text = DOES[name]
    done = here(command, f"runs/{name}", f"Ωmega {text} zebra", folder=task_home)
    assert done.returncode == 0, done.stderr
    assert "these words are not in the vocabulary" in done.stderr
    assert "Ωmega" in done.stderr
    assert "zebra" in done.stderr


@pytest.mark.parametrize("name", TASKS)
def test_the_right_command_is_suggested(name: str, task_home: Path) -> None:
    for command in ("generate", "classify", "fill"):
        if command != DOES[name][0] and (name, command) != ("chat", "generate"):  # it answers a question alone
            cause, remedy = refused(command, f"runs/{name}", "a [MASK] day", folder=task_home)
            assert f"runs/{name} was trained with train.task = {'translate' if name == 'two' else name}" in cause
            assert f"glass {DOES[name][0]} runs/{name}" in remedy
