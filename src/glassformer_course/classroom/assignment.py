"""Assignments: self-contained folders of chosen exercises, optionally on the class's own text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from glassformer.base.errors import GlassError
from glassformer.base.files import new_output, refuse_taken, write_text
from glassformer.base.wording import counted
from glassformer_course.course import find, numbers
from glassformer_course.exercise import Exercise
from glassformer_course.folder import CourseFolder

TEXT = "text.txt"
LARGEST = 20_000  # maximum number of characters of a class's text


def chosen_exercises(selections: Sequence[str]) -> list[Exercise]:
    """Return exercises by number, name or range, such as `3 softmax 7-9`, in course order without duplicates.

    Raises:
        GlassError: unknown exercise.
    """
    exercises: dict[int, Exercise] = {}
    for selection in selections:
        first, dash, last = selection.partition("-")
        if dash and first.isdecimal() and last.isdecimal():
            chosen_numbers = [number for number in numbers() if int(first) <= number <= int(last)]
            if not chosen_numbers:
                raise GlassError(
                    f"there are no exercises {selection}",
                    f"Choose from 1 to {numbers()[-1]}, the smaller number first; glass learn list shows them.",
                )
        else:
            chosen_numbers = [find(selection).number]
        exercises |= {number: find(number) for number in chosen_numbers}
    return [exercises[number] for number in sorted(exercises)]


def assign(
    exercises: Sequence[Exercise], out: Path, level: str, text: Path | None = None, notebooks: bool = False
) -> list[Path]:
    """Write an assignment: a course folder with a page and a picture for each exercise, and a README.

    Args:
        exercises: exercises of the assignment.
        out: a new or empty folder.
        level: level of the explanations.
        text: a UTF-8 file with at least 100 characters; its first 20,000 characters are copied into the assignment, and
            exercises about text get additional cases on the beginning of the copy.
        notebooks: also write each exercise as a notebook.

    Returns:
        Paths of the files written.

    Raises:
        GlassError: `out` exists and is not an empty folder, or the text cannot be used.
    """
    refuse_taken(out)
    text_exercises = [exercise for exercise in exercises if exercise.takes_text]
    content = None if text is None else _excerpt(text)
    if content is not None and not text_exercises:
        names = ", ".join(find(number).name for number in numbers() if find(number).takes_text)
        raise GlassError("none of these exercises uses a text", f"Add one of {names}, or leave --text out.")
    with new_output(out) as temporary:
        (temporary / "pages").mkdir(parents=True)
        if content is not None:
            write_text(temporary / TEXT, content)
        folder = CourseFolder(temporary)
        folder.exercises = list(exercises)
        folder.level = level
        folder.text_file = TEXT if content is not None else None
        for exercise in exercises:
            folder.start(exercise)
            if notebooks:
                folder.start_notebook(exercise)
            picture = exercise.picture()
            write_text(temporary / "pages" / f"{exercise.file_name}.svg", picture.svg())
            write_text(temporary / "pages" / f"{exercise.file_name}.md", page(exercise, level))
        write_text(temporary / "README.md", _read_me(exercises, content is not None))
    return sorted(path for path in out.rglob("*") if path.is_file())


def page(exercise: Exercise, level: str) -> str:
    """Return the explanation of an exercise as a Markdown page that links to its picture."""
    picture = exercise.picture()
    return "\n\n".join(
        [
            f"# {exercise.number} {exercise.title}",
            exercise.summary,
            f"*{exercise.effort}.*",
            exercise.page(level),
            f"![{picture.caption}]({exercise.file_name}.svg)",
            picture.caption + "\n",
        ]
    )


def _excerpt(text: Path) -> str:
    try:
        with text.open(encoding="utf-8-sig") as file:
            content = file.read(LARGEST)
    except UnicodeDecodeError:
        raise GlassError(f"{text} is not UTF-8 text", "Save it as UTF-8.") from None
    except OSError as error:
        raise GlassError(
            f"cannot read {text}: {error.strerror}", "Name a file that can be read: --text FILE."
        ) from None
    count = len(content.strip())
    if count < 100:
        raise GlassError(
            f"{text} has {counted(count, 'characters')}, not counting whitespace at its beginning and end",
            "Use a text of at least 100 characters.",
        )
    return content


def _read_me(exercises: Sequence[Exercise], with_text: bool) -> str:
    rows = [
        f"| {each.number} | [{each.title}](pages/{each.file_name}.md) | `{each.file_name}.py` | {each.minutes} |"
        for each in exercises
    ]
    text_note = ["", "Exercises about text are also checked on `text.txt`."] if with_text else []
    return "\n".join(
        [
            "# Exercises",
            "",
            "Write the functions in the files, and check them from this folder:",
            "",
            "```",
            f"glass learn check {exercises[0].number}",
            "glass learn watch",
            f"glass learn hint {exercises[0].number}",
            "```",
            "",
            "A failed check shows the first wrong result, and names the mistake if it is a common one. Hand in this "
            "folder, with the file course.json. The file contains the hints and solutions that you have seen.",
            *text_note,
            "",
            "| exercise | page | file | minutes (estimated) |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )
