"""Texts for the learner: the evidence of a case, its choices, and the verdict on an answer."""

from __future__ import annotations

from dataclasses import dataclass

from glassformer_course.lab.case import BugCase, diagnoses
from glassformer_course.lab.charts import chart_text, map_text
from glassformer_course.lab.evidence import Evidence, format_number


def report_text(case: BugCase, evidence: Evidence) -> str:
    """Return all of the evidence as text, without naming the bug."""
    parts = [
        f"{case.number}. {case.title}",
        case.scene,
        "The healthy and the faulty model have the same settings and seed, but the code of the faulty one has a bug.",
    ]
    parts += [chart_text(chart) for chart in evidence.charts]
    if evidence.maps:
        parts.append("Attention maps: each row is a query token, each column a key token; · is a weight of exactly 0.")
        parts += [map_text(each) for each in evidence.maps]
    parts += ["\n".join([heading, *(f"  {line}" for line in lines)]) for heading, lines in evidence.samples.items()]
    width = max((len(each.what) for each in evidence.numbers), default=0)
    rows = [
        f"{each.what:<{width}}  {format_number(each.healthy):>10}  {format_number(each.faulty):>10}"
        for each in evidence.numbers
    ]
    parts.append("\n".join([f"{'':<{width}}  {'healthy':>10}  {'faulty':>10}", *rows]))
    return "\n\n".join(parts) + "\n"


def choices_text(case: BugCase) -> str:
    """Return the diagnoses to choose from, one per line with its letter."""
    return "\n".join(f"  {letter}  {diagnoses()[key]}" for letter, key in case.choices.items())


@dataclass(frozen=True)
class AnswerVerdict:
    """Verdict on an answer.

    Attributes:
        right: whether the answer names the bug.
        text: explanation.
    """

    right: bool
    text: str


def verdict_of(case: BugCase, evidence: Evidence, letter: str) -> AnswerVerdict:
    """Return the verdict on a choice; only the verdict on the right choice names the bug."""
    key = case.choices[letter]
    if key != case.answer:
        explanation = f"Not this one: {diagnoses()[key]}\n{case.tempting[key]}"
        return AnswerVerdict(False, explanation)
    others = [
        f"  {letter}  {diagnoses()[other]}\n     {case.tempting[other]}"
        for letter, other in case.choices.items()
        if other != key
    ]
    parts = [
        f"Right: {diagnoses()[key]}",
        case.why.format(**evidence.number_texts()),
        "Why not the others:\n" + "\n".join(others),
        f"Wrong code:\n{_indented(case.wrong)}\nRight code:\n{_indented(case.right)}",
        f"Public report: {case.source}" + (f"\n  {case.link}" if case.link else "") + f"\n  {case.told}",
        f"Test of this library that catches it: {case.caught_by}",
    ]
    return AnswerVerdict(True, "\n\n".join(parts))


def _indented(code: str) -> str:
    return "\n".join(f"    {line}" for line in code.splitlines())
