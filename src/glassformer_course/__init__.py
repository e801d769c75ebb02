"""The course: self-checking exercises, a bug lab, a glossary, and grading for teachers.

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
    """Check functions defined in a notebook, as `glass learn check` checks a file, and print the verdict.

    The whole cell that defines a function runs in a separate process, so put the imports and helpers of the function in
    the same cell.
    The result is recorded in the course folder, if there is one: the notebook's working directory or its subfolder
    `glass-learn`.

    Args:
        which: name or number of the exercise.
        functions: the functions that the exercise asks for.

    Returns:
        Whether the answer is right.

    Raises:
        GlassError: unknown exercise, the source of a function cannot be found, or the course folder is damaged.
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
        print("  Only the cells that define these functions are run: put imports and helpers in the same cells.")
    return verdict.passed


def hint(which: str | int, number: int = 1) -> None:
    """Print hint 1 (the idea), 2 (the formula) or 3 (the code except for one line) of an exercise.

    The hint is recorded in the course folder, if there is one: the notebook's working directory or its subfolder
    `glass-learn`.

    Raises:
        GlassError: unknown exercise or hint number, or the course folder is damaged.
    """
    from glassformer_course.course import find
    from glassformer_course.folder import STATE, CourseFolder, chosen_folder

    exercise = find(which)
    folder = CourseFolder(chosen_folder(None))
    print(f"Hint {number}: {exercise.hint(number)}")
    if (folder.path / STATE).is_file():
        folder.note_hint(exercise, number)
