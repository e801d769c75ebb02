"""Edge cases of commands for tasks: line ends of the input, equal vocabularies, text that the user wrote, flags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glassformer.runs.opening import OpenedRun
from glassformer.tasks import MaskFiller
from tests.journey.commands import here
from tests.journey.task_runs import DOES, TINY, refused


@pytest.mark.parametrize("name", ["masked", "classify", "translate"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_text_from_standard_input_equals_an_argument(task_home: Path, name: str, end: str) -> None:
    command, text = DOES[name]
    given = here(command, f"runs/{name}", text, "--json", folder=task_home)
    piped = here(command, f"runs/{name}", "-", "--json", folder=task_home, text=text + end)
    assert piped.returncode == 0, piped.stderr
    facts = [json.loads(done.stdout) for done in (given, piped)]
    for each in facts:
        each.pop("tokens_per_second", None)
    assert facts[0] == facts[1]
    assert given.stderr == piped.stderr


def test_a_final_line_end_is_part_of_a_prompt(task_home: Path) -> None:
    piped = here("generate", "runs/lm", "-", "--json", folder=task_home, text="It was\n")
    assert json.loads(piped.stdout)["samples"][0]["prompt"] == "It was\n"


def test_two_vocabularies_may_be_equal(tmp_path: Path) -> None:
    words = [*TINY, "--tokenizer.kind=bytes", "--tokenizer.joint=false", "--model.shared_embedding=false", "--steps=2"]
    made = here("train", "reverse", "--task", "translate", *words, "--data.size=60", "--out", "run", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    for command in (["generate", "run", "abc"], ["evaluate", "run", "--examples", "3"], ["count", "run"]):
        done = here(*command, folder=tmp_path)
        assert done.returncode == 0, done.stderr


def test_a_setting_of_another_task_is_refused(tmp_path: Path) -> None:
    words = ["--tokenizer.joint=false", "--model.shared_embedding=false", "--data.size=80", "--out", "run"]
    problem, remedy = refused("train", "topics", *TINY, *words, folder=tmp_path)
    assert "has no meaning for train.task = classify" in problem
    assert remedy == "Leave model.shared_embedding out: it applies only to translate, summarize."


def test_filling_keeps_the_users_words_unchanged(task_home: Path) -> None:
    model = OpenedRun.load(task_home / "runs" / "masked").text_model
    assert isinstance(model, MaskFiller)
    text = "It  was [MASK] Zebra, and\tnobody[MASK] żyje"
    filled = model.filled(text)
    assert filled.startswith("It  was")
    assert " Zebra, and\tnobody" in filled
    assert filled.endswith(" żyje")
    assert MaskFiller.MASK not in filled
    ordinary = len(model.tokenizer.text_ids)
    for candidates in model.fill(text, ordinary):
        tokens = [candidate.token for candidate in candidates]
        assert model.tokenizer.unknown_id not in tokens
        assert max(tokens) < ordinary


def test_sampling_flags_sample_and_are_refused_with_beams(task_home: Path) -> None:
    words = ["generate", "runs/translate", "the old dog sleeps .", "--samples", "2", "--json"]
    drawn = json.loads(here(*words, "--temperature", "1.5", "--seed", "7", folder=task_home).stdout)
    assert [sample["seed"] for sample in drawn["samples"]] == [7, 8]
    searched = json.loads(here(*words, folder=task_home).stdout)
    assert [sample["seed"] for sample in searched["samples"]] == [None, None]
    problem, remedy = refused(*words, "--temperature", "1.5", "--beams", "3", folder=task_home)
    assert problem == "--temperature was given with --beams 3: beam search does not sample"
    assert "--beams 1" in remedy


def test_bits_per_byte_are_not_given_for_truncated_targets(tmp_path: Path) -> None:
    kind = "--tokenizer.kind=characters"
    words = ["train", "reverse", "--task", "translate", *TINY, kind, "--data.size=80", "--steps=2", "--json", "--out"]
    whole = json.loads(here(*words, "whole", folder=tmp_path).stdout)
    cut = json.loads(here(*words, "cut", "--model.context=6", folder=tmp_path).stdout)
    assert whole["bits_per_byte"] > 0
    assert cut["bits_per_byte"] is None


@pytest.mark.parametrize("name", ["masked", "classify"])
def test_generation_settings_are_refused_where_nothing_is_generated(task_home: Path, name: str) -> None:
    for flag, named in ((["--seed", "3"], "--seed 3"), (["--sample.tokens", "4"], "sample.tokens")):
        problem, remedy = refused("evaluate", f"runs/{name}", *flag, folder=task_home)
        assert problem.startswith(named)
        assert f"train.task = {name}" in problem
        assert remedy == "Leave it out: this task does not generate text."
