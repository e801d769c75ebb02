"""The bug lab: diagnose models that were trained with a known bug, from curves, attention maps and samples.

  glass learn lab
  glass learn lab open 1
  glass learn lab hint 1
  glass learn lab answer 1 c
  glass learn lab progress

`open` prepares a healthy and a faulty model in a few seconds, shows their evidence (curves, attention maps, samples and
numbers), and saves it in the learner's folder. `answer` grades a diagnosis: if the diagnosis is right, the command
explains the bug and names a public report of it; if the diagnosis is wrong, the exit code is 2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.base.errors import GlassError, nearest
from glassformer.base.report import SimpleReport, emit
from glassformer.base.wording import counted

if TYPE_CHECKING:
    from glassformer_course.lab.case import BugCase
    from glassformer_course.lab.room import LabFolder

ActionOutput = tuple[str, Mapping[str, Any]]
"""Output of an action, as text and as JSON."""


def run(arguments: list[str], folder: Path, level: str, as_json: bool) -> int:
    """Run an action of the lab and return the exit code.

    Args:
        arguments: words after `glass learn lab`: an action and its arguments; empty: `list`.
        folder: the course folder.
        level: level of the explanations.
        as_json: print one JSON object.

    Raises:
        GlassError: unknown action, case or choice, or the folder cannot be used.
    """
    from glassformer_course.lab.room import LabFolder

    action, *action_arguments = arguments or ["list"]
    if action not in ACTIONS:
        raise GlassError(f"there is no action {action!r} in the lab", nearest(action, ACTIONS))
    usage, run_action = ACTIONS[action]
    if len(action_arguments) != len(usage.split()):
        received = f"{counted(len(action_arguments), 'arguments')}: {' '.join(action_arguments)}"
        raise GlassError(
            f"glass learn lab {action} got {received if action_arguments else 'no argument'}",
            f"Write: glass learn lab {action} {usage}".rstrip(),
        )
    text, facts = run_action(LabFolder(folder), action_arguments, level)
    emit(SimpleReport(facts, [text]), as_json)
    return 2 if action == "answer" and not facts["right"] else 0


def _list(lab_folder: LabFolder, arguments: Sequence[str], level: str) -> ActionOutput:
    """List the cases with the state of each."""
    from glassformer_course.lab.case import cases

    records = lab_folder.records()
    lines = []
    facts = []
    for case in cases():
        record = records.get(str(case.number))
        opened = lab_folder.is_open(case)
        state = "solved" if record and record.right else "open" if opened else ""
        lines.append(f"{case.number:>3}  {case.title:<34} {state}".rstrip())
        facts.append({"number": case.number, "title": case.title, "state": state or "new"})
    lines += [
        "",
        "glass learn lab open N shows the evidence of a case, and trains its models first if needed.",
        "glass learn lab answer N LETTER grades a diagnosis.",
    ]
    return "\n".join(lines), {"cases": facts}


def _open(lab_folder: LabFolder, arguments: Sequence[str], level: str) -> ActionOutput:
    """Show the evidence of a case and its choices; train the models if needed."""
    from glassformer_course.lab.case import diagnoses
    from glassformer_course.lab.report import choices_text, report_text

    case = _case(arguments)
    evidence = lab_folder.open(case, lambda text: print(text, file=sys.stderr))
    lines = [
        report_text(case, evidence),
        f"What to look at: {case.look[level]}\n",
        "Which bug is it?",
        choices_text(case),
        "",
        f"Pictures: {lab_folder.case_folder(case)}",
        f"Answer: glass learn lab answer {case.number} LETTER{lab_folder.option}",
    ]
    facts = {
        "number": case.number,
        "title": case.title,
        "scene": case.scene,
        "look": case.look[level],
        "folder": str(lab_folder.case_folder(case)),
        "evidence": evidence.facts(),
        "choices": {letter: diagnoses()[key] for letter, key in case.choices.items()},
    }
    return "\n".join(lines), facts


def _hint(lab_folder: LabFolder, arguments: Sequence[str], level: str) -> ActionOutput:
    """Show the next of the three hints."""
    case = _case(arguments)
    number, text = lab_folder.hint(case)
    facts = {"number": case.number, "hint": number, "of": len(case.hints), "text": text}
    return f"Hint {number} of {len(case.hints)}: {text}", facts


def _answer(lab_folder: LabFolder, arguments: Sequence[str], level: str) -> ActionOutput:
    """Grade the learner's diagnosis of a case."""
    case = _case(arguments)
    verdict = lab_folder.answer(case, arguments[1])
    record = lab_folder.record(case)
    text = verdict.text
    if not verdict.right:
        text += f"\nTry again, or ask for a hint: glass learn lab hint {case.number}{lab_folder.option}"
    facts = {
        "number": case.number,
        "right": verdict.right,
        "text": verdict.text,
        "tries": len(record.answers),
        "hints": record.hints,
    }
    return text, facts


def _progress(lab_folder: LabFolder, arguments: Sequence[str], level: str) -> ActionOutput:
    """Show the number of solved cases, and the tries and hints of each case that has any."""
    from glassformer_course.lab.case import cases

    records = lab_folder.records()
    solved = sum(record.right for record in records.values())
    lines = [f"{solved} of {len(cases())} cases solved"]
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


def _case(arguments: Sequence[str]) -> BugCase:
    from glassformer_course.lab.case import find_case

    return find_case(arguments[0])


ACTIONS: Mapping[str, tuple[str, Callable[[LabFolder, Sequence[str], str], ActionOutput]]] = {
    "list": ("", _list),
    "open": ("N", _open),
    "hint": ("N", _hint),
    "answer": ("N LETTER", _answer),
    "progress": ("", _progress),
}
"""Dictionary from action to its arguments and the function that runs it."""
