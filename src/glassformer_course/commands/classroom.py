"""Actions of `glass learn` for teachers: assign and grade."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.errors import GlassError
from glassformer.base.report import SimpleReport, emit
from glassformer.base.wording import counted, quoted

if TYPE_CHECKING:
    from glassformer_course.classroom.grading import Mark

ASSIGN = ("out", "text", "notebooks")
MOST = {"seconds": 3600, "megabytes": 1 << 20, "workers": 256}
GRADE = ("out", "assignment", "seconds", "megabytes", "workers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of assign and grade to a parser."""
    parser.add_argument("--out", type=Path, metavar="PATH", help="assign: a new folder; grade: the CSV file to write")
    parser.add_argument(
        "--text", type=Path, metavar="FILE", help="assign: a text file, on which exercises about text are also checked"
    )
    parser.add_argument("--notebooks", action="store_true", default=None, help="assign: also write notebooks")
    parser.add_argument(
        "--assignment", type=Path, metavar="FOLDER", help="grade: folder written by assign (default: all exercises)"
    )
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="grade: time limit of each answer in seconds (default: 5)"
    )
    parser.add_argument(
        "--megabytes", type=int, metavar="N", help="grade: memory limit of each answer in MB (default: 1024)"
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="grade: answers checked at once (default: number of processors)"
    )


def assign(arguments: argparse.Namespace) -> int:
    """Write an assignment into the new folder given by `--out`."""
    from glassformer_course.classroom.assignment import assign, chosen_exercises

    if not arguments.words:
        raise GlassError("no exercise was given", "For example: glass learn assign 2 softmax 7-9 --out week-1")
    if arguments.out is None:
        raise GlassError("no --out was given", "Name a new folder: --out week-1")
    exercises = chosen_exercises(arguments.words)
    files = assign(exercises, arguments.out, arguments.level or "student", arguments.text, bool(arguments.notebooks))
    facts = {
        "folder": str(arguments.out),
        "exercises": [exercise.name for exercise in exercises],
        "files": [str(path) for path in files],
    }
    grade_command = f"glass learn grade FOLDER --assignment {quoted(arguments.out)}"
    lines = [
        f"{arguments.out} is ready: {counted(len(exercises), 'exercises')} in {counted(len(files), 'files')}",
        f"Give it to the class, then grade the submissions: {grade_command}",
    ]
    emit(SimpleReport(facts, lines), arguments.json)
    return 0


def grade(arguments: argparse.Namespace) -> int:
    """Mark submissions and print the results; with `--out`, also write them as CSV."""
    from glassformer.base.files import refuse_no_folder, write_text
    from glassformer_course.classroom.grading import as_csv, grade, submissions
    from glassformer_course.folder import STATE, CourseFolder
    from glassformer_course.judging.sandbox import MEGABYTES, SECONDS

    if not arguments.words:
        raise GlassError("no folder was given", "For example: glass learn grade submissions --out marks.csv")
    for name, maximum in MOST.items():
        value = getattr(arguments, name)
        if value is not None and not 0 < value <= maximum:
            raise GlassError(f"--{name} is {value}", f"Give a number above 0, at most {maximum:,}.")
    if arguments.assignment is not None and not (arguments.assignment / STATE).is_file():
        raise GlassError(f"{arguments.assignment} is not an assignment", "Name a folder written by glass learn assign.")
    if arguments.out is not None:
        refuse_no_folder(arguments.out)
    course = CourseFolder(arguments.assignment or Path(arguments.words[0]) / ".none")
    marks = grade(
        submissions(Path(arguments.words[0])),
        course.exercises,
        arguments.seed or 0,
        course.text(),
        arguments.seconds or SECONDS,
        arguments.megabytes or MEGABYTES,
        arguments.workers,
    )
    if arguments.out is not None:
        write_text(arguments.out, as_csv(marks))
    lines = _lines(marks)
    if arguments.out is not None:
        lines.append(f"{quoted(arguments.out)} has a row for each exercise of each student")
    emit(SimpleReport({"marks": [vars(mark) for mark in marks]}, lines), arguments.json)
    return 0


def _lines(marks: list[Mark]) -> list[str]:
    """Return one line per student: the number of right answers, then the mistake or result of each remaining answer."""
    students = sorted({mark.student for mark in marks})
    width = max(map(len, students))
    lines = []
    for student in students:
        student_marks = [mark for mark in marks if mark.student == student]
        wrong = [f"{mark.number} ({mark.mistake or mark.result})" for mark in student_marks if not mark.passed]
        listed = f"; not right: {', '.join(wrong)}" if wrong else ""
        lines.append(f"{student:<{width}}  {len(student_marks) - len(wrong)} of {len(student_marks)} right{listed}")
    return lines
