"""Verdict of a check, as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from glassformer_course.judging.marking import Marks

Result = Literal["right", "wrong", "unwritten", "broken", "stopped"]
PRINTED = 8  # lines of printed output that are shown


@dataclass(frozen=True)
class Verdict:
    """The result of one check.

    Args:
        number, name, title: number, name and title of the exercise.
        result: right; wrong; unwritten (it still raises NotImplementedError); broken (the file does not load, or a
            function is missing); stopped (it exceeded a limit, or its process ended).
        cases_run: number of cases run, including the failed one; 0 if no case was run or the check was stopped.
        lines: explanation, from the failed case to the known mistake; empty if the answer is right.
        mistake: name of the known mistake, or "".
        seconds: duration of the check.
        seed: seed of the random cases.
        printed: beginning of what the answer printed while it was loaded and in one call: the failed call or the last.
    """

    number: int
    name: str
    title: str
    result: Result
    cases_run: int
    lines: tuple[str, ...]
    mistake: str
    seconds: float
    seed: int
    printed: str = ""

    @property
    def passed(self) -> bool:
        """Whether the answer is right."""
        return self.result == "right"

    def text(self) -> str:
        """Return the verdict as text for a terminal or a notebook."""
        head = f"{self.number} {self.title}"
        if self.passed:
            lines = [f"{head}: right. All {self.cases_run} cases agree with the reference ({self.seconds:.1f} s)."]
        else:
            lines = [f"{head}: {_STATE[self.result]}.", *(f"  {line}" for line in self.lines)]
        printed = self.printed.strip().splitlines()
        if printed:
            lines += ["  The answer printed:", *(f"    {line[:100]}" for line in printed[:PRINTED])]
            if len(printed) > PRINTED:
                lines.append("    ...")
        return "\n".join(lines)

    def facts(self) -> dict[str, Any]:
        """Return the verdict as a dictionary for `--json`."""
        return {
            "number": self.number,
            "name": self.name,
            "result": self.result,
            "passed": self.passed,
            "cases": self.cases_run,
            "mistake": self.mistake,
            "words": list(self.lines),
            "seconds": round(self.seconds, 3),
            "seed": self.seed,
        }


_STATE: dict[Result, str] = {
    "right": "right",
    "wrong": "not right yet",
    "unwritten": "not written yet",
    "broken": "cannot be checked",
    "stopped": "stopped",
}


def explanation_lines(marks: Marks) -> tuple[str, ...]:
    """Return the explanation in lines: the case, the difference, and the mistake if known; empty if no case failed."""
    failed = marks.wrong
    if failed is None:
        return ()
    lines = [f"Case {failed.number}: {failed.case.note}."]
    if failed.case.description:
        lines.append(failed.case.question())
    if failed.fault:
        lines.append(f"{failed.fault.message}.")
    if failed.difference:
        difference = failed.difference
        lines.append(f"{difference.message}: expected {difference.expected}, got {difference.actual}.")
        if difference.extent:
            lines.append(f"{difference.extent}.")
    if failed.mistake:
        lines += [f"This is a known mistake: {failed.mistake.name}.", failed.mistake.why]
    return tuple(lines)
