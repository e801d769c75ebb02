"""`glass explain` on runs of all tasks: its predictions equal those of the other commands, and bad input is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.journey.commands import here
from tests.journey.pages import ROOT, blocks
from tests.journey.task_runs import DOES, TASKS, refused


def told(*arguments: str | Path, folder: Path) -> dict[str, Any]:
    """Return the JSON output of a command."""
    done = here(*arguments, "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def steps(found: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return all sections of one kind, including nested ones."""
    below = [step for section in found["sections"] for step in steps(section, name)]
    return [section for section in found["sections"] if section["step"] == name] + below


def rankings(found: dict[str, Any]) -> list[list[tuple[str, float]]]:
    """Return the candidates and their probabilities in each table that ranks them."""
    tables = [table for table in steps(found, "probabilities")[0]["tables"] if table["header"][0] == "rank"]
    return [[(row[1], row[4]) for row in table["rows"]] for table in tables]


def shares(found: list[tuple[str, float]]) -> Any:
    return pytest.approx([share for _, share in found], abs=1e-6)


@pytest.mark.parametrize("words", ["It was a day when", "The day . " * 20 + "It was a day when"])
def test_a_continued_text_has_the_candidates_of_generate(words: str, task_home: Path) -> None:
    """The second text is longer than the context, and both commands cut it in the same way."""
    explained = told("explain", "runs/lm", words, "--top", "5", folder=task_home)
    ranked = told("generate", "runs/lm", words, "--top", "5", folder=task_home)["candidates"]
    assert [name.replace("␣", " ") for name, _ in rankings(explained)[0]] == [each["text"] for each in ranked]
    assert [each["probability"] for each in ranked] == shares(rankings(explained)[0])
    assert bool(steps(explained, "tokens")[0]["notes"]) == (len(words) > 100)
    if len(words) > 100:
        assert "the model reads at most 40 (model.context)" in steps(explained, "tokens")[0]["notes"][0]


def test_holes_have_the_candidates_of_fill(task_home: Path) -> None:
    text = DOES["masked"][1]
    explained = told("explain", "runs/masked", text, "--top", "5", folder=task_home)
    masks = told("fill", "runs/masked", text, folder=task_home)["masks"]
    assert len(masks) == len(rankings(explained)) == 2
    for candidates, ranking in zip(masks, rankings(explained), strict=True):
        assert [each["probability"] for each in candidates] == shares(ranking)


def test_a_class_has_the_probability_of_classify(task_home: Path) -> None:
    text = DOES["classify"][1]
    explained = told("explain", "runs/classify", text, folder=task_home)
    found = told("classify", "runs/classify", text, folder=task_home)["texts"][0]["probabilities"]
    assert list(found) == [name for name, _ in rankings(explained)[0]]
    assert list(found.values()) == shares(rankings(explained)[0])


@pytest.mark.parametrize("task", ["translate", "two", "summarize"])
def test_without_a_target_the_generated_text_is_explained(task: str, task_home: Path) -> None:
    run = f"runs/{task}"
    text = DOES[task][1]
    explained = told("explain", run, text, folder=task_home)
    written = told("generate", run, text, "--beams", "1", "--temperature", "0", folder=task_home)["text"]
    assert explained["target"] == written
    if task == "translate":
        given = told("explain", run, text, "--target", "der Hund", folder=task_home)
        assert given["target"] == "der Hund"
        assert [row[1] for row in steps(given, "tokens")[0]["tables"][1]["rows"]] == ["<|end|>", "der", "␣Hund"]
    assert {section["step"] for section in explained["sections"]} >= {"encoder", "decoder"}
    assert len(steps(explained, "cross")) == 1


def test_a_target_that_is_cut_leaves_room_for_the_start_token(task_home: Path) -> None:
    text = DOES["translate"][1]
    explained = told("explain", "runs/translate", text, "--target", "der Hund " * 30, folder=task_home)
    (note,) = steps(explained, "tokens")[0]["notes"]
    assert "the model reads at most 39 (model.context minus the start tokens)" in note


@pytest.mark.parametrize("task", TASKS)
def test_every_task_is_explained_as_text_and_as_page(task: str, task_home: Path, tmp_path: Path) -> None:
    run = f"runs/{task}"
    text = DOES[task][1]
    done = here("explain", run, text, "--level", "researcher", folder=task_home)
    assert done.returncode == 0
    for word in ("Tokens", "Embedding", "Layer 0", "A = softmax(", "Logits", "Probabilities", "probability"):
        assert word in done.stdout, word
    done = here("explain", run, text, "--html", tmp_path / "page.html", folder=task_home)
    assert (done.returncode, "open it in a browser" in done.stdout) == (0, True)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<h4>Softmax</h4>") == {"translate": 6, "two": 6, "summarize": 6}.get(task, 2)


def test_the_example_is_explained_at_every_level(tmp_path: Path) -> None:
    pages = {level: here("explain", "--level", level, folder=tmp_path).stdout for level in ("school", "engineer")}
    assert "cake" in pages["school"]
    assert "cake" not in pages["engineer"]
    assert all("sat  0.0870  0.8259  0.0870" in page for page in pages.values())


def test_a_head_can_be_chosen_by_name_or_number(task_home: Path) -> None:
    named = here("explain", "runs/lm", "It", "--head", "dec.0.self.1", "--json", folder=task_home)
    numbered = here("explain", "runs/lm", "It", "--layer", "0", "--head", "1", "--json", folder=task_home)
    assert named.returncode == 0
    assert named.stdout == numbered.stdout
    assert refused("explain", "runs/lm", "It", "--head", "dec.0.self.9", folder=task_home)[0].startswith(
        "there is no head 'dec.0.self.9'"
    )
    other_layer = refused("explain", "runs/lm", "It", "--head", "dec.0.self.1", "--layer", "1", folder=task_home)
    assert other_layer == ("--head dec.0.self.1 is not in the layer of --layer 1", "Remove --layer.")


def test_a_chosen_head_is_shown_in_full(task_home: Path) -> None:
    text = DOES["translate"][1]
    few = here("explain", "runs/translate", text, folder=task_home)
    assert "5 of 6 heads have one line each" in few.stderr
    assert few.stdout.count("A = softmax(") == 1
    one = here("explain", "runs/translate", text, "--head", "1", folder=task_home)
    assert (one.stdout.count("A = softmax("), one.stderr) == (3, "")
    assert "Head 0" not in one.stdout


@pytest.mark.parametrize(
    ("words", "problem", "remedy"),
    [
        (["runs/lm"], "runs/lm was given without a text", "glass explain runs/lm"),
        (["runs/lm", ""], "the text is empty", "Give a text"),
        (["runs/ml", "It"], "there is no run at runs/ml", "Did you mean"),
        (["book.txt", "It"], "there is no run at book.txt", ""),
        (["runs/lm", "It", "--layer", "1"], "there is no layer 1: the model has 1", "Give 0."),
        (["runs/lm", "It", "--head", "-2"], "there is no head -2: the model has 2", "Give 0 to 1."),
        (
            ["runs/lm", "It", "--target", "x"],
            "a target was given, but runs/lm was trained with train.task = lm",
            "Leave the target",
        ),
        (["runs/masked", "It was"], "there is no [MASK] in", "Write [MASK] in place of"),
        (["runs/masked", "It " * 50 + "[MASK]"], "the text has 51 tokens, but the model reads at most 40", "shorter"),
        (["--target", "x"], "--target was given without a run", "Give RUN and TEXT"),
        (["--level", "schol"], "there is no level 'schol'", "Did you mean school?"),
        (["--top", "0"], "--top 0 is below 1", "at least 1"),
        (["--html", "book.txt"], "book.txt exists and is not a page of glass explain", "another name"),
        (["--html", "runs"], "runs is a folder", "a file"),
        (["--html", "nowhere/page.html"], "there is no folder nowhere", "Create it first"),
        (["--html", "book.txt/page.html"], "there is no folder book.txt", "Create it first"),
    ],
)
def test_invalid_arguments_are_refused_in_two_lines(
    words: list[str], problem: str, remedy: str, task_home: Path
) -> None:
    before = (task_home / "book.txt").read_bytes()
    first, second = refused("explain", *words, folder=task_home)
    assert problem in first
    assert remedy in second
    assert (task_home / "book.txt").read_bytes() == before


def test_two_spaces_are_a_text(task_home: Path) -> None:
    done = here("explain", "runs/lm", "  ", folder=task_home)
    assert done.returncode == 0, done.stderr
    assert "text: ␣␣" in done.stdout
    assert here("receipt", "runs/lm", "  ", folder=task_home).returncode == 0


def test_the_documentation_shows_the_printed_output(tmp_path: Path) -> None:
    shown = [block.code.rstrip() for block in blocks(ROOT / "docs" / "explain.md", "text")]
    assert shown
    printed = here("explain", folder=tmp_path).stdout
    for part in shown:
        assert part in printed
