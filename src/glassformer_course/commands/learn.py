"""Self-checking exercises, a bug lab and a glossary; assignments and grading for teachers.

  glass learn list
  glass learn start                      show the first unfinished exercise and write its file
  glass learn check 2                    or a file: glass learn check glass-learn/02_softmax.py
  glass learn watch                      check on every save, then continue with the next exercise
  glass learn hint 2                     show the next of three hints
  glass learn solution 2
  glass learn reset 2                    write a new file and keep the old one beside it
  glass learn notebook 2                 write the exercise as a notebook
  glass learn progress
  glass learn lab                        find bugs in trained models
  glass learn rnn book.txt               train a recurrent network beside a transformer; --out rnn.svg
  glass learn glossary attention
  glass learn assign 2 7-9 --text our-book.txt --out week-1
  glass learn grade submissions --assignment week-1 --out marks.csv

Answers are plain Python and NumPy. Each answer is checked in a separate process, limited to 5 seconds and 1 GB (on
Windows only to 5 seconds), without network, environment and other files, against a reference in NumPy, on random cases
and edge cases. `check` exits with code 2 if an answer is not right.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from glassformer.base.errors import GlassError, nearest
from glassformer.base.report import SimpleReport, emit
from glassformer.base.wording import LEVELS, counted
from glassformer_course.commands import classroom

if TYPE_CHECKING:
    from glassformer_course.exercise import Exercise
    from glassformer_course.folder import CourseFolder
    from glassformer_course.judging.verdict import Verdict


class Action(NamedTuple):
    """Function of an action, its maximum number of arguments, and the options that it accepts."""

    run: Callable[[argparse.Namespace], int]
    max_arguments: int
    options: tuple[str, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass learn` to a parser."""
    parser.add_argument("action", metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument(
        "words",
        nargs="*",
        metavar="WORD",
        help="number, name or file of an exercise; an action of the lab; a term; a folder",
    )
    parser.add_argument(
        "--folder",
        metavar="FOLDER",
        help="folder of the answers (default: the current folder if it is a course folder, else glass-learn)",
    )
    parser.add_argument(
        "--level",
        choices=LEVELS,
        help="level of the explanations (default: student; start, watch and notebook save it in the folder)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="check, watch, grade: seed of the random cases (default: new at each check; grade: 0)",
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="rnn: seeds of the loss on the text (default: 1)")
    parser.add_argument("--all", action="store_true", default=None, help="check: every exercise that was started")
    parser.add_argument(
        "--notebook", action="store_true", default=None, help="check: the notebook instead of the .py file"
    )
    classroom.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check the arguments and run the chosen action of `glass learn`."""
    if arguments.action not in ACTIONS:
        raise GlassError(f"glass learn has no action {arguments.action!r}", nearest(arguments.action, ACTIONS))
    action = ACTIONS[arguments.action]
    if len(arguments.words) > action.max_arguments:
        extra = arguments.words[action.max_arguments]
        raise GlassError(
            f"unexpected argument {extra!r}",
            f"glass learn {arguments.action} takes {_at_most(action.max_arguments)}.",
        )
    for option in OPTIONS:
        if getattr(arguments, option) is not None and option not in action.options:
            accepting = [name for name, each in ACTIONS.items() if option in each.options]
            raise GlassError(
                f"glass learn {arguments.action} does not accept --{option}",
                f"It is accepted by: {', '.join(accepting)}.",
            )
    if arguments.seed is not None and arguments.seed < 0:
        raise GlassError(f"--seed is {arguments.seed}", "Give 0 or more.")
    return action.run(arguments)


def _at_most(arguments: int) -> str:
    return f"at most {counted(arguments, 'arguments')}" if arguments else "no arguments"


def _folder(arguments: argparse.Namespace) -> CourseFolder:
    from glassformer_course.folder import CourseFolder, chosen_folder

    folder = CourseFolder(chosen_folder(arguments.folder))
    if arguments.level is not None:
        folder.level = arguments.level
    return folder


def _exercise(arguments: argparse.Namespace, folder: CourseFolder) -> Exercise:
    """Return the named exercise; without a name, the first unfinished one."""
    from glassformer_course.course import find

    if arguments.words:
        exercise = find(Path(arguments.words[0]).name)
        if exercise.name not in [each.name for each in folder.exercises]:
            available = ", ".join(str(each.number) for each in folder.exercises)
            raise GlassError(f"exercise {exercise.number} is not part of {folder.path}", f"Choose one of: {available}.")
        return exercise
    current = folder.current()
    if current is None:
        raise GlassError(
            "every exercise of this course is done",
            f"Name an exercise (glass learn {arguments.action} {folder.exercises[0].number}), or continue with: "
            "glass learn lab",
        )
    return current


def _list(arguments: argparse.Namespace) -> int:
    folder = _folder(arguments)
    records = [(each, folder.record(each)) for each in folder.exercises]
    rows = [
        {
            "number": each.number,
            "name": each.name,
            "title": each.title,
            "done": record.done,
            "difficulty": each.difficulty,
            "minutes": each.minutes,
            "functions": len(each.functions),
            "lines": each.lines,
            "words": each.words,
        }
        for each, record in records
    ]
    lines = [
        f"{row['number']:>3} {'done' if row['done'] else '    '}  {row['name']:<20} {row['difficulty']:<6} "
        f"{row['minutes']:>2} min  {row['title']}"
        for row in rows
    ]
    emit(SimpleReport({"exercises": rows}, lines), arguments.json)
    return 0


def _progress(arguments: argparse.Namespace) -> int:
    from glassformer_course.folder import folder_option

    folder = _folder(arguments)
    records = [(each, folder.record(each)) for each in folder.exercises]
    done_count = sum(record.done for _, record in records)
    current = folder.current()
    rows = [{"number": each.number, "name": each.name, **vars(record)} for each, record in records]
    facts = {"done": done_count, "of": len(records), "next": current and current.name, "exercises": rows}
    lines = [f"{done_count} of {len(records)} done  {'█' * done_count}{'░' * (len(records) - done_count)}"]
    for each, record in records:
        if record.attempts or record.hints or record.solution_seen:
            parts = [counted(record.attempts, "checks"), counted(record.hints, "hints")]
            parts += ["solution seen"] if record.solution_seen else []
            lines.append(f"{each.number:>3} {'done' if record.done else '    '}  {each.name:<20} {', '.join(parts)}")
    if current is not None:
        command = f"glass learn start {current.number}{folder_option(folder.path)}"
        lines.append(f"next: {current.number} {current.title} ({command})")
    emit(SimpleReport(facts, lines), arguments.json)
    return 0


def _start(arguments: argparse.Namespace) -> int:
    folder = _folder(arguments)
    exercise = _exercise(arguments, folder)
    path = folder.start(exercise)
    if arguments.json:
        facts = {"number": exercise.number, "name": exercise.name, "file": str(path), "functions": exercise.functions}
        emit(SimpleReport(facts, ()), as_json=True)
    else:
        _print_start(exercise, folder, path)
    return 0


def _print_start(exercise: Exercise, folder: CourseFolder, path: Path) -> None:
    """Print the page of an exercise, its picture, and the next command."""
    from rich.console import Console
    from rich.markdown import Markdown

    from glassformer_course.folder import folder_option

    columns = min(shutil.get_terminal_size((100, 24)).columns, 100)
    print(f"\n{exercise.number} {exercise.title}\n")
    Console(width=columns).print(Markdown(f"{exercise.summary}\n\n{exercise.page(folder.level)}"))
    print(f"\n{exercise.effort}.")
    print(f"\n{exercise.picture().text(columns)}\n")
    *first_names, last_name = exercise.functions
    names = f"{', '.join(first_names)} and {last_name}" if first_names else last_name
    print(f"Read the task in {path} and write {names} there; then run:")
    print(f"  glass learn check {exercise.number}{folder_option(folder.path)}")


def _notebook(arguments: argparse.Namespace) -> int:
    folder = _folder(arguments)
    exercise = _exercise(arguments, folder)
    path = folder.start_notebook(exercise)
    facts = {"number": exercise.number, "file": str(path)}
    emit(SimpleReport(facts, [f"{path} is ready: open it"]), arguments.json)
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from glassformer_course.checking import check_source
    from glassformer_course.folder import folder_option
    from glassformer_course.reading import read_answer

    folder = _folder(arguments)
    if arguments.all:
        if arguments.words:
            raise GlassError("--all was given together with an exercise", "Leave one of the two out.")
        chosen = [(each, path) for each in folder.exercises if (path := _answer(arguments, folder, each)).is_file()]
        if not chosen:
            raise GlassError(
                f"{folder.path} has no notebook" if arguments.notebook else f"no exercise was started in {folder.path}",
                f"Start with: glass learn {'notebook' if arguments.notebook else 'start'}{folder_option(folder.path)}",
            )
    else:
        exercise = _exercise(arguments, folder)
        chosen = [(exercise, _answer(arguments, folder, exercise))]
    verdicts = []
    for exercise, path in chosen:
        verdict = check_source(exercise, read_answer(path, exercise), arguments.seed, folder.text())
        folder.note(verdict)
        verdicts.append(verdict)
        if not arguments.json:
            _print_verdict(verdict, folder)
    if arguments.json:
        facts = [verdict.facts() for verdict in verdicts]
        emit(SimpleReport({"exercises": facts} if arguments.all else facts[0], ()), as_json=True)
    return 0 if all(verdict.passed for verdict in verdicts) else 2


def _answer(arguments: argparse.Namespace, folder: CourseFolder, exercise: Exercise) -> Path:
    """Return the file to check.

    That is the file named on the command line, else the exercise's file in the folder: the notebook with `--notebook`
    or if only the notebook exists, else the `.py` file.
    """
    named_path = Path(arguments.words[0]) if arguments.words else Path()
    if named_path.suffix in (".py", ".ipynb"):
        return named_path if named_path.parent != Path() or named_path.exists() else folder.path / named_path
    script = folder.file(exercise)
    notebook = folder.file(exercise, ".ipynb")
    return notebook if arguments.notebook or (notebook.is_file() and not script.exists()) else script


def _print_verdict(verdict: Verdict, folder: CourseFolder) -> None:
    from glassformer_course.folder import folder_option

    print(verdict.text())
    if verdict.passed:
        return
    seed_note = "" if verdict.result in ("unwritten", "broken") else f"; to repeat these cases: --seed {verdict.seed}"
    print(f"  Hint: glass learn hint {verdict.number}{folder_option(folder.path)}{seed_note}")


def _watch(arguments: argparse.Namespace) -> int:
    from glassformer_course.watching import watch

    folder = _folder(arguments)
    watch(
        folder,
        lambda exercise: _print_start(exercise, folder, folder.file(exercise)),
        lambda verdict: print("", verdict.text(), sep="\n", flush=True),
        lambda error: print("", error, sep="\n", flush=True),
        arguments.seed,
    )
    print("Every exercise is done. Continue with: glass learn lab")
    return 0


def _hint(arguments: argparse.Namespace) -> int:
    from glassformer_course.exercise import HINTS

    folder = _folder(arguments)
    exercise = _exercise(arguments, folder)
    number = folder.next_hint(exercise)
    text = exercise.hint(number)
    folder.note_hint(exercise, number)
    facts = {"number": exercise.number, "hint": number, "of": HINTS, "text": text}
    lines = [f"{exercise.number} {exercise.title}, hint {number} of {HINTS}:", "", text]
    emit(SimpleReport(facts, lines), arguments.json)
    return 0


def _solution(arguments: argparse.Namespace) -> int:
    folder = _folder(arguments)
    exercise = _exercise(arguments, folder)
    folder.note_solution(exercise)
    facts = {"number": exercise.number, "source": exercise.solution}
    emit(SimpleReport(facts, [exercise.solution]), arguments.json)
    return 0


def _reset(arguments: argparse.Namespace) -> int:
    if not arguments.words:
        raise GlassError("glass learn reset needs an exercise", "For example: glass learn reset 2")
    folder = _folder(arguments)
    path, old_path = folder.reset(_exercise(arguments, folder))
    line = f"wrote {path}" + (f"; the old file was renamed to {old_path}" if old_path else "")
    emit(SimpleReport({"file": str(path), "kept": old_path and str(old_path)}, [line]), arguments.json)
    return 0


def _lab(arguments: argparse.Namespace) -> int:
    from glassformer_course.commands.lab import run as run_lab

    folder = _folder(arguments)
    return run_lab(arguments.words, folder.path, folder.level, arguments.json)


def _rnn(arguments: argparse.Namespace) -> int:
    from tempfile import TemporaryDirectory

    from glassformer.base.files import refuse_no_file, write_text
    from glassformer_course.recurrence import compare

    seeds = 1 if arguments.seeds is None else arguments.seeds
    if seeds < 1:
        raise GlassError(f"--seeds is {seeds}", "Give 1 or more.")
    if arguments.out is not None:
        if arguments.out.suffix != ".svg":
            raise GlassError(f"--out {arguments.out} is not the name of a picture", "Give a name that ends in .svg.")
        refuse_no_file(arguments.out)
    text = Path(arguments.words[0]) if arguments.words else None
    with TemporaryDirectory() as folder:
        comparison = compare(Path(folder), text, seeds, lambda said: print(said, file=sys.stderr, flush=True))
    if arguments.out is not None:
        write_text(arguments.out, comparison.svg())
    emit(SimpleReport(comparison.facts(), comparison.lines()), arguments.json)
    return 0


def _glossary(arguments: argparse.Namespace) -> int:
    from glassformer_course.glossary import entries, look_up

    if not arguments.words:
        terms = [entry.term for entry in entries()]
        emit(SimpleReport({"terms": terms}, terms), arguments.json)
        return 0
    entry = look_up(" ".join(arguments.words))
    emit(SimpleReport(entry.facts(), [entry.as_text()]), arguments.json)
    return 0


FOLDER_OPTIONS = ("folder", "level")
ACTIONS: dict[str, Action] = {
    "list": Action(_list, 0, ("folder",)),
    "start": Action(_start, 1, FOLDER_OPTIONS),
    "check": Action(_check, 1, ("folder", "seed", "all", "notebook")),
    "watch": Action(_watch, 0, (*FOLDER_OPTIONS, "seed")),
    "hint": Action(_hint, 1, ("folder",)),
    "solution": Action(_solution, 1, ("folder",)),
    "reset": Action(_reset, 1, ("folder",)),
    "notebook": Action(_notebook, 1, FOLDER_OPTIONS),
    "progress": Action(_progress, 0, ("folder",)),
    "lab": Action(_lab, 3, FOLDER_OPTIONS),
    "rnn": Action(_rnn, 1, ("out", "seeds")),
    "glossary": Action(_glossary, 6),
    "assign": Action(classroom.assign, 100, ("level", *classroom.ASSIGN)),
    "grade": Action(classroom.grade, 1, ("seed", *classroom.GRADE)),
}
OPTIONS: Sequence[str] = sorted({option for action in ACTIONS.values() for option in action.options})
