"""Texts for the learner: the evidence of a case, its choices, and the verdict on one of them."""

from __future__ import annotations

from dataclasses import dataclass

from glassformer_course.lab.case import BugCase, diagnoses
from glassformer_course.lab.charts import chart_text, map_text
from glassformer_course.lab.evidence import Evidence, shown


def report_text(case: BugCase, found: Evidence) -> str:
    """All of the evidence, without a word about the bug."""
    parts = [f"{case.number}. {case.title}", case.scene, "One is healthy; the other, trained alike, has one bug."]
    parts += [chart_text(chart) for chart in found.charts]
    if found.maps:
        parts.append("Maps: each row is a token, each column one that it looks at; · is exactly 0.")
        parts += [map_text(each) for each in found.maps]
    parts += ["\n".join([heading, *(f"  {line}" for line in lines)]) for heading, lines in found.samples.items()]
    wide = max((len(each.what) for each in found.numbers), default=0)
    rows = [f"{each.what:<{wide}}  {shown(each.healthy):>10}  {shown(each.faulty):>10}" for each in found.numbers]
    parts.append("\n".join([f"{'':<{wide}}  {'healthy':>10}  {'faulty':>10}", *rows]))
    return "\n\n".join(parts) + "\n"


def choices_text(case: BugCase) -> str:
    """Return the diagnoses to choose from, one per line with its letter."""
    return "\n".join(f"  {letter}  {diagnoses()[key]}" for letter, key in case.choices.items())


@dataclass(frozen=True)
class AnswerVerdict:
    """Verdict on an answer.

    Attributes:
        right: whether it names the bug.
        words: why, in whole.
    """

    right: bool
    words: str


def verdict_of(case: BugCase, found: Evidence, letter: str) -> AnswerVerdict:
    """The verdict on a choice; only a right one tells the bug."""
    key = case.choices[letter]
    if key != case.answer:
        words = f"Not this one: {diagnoses()[key]}\n{case.tempting[key]}"
        return AnswerVerdict(False, words)
    others = [
        f"  {letter}  {diagnoses()[other]}\n     {case.tempting[other]}"
        for letter, other in case.choices.items()
        if other != key
    ]
    parts = [
        f"Right: {diagnoses()[key]}",
        case.why.format(**found.words()),
        "Why not the others:\n" + "\n".join(others),
        f"The wrong lines:\n{_indented(case.wrong)}\nThe right ones:\n{_indented(case.right)}",
        f"Found in public: {case.source}" + (f"\n  {case.link}" if case.link else "") + f"\n  {case.told}",
        f"The test that catches it here: {case.caught_by}",
    ]
    return AnswerVerdict(True, "\n\n".join(parts))


def _indented(code: str) -> str:
    return "\n".join(f"    {line}" for line in code.splitlines())
