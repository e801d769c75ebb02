"""The bug lab: models that were trained with a known bug, to be diagnosed from what can be seen of them.

  glass learn lab
  glass learn lab open 1
  glass learn lab hint 1
  glass learn lab answer 1 c
  glass learn lab progress

`open` trains a healthy and a faulty model, in seconds, and shows curves, maps, samples and numbers of both; they are
kept in the learner's folder. `answer` grades a diagnosis; a right one is told in whole, with its public source, and one
that is not right exits with code 2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.base.errors import GlassError, nearest
from glassformer.base.report import SimpleReport, emit

if TYPE_CHECKING:
    from glassformer_course.lab.case import BugCase
    from glassformer_course.lab.room import Room

Said = tuple[str, Mapping[str, Any]]
"""What an action says, in words and as JSON."""


def run(words: list[str], folder: Path, level: str, as_json: bool) -> int:
    """One action of the lab.

    Args:
        words: what follows `glass learn lab`: an action and what it needs; none: `list`.
        folder: of the course.
        level: how deep explanations go.
        as_json: print one JSON object.

    Raises:
        GlassError: there is no such action, case or choice, or the folder cannot be used.
    """
    from glassformer_course.lab.room import Room

    action, *rest = words or ["list"]
    if action not in ACTIONS:
        raise GlassError(f"there is no action {action!r} in the lab", nearest(action, ACTIONS))
    usage, work = ACTIONS[action]
    if len(rest) != len(usage.split()):
        got = " ".join(rest) or "nothing"
        raise GlassError(
            f"{got} was given to glass learn lab {action}", f"Write: glass learn lab {action} {usage}".rstrip()
        )
    said, facts = work(Room(folder), rest, level)
    emit(SimpleReport(facts, [said]), as_json)
    return 2 if action == "answer" and not facts["right"] else 0


def _list(room: Room, words: Sequence[str], level: str) -> Said:
    """All cases, and how far each is."""
    from glassformer_course.lab.case import cases

    records = room.records()
    lines = []
    facts = []
    for case in cases():
        record = records.get(str(case.number))
        opened = room.is_open(case)
        state = "solved" if record and record.right else "open" if opened else ""
        lines.append(f"{case.number:>3}  {case.title:<34} {state}".rstrip())
        facts.append({"number": case.number, "title": case.title, "state": state or "new"})
    lines += ["", "glass learn lab open N trains and shows a case; glass learn lab answer N LETTER grades a diagnosis."]
    return "\n".join(lines), {"cases": facts}


def _open(room: Room, words: Sequence[str], level: str) -> Said:
    """The evidence of a case, and its choices."""
    from glassformer_course.lab.case import diagnoses
    from glassformer_course.lab.report import choices_text, report_text

    case = _case(words)
    found = room.open(case, lambda text: print(text, file=sys.stderr))
    said = [
        report_text(case, found),
        f"What to look at: {case.look[level]}\n",
        "Which bug is it?",
        choices_text(case),
        "",
        f"Pictures: {room.place(case)}",
        f"Answer: glass learn lab answer {case.number} LETTER",
    ]
    facts = {
        "number": case.number,
        "title": case.title,
        "scene": case.scene,
        "look": case.look[level],
        "folder": str(room.place(case)),
        "evidence": found.facts(),
        "choices": {letter: diagnoses()[key] for letter, key in case.choices.items()},
    }
    return "\n".join(said), facts


def _hint(room: Room, words: Sequence[str], level: str) -> Said:
    """The next of three hints."""
    case = _case(words)
    number, text = room.hint(case)
    facts = {"number": case.number, "hint": number, "of": len(case.hints), "text": text}
    return f"Hint {number} of {len(case.hints)}: {text}", facts


def _answer(room: Room, words: Sequence[str], level: str) -> Said:
    """The verdict on a diagnosis."""
    case = _case(words)
    verdict = room.answer(case, words[1])
    record = room.record(case)
    said = verdict.words
    if not verdict.right:
        said += f"\nLook again, or take a hint: glass learn lab hint {case.number}"
    facts = {
        "number": case.number,
        "right": verdict.right,
        "text": verdict.words,
        "tries": len(record.answers),
        "hints": record.hints,
    }
    return said, facts


def _progress(room: Room, words: Sequence[str], level: str) -> Said:
    """Solved cases, with tries and hints."""
    from glassformer_course.lab.case import cases

    records = room.records()
    solved = sum(record.right for record in records.values())
    lines = [f"{solved} of {len(cases())} cases are solved."]
    facts = []
    for case in cases():
        if (record := records.get(str(case.number))) is not None:
            state = "solved" if record.right else "not solved yet"
            lines.append(
                f"{case.number:>3}  {case.title:<34} {state}; tries {len(record.answers)}, hints {record.hints}"
            )
            facts.append(
                {"number": case.number, "right": record.right, "tries": len(record.answers), "hints": record.hints}
            )
    return "\n".join(lines), {"solved": solved, "of": len(cases()), "cases": facts}


def _case(words: Sequence[str]) -> BugCase:
    from glassformer_course.lab.case import find_case

    return find_case(words[0])


ACTIONS: Mapping[str, tuple[str, Callable[[Room, Sequence[str], str], Said]]] = {
    "list": ("", _list),
    "open": ("N", _open),
    "hint": ("N", _hint),
    "answer": ("N LETTER", _answer),
    "progress": ("", _progress),
}
"""Name -> what it needs, and what does it."""
