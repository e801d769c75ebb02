"""Actions of `glass learn` for teachers: assign and grade."""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from glassformer.base.errors import GlassError
from glassformer.base.files import output_path
from glassformer.base.report import SimpleReport, emit
from glassformer.base.wording import counted, listed, quoted

if TYPE_CHECKING:
    from glassformer_course.classroom.grading import Mark

ASSIGN = ("out", "text", "notebooks")
MOST = {"seconds": 3600, "megabytes": 1 << 20, "workers": 256}
GRADE = ("out", "assignment", "seconds", "megabytes", "workers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of assign and grade to a parser."""
    parser.add_argument(
        "--out",
        type=output_path,
        metavar="PATH",
        help="assign: a new folder; grade: a new CSV file; rnn: an .svg file",
    )
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
    from glassformer.base.files import convert_os_errors, new_output, refuse_no_file, write_text
    from glassformer_course.classroom.grading import as_csv, grade
    from glassformer_course.classroom.submissions import submissions
    from glassformer_course.folder import STATE, CourseFolder
    from glassformer_course.judging.sandbox import MEGABYTES, SECONDS, missing_confinement

    if not arguments.words:
        raise GlassError("no folder was given", "For example: glass learn grade submissions --out marks.csv")
    for name, maximum in MOST.items():
        value = getattr(arguments, name)
        if value is not None and not 0 < value <= maximum:
            raise GlassError(f"--{name} is {value}", f"Give a number above 0, at most {maximum:,}.")
    if arguments.assignment is not None and not (arguments.assignment / STATE).is_file():
        raise GlassError(f"{arguments.assignment} is not an assignment", "Name a folder written by glass learn assign.")
    if arguments.out is not None:
        refuse_no_file(arguments.out)
        if arguments.out.exists():
            raise GlassError(f"{arguments.out} already exists", "Choose a new file, so that changes in it are kept.")
    path = Path(arguments.words[0])
    course = CourseFolder(arguments.assignment or path / ".none")
    with TemporaryDirectory(prefix="glass-grade-") as scratch:
        with convert_os_errors(path):
            handed, ignored = submissions(path, Path(scratch))
        marks = grade(
            handed,
            course.exercises,
            arguments.seed or 0,
            course.text(),
            arguments.seconds or SECONDS,
            arguments.megabytes or MEGABYTES,
            arguments.workers,
        )
    if arguments.out is not None:
        with new_output(arguments.out) as temporary:
            write_text(temporary, "\ufeff" + as_csv(marks))  # the byte order mark tells Excel that it is UTF-8
    lines = _lines(marks)
    if ignored:
        lines.append(f"belongs to no student: {listed(ignored, 5)}")
    missing = missing_confinement()
    if missing is not None:
        lines += [f"The operating system did not confine the answers: {missing.problem}.", missing.remedy]
    if arguments.out is not None:
        lines.append(f"{quoted(arguments.out)} has a row for each exercise of each student")
    facts = {
        "marks": [vars(mark) for mark in marks],
        "ignored": ignored,
        "confined": missing is None,
        "missing_confinement": missing and missing.problem,
    }
    emit(SimpleReport(facts, lines), arguments.json)
    return 0


def _lines(marks: list[Mark]) -> list[str]:
    """Return one line per student: the number of right answers, the other results, and hints and solutions seen."""
    students = sorted({mark.student for mark in marks})
    width = max(map(len, students))
    lines = []
    for student in students:
        student_marks = [mark for mark in marks if mark.student == student]
        wrong = [f"{mark.number} ({mark.mistake or mark.result})" for mark in student_marks if not mark.passed]
        facts = {
            "not right": wrong,
            "solution seen": [str(mark.number) for mark in student_marks if mark.solution_seen],
            "same as the solution": [str(mark.number) for mark in student_marks if mark.same_as_solution],
            "hints": [f"{mark.number} ({mark.hints})" for mark in student_marks if mark.hints],
            "several files": [f"{mark.number} ({mark.file})" for mark in student_marks if mark.other_files],
        }
        parts = [f"{len(student_marks) - len(wrong)} of {len(student_marks)} right"]
        parts += [f"{name}: {', '.join(values)}" for name, values in facts.items() if values]
        if student_marks[0].record != "kept":
            parts.append(f"course.json is {student_marks[0].record}")
        lines.append(f"{student:<{width}}  {'; '.join(parts)}")
    return lines
