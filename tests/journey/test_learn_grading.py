"""`glass learn grade` on what classes hand in: folders, zip files, loose files, several files for one exercise."""

from __future__ import annotations

import csv
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from glassformer.base.errors import GlassError
from glassformer_course.classroom import grading
from glassformer_course.classroom import submissions as found
from glassformer_course.classroom.grading import grade
from glassformer_course.classroom.submissions import submissions
from glassformer_course.course import find
from glassformer_course.folder import STATE, CourseFolder
from glassformer_course.judging import sandbox
from glassformer_course.judging.verdict import Result, Verdict
from tests.journey.commands import here

SOFTMAX = find("softmax")
WRONG = "def softmax(x):\n    return x\n"
OLD = 1_000_000_000.0  # a time of modification


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the check, which other tests cover, by one that only recognizes the solution and the stub."""

    def check(exercise: object, source: str, *arguments: object) -> Verdict:
        results: dict[str, Result] = {SOFTMAX.solution: "right", SOFTMAX.stub: "unwritten"}
        result = results.get(source, "wrong")
        return Verdict(2, "softmax", "Stable softmax", result, 1, (), "", 0.0, 0)

    monkeypatch.setattr(grading, "check_source", check)


def write(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def compress(folder: Path, name: str, texts: Mapping[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as archive:
        for inner, text in texts.items():
            archive.writestr(inner, text)
    return folder / name


def marks_of(path: Path, scratch: Path) -> dict[str, grading.Mark]:
    handed, _ = submissions(path, scratch)
    return {mark.student: mark for mark in grade(handed, [SOFTMAX], 0, None, 5, 300, 1)}


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def folders(here: Path) -> Path:
    write(here / "all", {"ana/02_softmax.py": SOFTMAX.solution, "bo/week-1/02_softmax.py": WRONG, "chi/notes.txt": ""})
    return here / "all"


def zips(here: Path) -> Path:
    compress(here / "all", "ana.zip", {"02_softmax.py": SOFTMAX.solution})
    compress(here / "all", "bo.zip", {"week-1/02_softmax.py": WRONG, "__MACOSX/week-1/._02_softmax.py": "x"})
    write(here / "all", {"chi/notes.txt": ""})
    return here / "all"


def loose(here: Path) -> Path:
    write(here / "all", {"ana_02_softmax.py": SOFTMAX.solution, "bo-02_softmax (1).py": WRONG, "chi/a.txt": ""})
    return here / "all"


def canvas(here: Path) -> Path:
    names = {"ana_17_900_02_softmax-1.py": SOFTMAX.solution, "bo_LATE_18_901_02_softmax.py": WRONG, "chi/a.txt": ""}
    write(here / "all", {name.replace("/", "_19_902/"): text for name, text in names.items()})
    return here / "all"


def moodle(here: Path) -> Path:
    write(
        here / "all",
        {"chi_19_assignsubmission_file_/notes.txt": "", "bo_18_assignsubmission_file_/02_softmax.py": WRONG},
    )
    compress(here / "all" / "ana_17_assignsubmission_file_", "week.zip", {"week/02_softmax.py": SOFTMAX.solution})
    return here / "all"


def one_zip(here: Path) -> Path:
    return compress(
        here, "all.zip", {"all/ana/02_softmax.py": SOFTMAX.solution, "all/bo/02_softmax.py": WRONG, "all/chi/a.py": ""}
    )


def zip_of_zips(here: Path) -> Path:
    folder = zips(here / "first")
    with zipfile.ZipFile(here / "all.zip", "w") as archive:
        for path in folder.glob("*.zip"):
            archive.write(path, path.name)
        archive.writestr("chi/a.py", "")
    return here / "all.zip"


@pytest.mark.parametrize("form", [folders, zips, loose, canvas, moodle, one_zip, zip_of_zips])
@pytest.mark.usefixtures("quick")
def test_every_form_of_submission_is_read(form: Callable[[Path], Path], tmp_path: Path, scratch: Path) -> None:
    marks = marks_of(form(tmp_path), scratch)
    results = {student.split("_")[0]: mark.result for student, mark in marks.items()}
    assert results == {"ana": "right", "bo": "wrong", "chi": "missing"}


@pytest.mark.usefixtures("quick")
def test_one_folder_or_zip_of_answers_is_one_submission(tmp_path: Path, scratch: Path) -> None:
    write(tmp_path / "ana", {"02_softmax.py": SOFTMAX.solution})
    assert {student: mark.result for student, mark in marks_of(tmp_path / "ana", scratch).items()} == {"ana": "right"}
    packed = compress(tmp_path, "bo.zip", {"02_softmax.py": SOFTMAX.solution})
    assert {student: mark.result for student, mark in marks_of(packed, scratch).items()} == {"bo": "right"}


@pytest.mark.usefixtures("quick")
def test_a_course_folder_is_one_submission_with_its_subfolders(tmp_path: Path, scratch: Path) -> None:
    course = CourseFolder(tmp_path / "mine")
    course.start(SOFTMAX)
    write(course.path, {"better/02_softmax.py": SOFTMAX.solution, "lab/report.txt": ""})
    [mark] = marks_of(course.path, scratch).values()
    assert (mark.student, mark.result, mark.file) == ("mine", "right", "better/02_softmax.py")
    assert mark.other_files == "02_softmax.py (unwritten)"


def notebook(source: str) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": source, "metadata": {"tags": ["answer"]}}]})


@pytest.mark.parametrize(
    ("older", "newer", "taken"),
    [
        (("02_softmax.ipynb", SOFTMAX.stub), ("deep/er/02_softmax.py", SOFTMAX.solution), "deep/er/02_softmax.py"),
        (("deep/02_softmax.py", SOFTMAX.solution), ("02_softmax.ipynb", SOFTMAX.stub), "deep/02_softmax.py"),
        (("02_softmax.py", SOFTMAX.solution), ("02_softmax (1).py", WRONG), "02_softmax.py"),
        (("02_softmax.py", WRONG), ("deep/02_softmax.py", WRONG + "# again"), "deep/02_softmax.py"),
        (("deep/02_softmax.py", WRONG), ("02_softmax.ipynb", SOFTMAX.stub), "deep/02_softmax.py"),
        (("02_softmax.py", WRONG), ("02_softmax.old-1.py", SOFTMAX.solution), "02_softmax.py"),
    ],
)
@pytest.mark.usefixtures("quick")
def test_of_several_files_a_right_one_or_the_last_written_one_is_taken(
    older: tuple[str, str], newer: tuple[str, str], taken: str, tmp_path: Path, scratch: Path
) -> None:
    for (name, source), saved in ((older, OLD), (newer, OLD + 60)):
        write(tmp_path / "all" / "ana", {name: notebook(source) if name.endswith(".ipynb") else source})
        os.utime(tmp_path / "all" / "ana" / name, (saved, saved))
    [mark] = marks_of(tmp_path / "all", scratch).values()
    assert mark.file == taken
    others = {older[0], newer[0]} - {taken, "02_softmax.old-1.py"}
    assert all(f"{name} (" in mark.other_files for name in others)


@pytest.mark.usefixtures("quick")
def test_damaged_zip_files_and_other_files_are_said(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        tmp_path / "all",
        {"ana.zip": "no zip file", "list.txt": "", ".hidden/list.txt": "", "bo/02_softmax.py": ""},
    )
    monkeypatch.setattr(found, "LARGEST_ZIP", 1 << 20)
    compress(tmp_path / "all", "chi.zip", {"02_softmax.py": "#" * (2 << 20)})
    outside = compress(tmp_path / "all", "dan.zip", {"../../outside/02_softmax.py": SOFTMAX.solution})
    handed, ignored = submissions(tmp_path / "all", scratch)
    assert ignored == ["list.txt"]
    marks = {mark.student: mark for mark in grade(handed, [SOFTMAX], 0, None, 5, 300, 1)}
    assert "ana.zip: it cannot be read as a zip file" in marks["ana"].words
    assert "chi.zip: its files have more than 1 MB" in marks["chi"].words
    assert marks["dan"].result == "right"
    assert outside.is_file()
    assert not (tmp_path.parent / "outside").exists()
    with pytest.raises(GlassError, match="contains no submissions"):
        submissions(tmp_path / "all" / ".hidden", scratch)


@pytest.mark.usefixtures("quick")
def test_hints_and_solutions_leave_a_mark(tmp_path: Path, scratch: Path) -> None:
    for student in ("ana", "bo", "chi"):
        course = CourseFolder(tmp_path / "all" / student)
        course.start(SOFTMAX)
        course.note_solution(SOFTMAX)
        course.note_hint(SOFTMAX, 2)
        course.file(SOFTMAX).write_text("# my own\n" + SOFTMAX.solution, encoding="utf-8")
    state = tmp_path / "all" / "bo" / STATE
    state.write_text(state.read_text(encoding="utf-8").replace('"solution_seen": true', '"solution_seen": false'))
    (tmp_path / "all" / "chi" / STATE).unlink()
    marks = marks_of(tmp_path / "all", scratch)
    assert [(mark.hints, mark.solution_seen, mark.record) for mark in marks.values()] == [
        (2, True, "kept"),
        (2, False, "edited"),
        (0, False, "missing"),
    ]


@pytest.mark.thorough
def test_the_command_shows_marks_confinement_and_keeps_an_edited_table(tmp_path: Path) -> None:
    assert here("learn", "assign", "2", "--out", "week", folder=tmp_path).returncode == 0
    for words in (("solution", "2"), ("hint", "2")):
        assert here("learn", *words, folder=tmp_path / "week").returncode == 0
    (tmp_path / "week" / "02_softmax.py").write_text(SOFTMAX.solution, encoding="utf-8")
    (tmp_path / "all").mkdir()
    (tmp_path / "week").rename(tmp_path / "all" / "ana")
    done = here("learn", "grade", "all", "--out", "marks.csv", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "solution seen: 2; same as the solution: 2; hints: 2 (1)" in done.stdout
    data = (tmp_path / "marks.csv").read_bytes()
    assert data.startswith(b"\xef\xbb\xbfstudent,number,")
    [row] = [each for each in csv.DictReader(data.decode("utf-8-sig").splitlines()) if each["number"] == "2"]
    assert (row["result"], row["solution_seen"], row["hints"], row["record"]) == ("right", "True", "1", "kept")
    (tmp_path / "marks.csv").write_text("mine", encoding="utf-8")
    again = here("learn", "grade", "all", "--out", "marks.csv", folder=tmp_path)
    assert (again.returncode, again.stderr.splitlines()[0]) == (2, "marks.csv already exists")
    assert (tmp_path / "marks.csv").read_text(encoding="utf-8") == "mine"


@pytest.mark.usefixtures("quick")
def test_grading_says_whether_the_system_confined_the_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from glassformer.app.cli.main import main

    write(tmp_path / "all", {"ana/02_softmax.py": SOFTMAX.solution})
    monkeypatch.setattr(sandbox, "missing_confinement", lambda: None)
    assert main(["learn", "grade", str(tmp_path / "all")]) == 0
    assert "confine" not in capsys.readouterr().out
    monkeypatch.setattr(sandbox, "missing_confinement", lambda: GlassError("no Landlock", "Use a container."))
    assert main(["learn", "grade", str(tmp_path / "all")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-2:] == ["The operating system did not confine the answers: no Landlock.", "Use a container."]
    assert main(["learn", "grade", str(tmp_path / "all"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["confined"], facts["missing_confinement"]) == (False, "no Landlock")
