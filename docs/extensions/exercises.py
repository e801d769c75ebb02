"""Generate a page for each exercise: explanations, picture, task and hints, but no answers."""

from __future__ import annotations

import re

from extensions.markdown import fenced, folded, indented
from glassformer.base.wording import LEVELS
from glassformer_course.course import all_exercises
from glassformer_course.exercise import HINTS, Exercise

HINT_NAMES = ("the idea", "the formula", "all but one line")


def pages() -> dict[str, str]:
    """Return the page of every exercise, and the list that docs/learn.md includes."""
    course = all_exercises()
    rows = [
        "| | exercise | you write | lines | words of task | cases | difficulty | minutes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in course:
        functions = ", ".join(f"`{name}`" for name in each.functions)
        size = f"{each.lines} | {each.words} | {sum(1 for _ in each.cases(0))} | {each.difficulty} | {each.minutes}"
        rows.append(f"| {each.number} | [{each.title}](made/exercises/{each.file_name}.md) | {functions} | {size} |")
    tree = "\n".join(f"made/exercises/{each.file_name}" for each in course)
    table = "\n".join(rows) + f"\n\n:::{{toctree}}\n:hidden:\n\n{tree}\n:::\n"
    return {f"exercises/{each.file_name}.md": page(each) for each in course} | {"parts/exercises.md": table}


def page(exercise: Exercise) -> str:
    """Return the page of an exercise."""
    picture = exercise.picture()
    levels = "\n\n".join(f"{level.capitalize()}\n: {indented(exercise.page(level), 2)}" for level in LEVELS)
    begin = f"glass learn start {exercise.number}"
    parts = [
        f"# {exercise.number}. {exercise.title}",
        exercise.summary,
        f"*{exercise.effort}.*",
        f":::{{admonition}} {exercise.title}, explained at five levels\n:class: levels\n\n{levels}\n:::",
        f'<figure class="picture">{picture.svg()}<figcaption>{picture.caption}</figcaption></figure>',
        "## The task",
        exercise.task,
        fenced("python", stub(exercise)),
        "## Do it",
        fenced("sh", f"{begin}\nglass learn check {exercise.number}"),
        f"To solve it in a notebook, run `glass learn notebook {exercise.number}`. Your solution is checked on new "
        "random cases and on edge cases, and common mistakes are named. There are three hints:",
        *(folded(f"Hint {n}: {HINT_NAMES[n - 1]}", exercise.hint(n)) for n in range(1, HINTS + 1)),
    ]
    return "\n\n".join(parts) + "\n"


def stub(exercise: Exercise) -> str:
    """Return the code that the learner completes."""
    return re.split(r"^# %%.*\n", exercise.stub, flags=re.MULTILINE)[2].strip()
