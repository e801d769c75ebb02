"""Generate the list of bug-lab cases: the scene, the possible diagnoses, advice and hints, but no answers."""

from __future__ import annotations

from extensions.markdown import fenced, folded, indented
from glassformer.base.wording import LEVELS
from glassformer_course.lab.case import BugCase, cases, diagnoses


def pages() -> dict[str, str]:
    """Return the text that docs/learn.md includes, with one section for each case."""
    found = cases()
    return {"parts/lab.md": f"{len(found)} cases.\n\n" + "\n\n".join(section(case) for case in found) + "\n"}


def section(case: BugCase) -> str:
    """Return the section of a case."""
    choices = "\n".join(f"- **{letter}** {diagnoses()[key]}" for letter, key in case.choices.items())
    looks = "\n\n".join(f"{level.capitalize()}\n: {indented(case.look[level], 2)}" for level in LEVELS)
    parts = [
        f"### {case.number}. {case.title}",
        case.scene,
        fenced("sh", f"glass learn lab open {case.number}\nglass learn lab answer {case.number} LETTER"),
        f"Which bug is it?\n\n{choices}",
        folded("What to look at, explained at five levels", looks),
        *(folded(f"Hint {number}", text) for number, text in enumerate(case.hints, start=1)),
    ]
    return "\n\n".join(parts)
