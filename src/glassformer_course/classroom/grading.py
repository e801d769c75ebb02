"""Grade a class: check the answers of every submission in separate processes, with the same cases for all."""

from __future__ import annotations

import ast
import csv
import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import Any

from glassformer.base.errors import GlassError
from glassformer.base.wording import listed
from glassformer_course.checking import check_source
from glassformer_course.classroom.submissions import HandedFile, Submission
from glassformer_course.exercise import Exercise
from glassformer_course.folder import STATE, CourseFolder
from glassformer_course.judging.verdict import Verdict
from glassformer_course.reading import read_answer

FORMULA = tuple("=+-@＝＋－＠")  # including full-width forms, which East Asian spreadsheets accept


@dataclass(frozen=True)
class Mark:
    """Mark of one answer of one student: a row of the CSV, with a column for each attribute.

    Attributes:
        student: name of the submission.
        number, exercise: number and name of the exercise.
        result: one of the results of `Verdict`, "missing" or "unreadable".
        passed: whether the answer is right.
        cases: number of cases run, including the failed one.
        mistake: name of the known mistake, or "".
        words: explanation, empty if the answer is right.
        hints: number of hints that the student has seen, according to course.json.
        solution_seen: whether the student has seen the solution, according to course.json.
        record: "kept"; "edited" (course.json was changed by hand), "damaged" or "missing".
        same_as_solution: whether the functions equal those of the shipped solution, apart from comments and layout.
        seconds: duration of the check.
        file: the file that was marked.
        other_files: further answers to the exercise, with their results, and zip files that cannot be read.
    """

    student: str
    number: int
    exercise: str
    result: str
    passed: bool = False
    cases: int = 0
    mistake: str = ""
    words: str = ""
    hints: int = 0
    solution_seen: bool = False
    record: str = "missing"
    same_as_solution: bool = False
    seconds: float = 0.0
    file: str = ""
    other_files: str = ""


COLUMNS = tuple(each.name for each in fields(Mark))


def grade(
    handed: Sequence[Submission],
    exercises: Sequence[Exercise],
    seed: int,
    text: str | None,
    seconds: float,
    megabytes: int,
    workers: int | None = None,
) -> list[Mark]:
    """Mark every exercise of every submission.

    Args:
        handed: the submissions.
        exercises: exercises of the assignment.
        seed: seed of the random cases, the same for every submission.
        text: the class's text, or None.
        seconds, megabytes: time and memory limits of each answer's process.
        workers: number of answers checked at once; None: the number of processors.

    Returns:
        One mark for each exercise of each submission, ordered by submission.
    """

    def mark_job(job: tuple[Submission, Exercise]) -> Mark:
        submission, exercise = job
        return _mark(
            submission, exercise, lambda source: check_source(exercise, source, seed, text, seconds, megabytes)
        )

    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        return list(pool.map(mark_job, [(submission, exercise) for submission in handed for exercise in exercises]))


def as_csv(marks: Sequence[Mark]) -> str:
    """Return the marks as CSV in which no cell is a spreadsheet formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for mark in marks:
        writer.writerow([_escape_formula(str(getattr(mark, column))) for column in COLUMNS])
    return out.getvalue()


def _mark(submission: Submission, exercise: Exercise, check: Callable[[str], Verdict]) -> Mark:
    """Check all answers of a student to an exercise; take a right one, else the one that was written last."""
    answers = [file for file in submission.files if file.answers(exercise)]
    marked = [(_mark_file(file, submission.student, exercise, check), file) for file in answers]
    if not marked:
        mark = Mark(submission.student, exercise.number, exercise.name, "missing", words=_missing(submission, exercise))
    else:
        mark, best = max(
            marked, key=lambda each: (each[0].passed, each[0].result != "unwritten", each[1].path.stat().st_mtime)
        )
        others = [f"{other.file} ({other.result})" for other, file in marked if file is not best]
        mark = replace(mark, other_files=", ".join([*others, *submission.problems]))
    return replace(mark, **_recorded(submission, exercise))


def _mark_file(file: HandedFile, student: str, exercise: Exercise, check: Callable[[str], Verdict]) -> Mark:
    mark = Mark(student, exercise.number, exercise.name, "unreadable", file=file.shown)
    try:
        source = read_answer(file.path, exercise)
    except (GlassError, OSError) as error:
        problem = error.problem.replace(str(file.path), file.shown) if isinstance(error, GlassError) else str(error)
        return replace(mark, words=problem)
    verdict = check(source)
    return replace(
        mark,
        result=verdict.result,
        passed=verdict.passed,
        cases=verdict.cases_run,
        mistake=verdict.mistake,
        words=" ".join(verdict.lines),
        same_as_solution=verdict.passed and _statements(source, exercise) == _statements(exercise.solution, exercise),
        seconds=round(verdict.seconds, 2),
    )


def _recorded(submission: Submission, exercise: Exercise) -> dict[str, Any]:
    """Return the columns about hints and solutions, from every course.json of the submission."""
    found: dict[str, Any] = {}
    for file in submission.files:
        if file.path.name != STATE:
            continue
        try:
            course = CourseFolder(file.path.parent)
        except GlassError:
            return {**found, "record": "damaged"}
        record = course.record(exercise)
        found["hints"] = max(found.get("hints", 0), record.hints_seen)
        found["solution_seen"] = found.get("solution_seen", False) or record.solution_seen
        found["record"] = "edited" if course.edited or found.get("record") == "edited" else "kept"
    return found


def _statements(source: str, exercise: Exercise) -> list[str]:
    """Return the statements of the functions that the exercise asks for, without comments, layout and docstrings."""
    functions = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.FunctionDef)]
    return [
        ast.dump(ast.Module(each.body[1:] if ast.get_docstring(each) else each.body, []))
        for each in functions
        if each.name in exercise.functions
    ]


def _missing(submission: Submission, exercise: Exercise) -> str:
    names = sorted(file.shown for file in submission.files if file.path.suffix in (".py", ".ipynb"))
    other = f"the student handed in: {listed(names, 5)}" if names else "the student handed in no .py or .ipynb files"
    return "; ".join(
        [f"there is no {exercise.file_name}.py or {exercise.file_name}.ipynb", other, *submission.problems]
    )


def _escape_formula(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet could evaluate; some spreadsheets ignore leading spaces."""
    return f"'{text}" if text.lstrip().startswith(FORMULA) or text.startswith(("\t", "\r", "\n")) else text
