"""Grade a class: check the answers of every submission in separate processes, with the same cases for all."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from glassformer.base.errors import GlassError
from glassformer.base.wording import listed
from glassformer_course.checking import check_source
from glassformer_course.exercise import Exercise
from glassformer_course.judging.verdict import Verdict
from glassformer_course.reading import LARGEST, read_answer

COLUMNS = ("student", "number", "exercise", "result", "passed", "cases", "mistake", "words", "seconds", "file")
FORMULA = tuple("=+-@＝＋－＠")  # including full-width forms, which East Asian spreadsheets accept


@dataclass(frozen=True)
class Mark:
    """Mark of one answer of one student, for one row of the CSV.

    `result` is one of the results of `Verdict`, "missing" or "unreadable".
    """

    student: str
    number: int
    exercise: str
    result: str
    passed: bool
    cases: int
    mistake: str
    words: str
    seconds: float
    file: str


def submissions(folder: Path) -> list[Path]:
    """Return the students' folders, sorted by name, except those whose names begin with `.` or `__`.

    Raises:
        GlassError: the folder is missing, or has no subfolders.
    """
    if not folder.is_dir():
        raise GlassError(f"there is no folder {folder}", "Name a folder that contains one folder per student.")
    folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "__")))
    if not folders:
        raise GlassError(f"{folder} has no subfolders", "Put each student's files in a separate subfolder.")
    return folders


def grade(
    folders: Sequence[Path],
    exercises: Sequence[Exercise],
    seed: int,
    text: str | None,
    seconds: float,
    megabytes: int,
    workers: int | None = None,
) -> list[Mark]:
    """Mark every exercise of every submission.

    Args:
        folders: one folder per submission, named after the student.
        exercises: exercises of the assignment.
        seed: seed of the random cases, the same for every submission.
        text: the class's text, or None.
        seconds, megabytes: time and memory limits of each answer's process.
        workers: number of answers checked at once; None: the number of processors.

    Returns:
        One mark for each exercise of each submission, ordered by submission.
    """

    def mark_job(job: tuple[Path, Exercise]) -> Mark:
        folder, exercise = job
        return _mark(folder, exercise, lambda source: check_source(exercise, source, seed, text, seconds, megabytes))

    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        return list(pool.map(mark_job, [(folder, exercise) for folder in folders for exercise in exercises]))


def as_csv(marks: Sequence[Mark]) -> str:
    """Return the marks as CSV in which no cell is a spreadsheet formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for mark in marks:
        writer.writerow([_escape_formula(str(getattr(mark, column))) for column in COLUMNS])
    return out.getvalue()


def _mark(folder: Path, exercise: Exercise, check: Callable[[str], Verdict]) -> Mark:
    path = None
    try:
        path = _answer_file(folder, exercise)
        if path is None:
            explanation = (
                f"there is no {exercise.file_name}.py or {exercise.file_name}.ipynb{_other_files_text(folder)}"
            )
            return Mark(folder.name, exercise.number, exercise.name, "missing", False, 0, "", explanation, 0.0, "")
        source = read_answer(path, exercise)
    except (GlassError, OSError) as error:
        explanation = error.problem if isinstance(error, GlassError) else str(error)
        file = path.relative_to(folder).as_posix() if path else ""
        return Mark(folder.name, exercise.number, exercise.name, "unreadable", False, 0, "", explanation, 0.0, file)
    verdict = check(source)
    return Mark(
        folder.name,
        exercise.number,
        exercise.name,
        verdict.result,
        verdict.passed,
        verdict.cases_run,
        verdict.mistake,
        " ".join(verdict.lines),
        round(verdict.seconds, 2),
        path.relative_to(folder).as_posix(),
    )


def _answer_file(folder: Path, exercise: Exercise) -> Path | None:
    """Return the answer's file in a submission or in a folder inside it, or None.

    If both a `.py` file and a notebook exist, prefer the `.py` file unless it is still the unchanged stub.
    """
    subfolders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "__")))
    for parent in (folder, *subfolders):
        script, notebook = (parent / (exercise.file_name + suffix) for suffix in (".py", ".ipynb"))
        if script.is_file() and notebook.is_file():
            return notebook if _read_start(script) == exercise.stub.encode("utf-8") else script
        if script.is_file() or notebook.is_file():
            return script if script.is_file() else notebook
    return None


def _read_start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST)


def _other_files_text(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.suffix in (".py", ".ipynb"))
    return (
        f"; the folder contains: {listed(names, 5)}" if names else "; the folder itself contains no .py or .ipynb files"
    )


def _escape_formula(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet could evaluate; some spreadsheets ignore leading spaces."""
    return f"'{text}" if text.lstrip().startswith(FORMULA) or text.startswith(("\t", "\r", "\n")) else text
