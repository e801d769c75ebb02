"""Files in a learner's folder and files handed in: course.json, edited notebooks, names for the CSV."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from glassformer.base.errors import GlassError
from glassformer_course.classroom.grading import Mark, as_csv
from glassformer_course.course import find
from glassformer_course.folder import STATE, CourseFolder
from glassformer_course.reading import read_answer

SOFTMAX = find("softmax")


@pytest.mark.parametrize(
    "state",
    [
        [],
        {"version": 0},
        {"version": True},
        {"version": 1, "level": "guru"},
        {"version": 1, "exercises": ["nosuch"]},
        {"version": 1, "text": 5},
        {"version": 1, "text": "/etc/passwd"},
        {"version": 1, "records": []},
        {"version": 1, "records": {"softmax": {"done": "yes"}}},
        {"version": 1, "records": {"softmax": {"hints": "2"}}},
        {"version": 1, "records": {"softmax": {"stars": 5}}},
    ],
)
def test_a_damaged_state_is_refused_and_not_changed(state: object, tmp_path: Path) -> None:
    (tmp_path / STATE).write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(GlassError, match="is damaged"):
        CourseFolder(tmp_path)
    assert json.loads((tmp_path / STATE).read_text(encoding="utf-8")) == state


def test_the_state_of_a_later_version_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / STATE).write_text('{"version": 2, "stars": {}}', encoding="utf-8")
    with pytest.raises(GlassError, match="was written by a later version"):
        CourseFolder(tmp_path)


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file or directory"), (b"caf\xe9", "it is not UTF-8")])
def test_a_text_of_the_course_that_cannot_be_read_is_refused(
    content: bytes | None, reason: str, tmp_path: Path
) -> None:
    (tmp_path / STATE).write_text('{"version": 1, "text": "text.txt"}', encoding="utf-8")
    if content is not None:
        (tmp_path / "text.txt").write_bytes(content)
    with pytest.raises(GlassError, match=f"text.txt, the text of this course: {reason}"):
        CourseFolder(tmp_path).text()


def test_terminals_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    names = ["softmax", "matmul", "attention", "norms"]

    def work(name: str) -> None:
        folder = CourseFolder(tmp_path)
        for number in (1, 2, 3):
            folder.note_hint(find(name), number)

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: record.hints for name, record in CourseFolder(tmp_path).records.items()} == dict.fromkeys(names, 3)
    assert [path.name for path in tmp_path.iterdir()] == [STATE]


def test_a_course_file_that_was_edited_stays_marked(tmp_path: Path) -> None:
    folder = CourseFolder(tmp_path)
    folder.note_solution(SOFTMAX)
    folder.note_hint(SOFTMAX, 2)
    assert not CourseFolder(tmp_path).edited
    path = tmp_path / STATE
    path.write_text(path.read_text(encoding="utf-8").replace("true", "false"), encoding="utf-8")
    assert CourseFolder(tmp_path).edited
    CourseFolder(tmp_path).note_hint(SOFTMAX, 3)  # a later command writes a new digest
    after = CourseFolder(tmp_path)
    assert after.edited
    assert (after.record(SOFTMAX).hints, after.record(SOFTMAX).solution_seen) == (3, False)
    path.write_text(path.read_text(encoding="utf-8").replace(' "edited": true,\n', ""), encoding="utf-8")
    assert CourseFolder(tmp_path).edited


def test_a_reset_keeps_what_was_shown(tmp_path: Path) -> None:
    folder = CourseFolder(tmp_path)
    folder.note_hint(SOFTMAX, 3)
    folder.note_solution(SOFTMAX)
    folder.reset(SOFTMAX)
    record = CourseFolder(tmp_path).record(SOFTMAX)
    assert (record.hints, record.hints_seen, record.solution_seen) == (0, 3, True)


def cell(source: str, *tags: str) -> dict[str, object]:
    return {"cell_type": "code", "source": source, "metadata": {"tags": list(tags)}}


ANSWER = "def softmax(x):\n    return np.exp(x) / total(x)\n"
HELPER = cell("import numpy as np\ndef total(x):\n    return np.exp(x).sum(axis=-1, keepdims=True)")


@pytest.mark.parametrize(
    "cells",
    [
        [HELPER, cell("%timeit 3\n" + ANSWER + "!ls", "answer"), cell("1 / 0")],
        [HELPER, cell(ANSWER), cell("softmax(np.ones(3)) / 0")],
        [HELPER, cell("%%time\n" + ANSWER + "from glassformer_course import check\ncheck('softmax', softmax)")],
        [HELPER, cell(ANSWER + "get_ipython().run_line_magic('timeit', '1')", "answer"), cell("def softmax(x): 1 / 0")],
    ],
)
def test_edited_notebooks_are_read(cells: list[object], tmp_path: Path) -> None:
    path = tmp_path / "02_softmax.ipynb"
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    names: dict[str, object] = {}
    source = read_answer(path, SOFTMAX)
    assert "glassformer" not in source, "its process refuses that import"
    exec(source, names)
    assert names["softmax"]([0.0, 0.0]).tolist() == [0.5, 0.5]  # type: ignore[operator]


def test_a_folder_in_place_of_the_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "02_softmax.py").mkdir()
    with pytest.raises(GlassError, match="is not a file"):
        read_answer(tmp_path / "02_softmax.py", SOFTMAX)


@pytest.mark.parametrize("name", ["=1+1", "  =1+1", "\t=1", "＝1+1", "-x", "@x", "\n=1"])
def test_csv_cells_cannot_be_formulas(name: str) -> None:
    mark = Mark(name, 2, "softmax", "wrong", words=name, file=name)
    row = as_csv([mark]).split("\n", 1)[1]
    assert row.count("'" + name) == 3


def test_a_text_with_thousands_of_different_characters_needs_little_memory() -> None:
    text = "".join(chr(0x4E00 + place % 8000) for place in range(20_000))
    last = list(find("bigram").cases(0, text))[-2:]
    assert "(10000,)" in last[0].question()
    assert int(last[0].question().split(",")[-1].strip(" )")) <= 301
