"""Learning by doing: exercises that check themselves, a bug lab, a glossary; and marking for teachers.

In a notebook:

    from glassformer_course import check, hint
    check("softmax", softmax)
    hint("softmax", 1)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glassformer_course.cases import Function

__all__ = ["check", "hint"]


def check(which: str | int, *functions: Function) -> bool:
    """Check functions of a notebook, as `glass learn check` does a file, and print what it found.

    Each function's whole cell is run in a process of its own, so its imports and helpers belong in the same cell.
    Where the notebook lies in a course's folder, the result is kept there.

    Args:
        which: the exercise's name or number.
        functions: those that it asks for.

    Returns:
        Whether the answer is right.

    Raises:
        GlassError: there is no such exercise, or a function's source cannot be found.
    """
    from glassformer_course.checking import check_source
    from glassformer_course.course import find
    from glassformer_course.folder import STATE, CourseFolder, chosen_folder
    from glassformer_course.reading import source_of

    exercise = find(which)
    folder = CourseFolder(chosen_folder(None))
    verdict = check_source(exercise, source_of(functions), text=folder.text())
    if (folder.path / STATE).is_file():
        folder.note(verdict)
    print(verdict.text())
    if any("NameError" in line for line in verdict.lines):
        print("  The cells of the functions are run alone: imports and helpers belong into them.")
    return verdict.passed


def hint(which: str | int, number: int = 1) -> None:
    """Print hint 1 (the idea), 2 (the formula) or 3 (all but a line) of an exercise.

    Where the notebook lies in a course's folder, it is counted there.

    Raises:
        GlassError: there is no such exercise or hint.
    """
    from glassformer_course.course import find
    from glassformer_course.folder import STATE, CourseFolder, chosen_folder

    exercise = find(which)
    folder = CourseFolder(chosen_folder(None))
    print(f"Hint {number}: {exercise.hint(number)}")
    if (folder.path / STATE).is_file():
        folder.note_hint(exercise, number)
