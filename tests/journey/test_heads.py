"""`glass heads` through the real command line: every task, given texts, runs without their text, errors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from glassformer.base.locks import folder_lock
from tests.journey.commands import here
from tests.journey.task_runs import TASKS, refused
from tests.property.trainers import change_manifest

PARTS = {
    "lm": {"dec.self"},
    "masked": {"enc.self"},
    "classify": {"enc.self"},
    "translate": {"enc.self", "dec.self", "dec.cross"},
    "two": {"enc.self", "dec.self", "dec.cross"},
    "summarize": {"enc.self", "dec.self", "dec.cross"},
    "chat": {"dec.self"},
}


def told(run: str, folder: Path, *more: str) -> tuple[dict[str, Any], str]:
    """Return the JSON output of `glass heads`, and its messages."""
    done = here("heads", run, "--json", *more, folder=folder)
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts, done.stderr


@pytest.mark.parametrize("name", TASKS)
def test_all_heads_of_a_run_are_reported(name: str, task_home: Path) -> None:
    facts, messages = told(f"runs/{name}", task_home)
    heads = facts["heads"]
    assert {f"{head['stack']}.{head['part']}" for head in heads} == PARTS[name]
    assert len(heads) == 2 * len(PARTS[name])  # one layer of two heads
    assert messages == ""
    assert facts["probes"]["text"].endswith("of the run's validation text")
    for head in heads:
        assert head["name"] == f"{head['stack']}.{head['layer']}.{head['part']}.{head['head']}"
        assert head["importance"] is None
        assert head["numbers"]["hidden_weight"] == 0.0  # exactly: padding and future
        assert head["is"] == [role for role in head["is"] if head["roles"][role]["earned"]]
        for scored in head["roles"].values():
            if scored["interval"] is not None:
                assert scored["interval"][0] - 1e-9 <= scored["score"] <= scored["interval"][1] + 1e-9
    cross = [head for head in heads if head["part"] == "cross"]
    assert all({"alignment", "monotone", "end_sink"} <= set(head["roles"]) for head in cross)
    assert all("coverage" in head["numbers"] for head in cross)
    copies = {head["part"] for head in heads if "copying" in head["roles"]}
    assert copies == {"classify": set(), "translate": {"self", "cross"}, "summarize": {"self", "cross"}}.get(
        name, {"self"}
    )
    assert told(f"runs/{name}", task_home)[0] == facts


@pytest.mark.thorough
@pytest.mark.parametrize("name", TASKS)
def test_the_text_output_has_a_line_for_each_head(name: str, task_home: Path) -> None:
    table = here("heads", f"runs/{name}", "--sort", "entropy", folder=task_home).stdout.splitlines()
    facts, _ = told(f"runs/{name}", task_home)
    by_entropy = sorted(facts["heads"], key=lambda head: head["numbers"]["entropy"])
    assert [line.split()[0] for line in table[1 : 1 + len(by_entropy)]] == [head["name"] for head in by_entropy]
    head = facts["heads"][-1]
    one = here("heads", f"runs/{name}", "--head", head["name"], folder=task_home).stdout
    for role in head["roles"]:
        assert f"\n{role.replace('_', ' ')} " in one
    assert told(f"runs/{name}", task_home, "--head", head["name"])[0]["heads"] == [head]


def test_heads_are_measured_on_another_text(task_home: Path) -> None:
    (task_home / "some.txt").write_text("the old dog sleeps .\nthe old dog sleeps .\tder alte hund\n", encoding="utf-8")
    for name, text, words in (
        ("lm", "sentences.txt", "of sentences.txt"),
        ("lm", "It was the best of times", "1 row of --text"),
        ("masked", "It was the best of times", "1 row of --text"),
        ("classify", "win a 7 pound prize now", "1 row of --text"),
        ("translate", "some.txt", "2 rows of some.txt"),
        ("two", "the old dog sleeps .", "1 row of --text"),
    ):
        facts, _ = told(f"runs/{name}", task_home, "--text", text)
        assert facts["probes"]["text"].endswith(words)
        if words.startswith("1 row"):  # one sequence has no interval, so no name
            own = [head["roles"]["previous"] for head in facts["heads"] if head["part"] == "self"]
            assert all(scored["interval"] is None and not scored["earned"] for scored in own)


@pytest.mark.parametrize("name", ["lm", "classify", "translate", "two"])
def test_a_run_moved_without_its_text_is_measured_on_random_tokens(name: str, task_home: Path, tmp_path: Path) -> None:
    shutil.copytree(task_home / "runs" / name, tmp_path / "moved")
    change_manifest(tmp_path / "moved", lambda manifest: manifest["data"].update(tokens=str(tmp_path / "gone")))
    found, messages = told("moved", tmp_path)
    assert messages.startswith("using random tokens instead of text: ")
    assert found["probes"]["text"] == "16 rows of random tokens, as no text is available"
    assert {"rare_word"} <= {each["role"] for each in found["left_out"]} | set(found["heads"][0]["roles"])
    assert all(head["numbers"]["entropy"] > 0 for head in found["heads"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["moved"]


def test_a_run_on_agreement_is_measured_on_subject_verb_relations(tmp_path: Path) -> None:
    small = ["--model.layers=1", "--model.width=16", "--model.heads=2", "--data.size=200", "--train.threads=1"]
    for task, relations in (("lm", 2), ("masked", 3)):
        done = here("train", "agreement", *small, "--task", task, "--steps=3", f"--out={task}", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        facts, _ = told(task, tmp_path)
        assert facts["probes"]["sentences"] == "200 generated sentences with known subjects"
        for head in facts["heads"]:
            found = {role: scored for role, scored in head["roles"].items() if "subject" in role}
            assert len(found) == relations  # a decoder cannot look from the subject to its verb
            for scored in found.values():
                assert scored["threshold"] == pytest.approx(scored["detail"]["baseline"] + 0.1)
                assert 0.1 < scored["detail"]["baseline"] < 0.9
                assert scored["rows"] >= 190
    assert "syntactic" not in {each["role"] for each in facts["left_out"]}


def test_a_masked_run_on_coreference_is_measured_on_pronouns(tmp_path: Path) -> None:
    small = ["--model.layers=1", "--model.width=16", "--model.heads=2", "--data.size=200", "--train.threads=1"]
    for task in ("masked", "lm"):
        done = here("train", "coreference", *small, "--task", task, "--steps=3", f"--out={task}", folder=tmp_path)
        assert done.returncode == 0, done.stderr
    facts, _ = told("masked", tmp_path)
    assert facts["probes"]["sentences"] == '200 generated sentences with known nouns for "it"'
    for head in facts["heads"]:
        for role in ("it to noun", "noun to it"):
            scored = head["roles"][role]
            assert scored["threshold"] == pytest.approx(scored["detail"]["baseline"] + 0.1)
            assert 0.1 < scored["detail"]["baseline"] < 0.9
    facts, _ = told("lm", tmp_path)
    (reason,) = [each["reason"] for each in facts["left_out"] if each["role"] == "syntactic"]
    assert reason == 'a decoder reads "it" before the adjective that determines its noun'


def test_a_run_that_is_still_training_is_measured_and_reported(task_home: Path) -> None:
    with folder_lock(task_home / "runs" / "lm"):
        _, messages = told("runs/lm", task_home)
    assert "runs/lm is still training" in messages.replace("\\", "/")


def test_invalid_requests_are_refused(task_home: Path) -> None:
    def error(*more: str, run: str = "runs/lm") -> str:
        return " ".join(refused("heads", run, *more, folder=task_home))

    assert "there is no head 'dec.7.self.0' in this model It has dec.0.self.0 to dec.0.self.1" in error(
        "--head", "dec.7.self.0"
    )
    assert "--text is empty" in error("--text", "")
    assert "--text is empty" in error("--text", "  ", run="runs/translate")
    assert "--text has 200 tokens, but the model reads at most 39" in error("--text", "it " * 199 + "it")
    (task_home / "long.txt").write_text("win\n" + "win " * 70 + "\n", encoding="utf-8")
    assert "line 2 of long.txt has" in error("--text", "long.txt", run="runs/classify")
    assert "sentence.txt does not exist Did you mean sentences.txt?" in error("--text", "sentence.txt")
    (task_home / "nothing.txt").write_text("", encoding="utf-8")
    assert "nothing.txt is empty" in error("--text", "nothing.txt")
    assert "there is no run at runs/none" in error(run="runs/none")
    assert "--sort" in error("--sort", "size")


def test_self_and_cross_attention_of_a_translator_are_distinguished(task_home: Path) -> None:
    facts, _ = told("runs/two", task_home)
    reasons = {(each["part"], each["role"]): each["reason"] for each in facts["left_out"]}
    assert reasons["dec.cross", "copying"] == "source and target have separate embeddings"
    assert all("alignment" not in head["roles"] for head in facts["heads"] if head["part"] != "cross")
