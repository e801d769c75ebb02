"""Marks an answer: asks every case, compares with the reference, and names the mistake where it is a known one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from glassformer_course.cases import Case, Function, Mistake
from glassformer_course.judging import worker
from glassformer_course.judging.outcomes import Difference, Fault, Outcome, difference, same

LOOKED_AT = 12  # cases from the first wrong one on, by which mistakes are told apart
ALIKE = 0.66  # share of the wrong ones in which an answer is as the mistake that is named


class StoppedError(Exception):
    """The process of an answer was ended, or ended itself; its words say why."""


class Answers(Protocol):
    """Functions that can be called by name; where they run is their own affair. A call may raise `StoppedError`."""

    def call(self, name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """Call a function by name and return the reply of `worker.ask`."""
        ...

    def tell(self) -> None:
        """Mark the last call as the failed one, so that its output is reported."""
        ...


class Here:
    """Functions of this process: the reference, the known mistakes, shipped solutions."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions = functions

    def call(self, name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """Call it on copies of the arguments."""
        return worker.ask(self.functions[name], arguments, named)

    def tell(self) -> None:
        """Do nothing: printed output is not kept here."""


@dataclass(frozen=True)
class Wrong:
    """The first case that an answer fails.

    Args:
        number: which case, from 1.
        case: the case.
        fault, difference: what is wrong: the one or the other.
        mistake: the known mistake that it is, if it is one.
    """

    number: int
    case: Case
    fault: Fault | None
    difference: Difference | None
    mistake: Mistake | None


@dataclass(frozen=True)
class Marks:
    """Number of cases asked, and the first failed case (None: the answer passes)."""

    asked: int
    wrong: Wrong | None

    @property
    def passed(self) -> bool:
        """True if every case was right."""
        return self.wrong is None


class _FaultError(Exception):
    """Ends a case: a call raised, or changed an argument."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault


class _Asking:
    """`Answers` as functions, for the cases to call."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Function:
        def function(*arguments: Any, **named: Any) -> Any:
            reply = self._answers.call(name, arguments, named)
            if "raised" in reply:
                line = f" (line {reply['line']})" if reply["line"] else ""
                words = f"{name} raised {reply['raised']}: {reply['message']}".rstrip(": ") + line
                raise _FaultError(Fault("raised", words, reply["raised"]))
            if reply["changed"]:
                words = f"{name} changed its argument {reply['changed'][0] + 1}, which its caller still needs"
                raise _FaultError(Fault("changed", words, str(reply["changed"])))
            return reply["gave"]

        return function


def outcome(case: Case, answers: Answers) -> Outcome:
    """Ask one case and return its outcome: the result, or the fault that ended it."""
    try:
        return Outcome(case.ask(_Asking(answers)))
    except _FaultError as error:
        return Outcome(fault=error.fault)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        # a case that looks into a result found something else there: None, or an array of another shape
        words = f"the result is not what the question needs: {error}"
        return Outcome(fault=Fault("raised", words, type(error).__name__))


def mark(
    answers: Answers,
    reference: Mapping[str, Function],
    cases: Iterable[Case],
    mistakes: Callable[[], list[tuple[Mistake, Mapping[str, Function]]]],
) -> Marks:
    """Ask until a case goes wrong, then find out which mistake it is.

    Args:
        answers: what is marked.
        reference: the right functions, by name.
        cases: the questions.
        mistakes: each known mistake with all functions of the exercise, wrong and right; asked for when needed.
    """
    right = Here(reference)
    asked = 0
    waiting = iter(cases)
    passed: list[_Seen] = []
    for asked, case in enumerate(waiting, start=1):
        got = outcome(case, answers)
        want = outcome(case, right)
        if want.fault:
            raise RuntimeError(f"the reference fails its own case: {case.note}: {want.fault.words}")
        differs = None if got.fault else difference(got.value, want.value, case.relative, case.absolute)
        if got.fault or differs:
            answers.tell()
            seen = [_Seen(case, got, want)]
            with suppress(StoppedError):  # what is known already is enough to say
                for each in islice(waiting, LOOKED_AT - 1):
                    seen.append(_Seen(each, outcome(each, answers), outcome(each, right)))
            return Marks(asked, Wrong(asked, case, got.fault, differs, _mistake(passed, seen, mistakes())))
        passed.append(_Seen(case, want, want))
    return Marks(asked, None)


@dataclass(frozen=True)
class _Seen:
    """A case with the outcomes of the answer and of the reference."""

    case: Case
    got: Outcome
    want: Outcome

    def gives(self, functions: Answers) -> bool:
        """Return True if `functions` give the same outcome as the answer."""
        return same(outcome(self.case, functions), self.got, self.case.relative, self.case.absolute)

    @property
    def wrong(self) -> bool:
        return not same(self.got, self.want, self.case.relative, self.case.absolute)


def _mistake(
    passed: list[_Seen], seen: list[_Seen], mistakes: list[tuple[Mistake, Mapping[str, Function]]]
) -> Mistake | None:
    """The known mistake that is right where the answer was, and wrong as it is: on the first case and on most.

    Cases that both have right say nothing for a mistake: most functions of an exercise are right in most mistakes.
    """
    wrong = [each for each in seen if each.wrong]
    best = None
    most = 0
    for mistake, functions in mistakes:
        theirs = Here(functions)
        if not seen[0].gives(theirs) or sum(each.gives(theirs) for each in wrong) < ALIKE * len(wrong):
            continue
        alike = sum(each.gives(theirs) for each in seen)
        if alike > max(most, len(seen) / 2) and all(each.gives(theirs) for each in passed):
            best = mistake
            most = alike
    return best
