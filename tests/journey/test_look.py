"""`glass look` through the real command line: runs of all tasks, one or all heads, errors; `glass heads --plot`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from glassformer.base.locks import folder_lock
from tests.journey.commands import here
from tests.journey.task_runs import DOES, TASKS, TINY, refused

PNG = b"\x89PNG\r\n"


def looked(run: str, text: str, folder: Path, *more: str) -> dict[str, Any]:
    """Return the JSON output of `glass look`."""
    done = here("look", run, text, "--json", *more, folder=folder)
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


@pytest.mark.parametrize("name", TASKS)
def test_all_heads_of_a_run_are_drawn(name: str, task_home: Path) -> None:
    text = DOES[name][1]
    facts = looked(f"runs/{name}", text, task_home, "--out", f"{name}.png")
    assert (task_home / f"{name}.png").read_bytes().startswith(PNG)
    assert (facts["text"], facts["block"], facts["picture"]) == (text, 1, f"{name}.png")
    parts = {head["name"].rpartition(".")[0] for head in facts["heads"]}
    assert len(facts["heads"]) == 2 * len(parts)
    for head in facts["heads"]:
        stack, _, part, _ = head["name"].split(".")
        rows = facts["target_tokens"] if facts["target_tokens"] and stack == "dec" else facts["tokens"]
        columns = facts["tokens"] if part == "cross" else rows
        assert [len(row) for row in head["weights"]] == [len(columns)] * len(rows)
        assert all(sum(weight or 0.0 for weight in row) == pytest.approx(1, abs=1e-4) for row in head["weights"])
        assert (None in head["weights"][0]) == (stack == "dec" and part == "self" and len(rows) > 1)


def test_the_target_is_given_or_generated(task_home: Path) -> None:
    given = looked("runs/translate", "the old dog sleeps .", task_home, "--target", "der alte", "--site", "dec.0.cross")
    assert (given["target"], [token["text"] for token in given["target_tokens"]]) == (
        "der alte",
        ["<|end|>", "der", "␣alte"],
    )
    written = here("look", "runs/translate", "the old dog sleeps .", "--out", "own.svg", folder=task_home)
    assert "of the target, which the model generated" in written.stdout
    assert (task_home / "own.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_pictures_are_reproducible_and_accept_standard_input(task_home: Path) -> None:
    for path, text, source in (("1.png", "It was", ""), ("2.png", "It was", ""), ("3.png", "-", "It was\n")):
        options = ("--head", "dec.0.self.1", "--scale", "log", "--out", path)
        done = here("look", "runs/lm", text, *options, folder=task_home, text=source)
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{path} shows 1 head on 2 tokens\n"
        assert done.stderr == ""
    assert len({(task_home / f"{number}.png").read_bytes() for number in (1, 2, 3)}) == 1


def test_missing_glyphs_are_reported_once(tmp_path: Path) -> None:
    text = "ab \ue9ff\ue9fe"  # of the private use area: no font has them
    (tmp_path / "odd.txt").write_text(f"{text}\n" * 200, encoding="utf-8")
    settings = [*TINY, "--tokenizer.kind=characters", "--steps=1"]
    assert here("train", "odd.txt", *settings, "--out", "odd", folder=tmp_path).returncode == 0
    done = here("look", "odd", text, "--head", "dec.0.self.0", "--out", "odd.svg", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "odd.svg shows 1 head on 5 tokens\n")
    (message,) = done.stderr.splitlines()
    assert message.startswith("no installed font has \ue9fe \ue9ff: tokens with these characters are shown as ids")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("runs/lm", "", "--out", "x.png"), "the text is empty"),
        (("runs/lm", "It was " * 50, "--out", "x.png"), "tokens, but the model reads at most 40"),
        (("runs/classify", "win a prize " * 50, "--out", "x.png"), "tokens, but the model reads at most 40"),
        (("runs/masked", "a [MASK] " * 50, "--out", "x.png"), "tokens, but the model reads at most 40"),
        (("runs/translate", "the old dog " * 50, "--out", "x.png"), "tokens, but the model reads at most 40"),
        (("runs/translate", "the old", "--target", "der alte " * 50, "--out", "x.png"), "the target has"),
        (("runs/lm", "It was", "--head", "dec.0.self.9", "--out", "x.png"), "there is no head 'dec.0.self.9'"),
        (("runs/lm", "It was", "--site", "dec.0.cross", "--out", "x.png"), "there is no attention layer 'dec.0.cross'"),
        (("runs/lm", "It was", "--out", "x.gif"), "--out x.gif is not the name of a picture"),
        (("runs/lm", "It was", "--out", "none/x.png"), "there is no folder none"),
        (("runs/lm", "It was"), "glass look was given without --out"),
        (("runs/lm", "It was", "--target", "es", "--out", "x.png"), "a target was given"),
        (("runs/lm", "It was", "--scale", "cubic", "--out", "x.png"), "--scale cubic is not allowed"),
        (("runs/none", "It was", "--out", "x.png"), "runs/none"),
    ],
)
def test_invalid_arguments_of_look_are_refused(words: tuple[str, ...], problem: str, task_home: Path) -> None:
    (task_home / "x.png").write_bytes(b"old")
    assert problem in refused("look", *words, folder=task_home)[0]
    assert (task_home / "x.png").read_bytes() == b"old"


def test_one_head_is_listed_in_the_terminal(task_home: Path) -> None:
    name = "dec.0.self.1"
    done = here("look", "runs/lm", "It was a", "--head", name, folder=task_home)
    first, *rows = done.stdout.splitlines()
    assert first == f"{name}: the largest attention weights of each query token"
    found = json.loads(here("look", "runs/lm", "It was a", "--head", name, "--json", folder=task_home).stdout)
    weights = found["heads"][0]["weights"]
    assert len(rows) == len(weights) == len(found["tokens"])
    for row, (token, values) in zip(rows, zip(found["tokens"], weights, strict=True), strict=True):
        query, _, keys = row.partition("->")
        assert token["text"] in query
        shown = [float(weight) for weight in re.findall(r" \d+ (\d\.\d\d)(?:,|$)", keys)]
        largest = sorted((value for value in values if value and value >= 0.005), reverse=True)[:3]
        assert shown == pytest.approx(largest, abs=0.0051)


def test_a_training_run_is_reported_by_look(task_home: Path) -> None:
    with folder_lock(task_home / "runs" / "lm"):
        done = here("look", "runs/lm", "It was", "--json", folder=task_home)
    assert done.returncode == 0
    assert "runs/lm is still training: this is its best checkpoint so far" in done.stderr.replace("\\", "/")


def test_roles_are_drawn(task_home: Path) -> None:
    done = here("heads", "runs/lm", "--plot", "roles.png", folder=task_home)
    assert done.returncode == 0, done.stderr
    assert (task_home / "roles.png").read_bytes().startswith(PNG)
    assert (
        "--plot roles.txt is not the name of a picture"
        in refused("heads", "runs/lm", "--plot", "roles.txt", folder=task_home)[0]
    )
