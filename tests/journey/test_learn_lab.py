"""The bug lab of `glass learn`: list, open and answer cases, and ask for hints; errors have two lines."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from glassformer_course.lab.case import cases, diagnoses, find_case
from tests.journey.commands import here

CASE = find_case("17")
"""A case whose models are trained in NumPy, in about a second."""
RIGHT = next(letter for letter, key in CASE.choices.items() if key == CASE.answer)
WRONG = next(letter for letter in CASE.choices if letter != RIGHT)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which one case was opened."""
    folder = tmp_path_factory.mktemp("course")
    done = here("learn", "lab", "open", "17", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "training the models of case" in done.stderr
    return folder


@pytest.mark.thorough
def test_a_case_from_opening_to_verdict(course: Path) -> None:
    place = course / "glass-learn" / "lab" / CASE.folder
    kept = {path.name: path.read_bytes() for path in place.iterdir()}
    assert set(kept) == {"report.txt", "curves.svg", "attention.svg", "evidence.json"}
    assert all(ElementTree.parse(place / name) for name in ("curves.svg", "attention.svg"))
    again = here("learn", "lab", "open", "17", "--level", "school", folder=course)
    assert again.returncode == 0
    assert "training" not in again.stderr
    assert again.stdout.startswith(kept["report.txt"].decode("utf-8"))
    assert CASE.look["school"] in again.stdout
    assert all(f"  {letter}  {diagnoses()[key]}" in again.stdout for letter, key in CASE.choices.items())
    assert CASE.source not in again.stdout
    assert {path.name: path.read_bytes() for path in place.iterdir()} == kept

    assert CASE.hints[0] in here("learn", "lab", "hint", "17", folder=course).stdout
    wrong = here("learn", "lab", "answer", "17", WRONG, folder=course)
    assert wrong.returncode == 2
    assert CASE.tempting[CASE.choices[WRONG]] in wrong.stdout
    assert diagnoses()[CASE.answer] not in wrong.stdout
    right = here("learn", "lab", "answer", "17", RIGHT.upper(), folder=course)
    assert right.returncode == 0
    assert right.stdout.startswith(f"Right: {diagnoses()[CASE.answer]}")
    for told in (CASE.source, CASE.caught_by, *CASE.tempting.values(), *CASE.wrong.splitlines()):
        assert told in right.stdout
    progress = here("learn", "lab", "progress", folder=course).stdout
    assert f"1 of {len(cases())} cases solved" in progress
    assert "solved; tries 2, hints 1" in progress
    assert "solved" in here("learn", "lab", folder=course).stdout


def test_all_output_can_be_json(course: Path) -> None:
    def said(*words: str) -> dict[str, object]:
        done = here("learn", "lab", *words, "--json", folder=course)
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    listed = said()["cases"]
    assert isinstance(listed, list)
    assert [each["number"] for each in listed] == list(range(1, len(cases()) + 1))
    opened = said("open", "17")
    assert set(opened) == {"number", "title", "scene", "look", "folder", "evidence", "choices"}
    assert said("answer", "17", WRONG)["right"] is False
    assert said("answer", "17", RIGHT)["right"] is True
    assert said("hint", "17")["of"] == 3
    assert said("progress")["of"] == len(cases())


@pytest.mark.parametrize(
    ("words", "problem", "remedy"),
    [
        (("opne", "1"), "there is no action 'opne' in the lab", "Did you mean open?"),
        (("open",), "glass learn lab open got no argument", "Write: glass learn lab open N"),
        (("open", "99"), "there is no case '99' in the lab", "Choose a case from 1 to"),
        (("open", "one"), "there is no case 'one' in the lab", "Choose a case from 1 to"),
        (("answer", "17"), "glass learn lab answer got 1 argument: 17", "Write: glass learn lab answer N LETTER"),
        (("answer", "17", "y"), "case 17 has no choice 'y'", "Choose one of: a, b"),
        (("answer", "2", "a"), "case 2 is not open yet", "glass learn lab open 2"),
        (("hint", "2"), "case 2 is not open yet", "glass learn lab open 2"),
    ],
)
def test_errors_are_reported_in_two_lines(course: Path, words: tuple[str, ...], problem: str, remedy: str) -> None:
    done = here("learn", "lab", *words, folder=course)
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert problem in first
    assert remedy in second
