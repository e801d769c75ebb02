"""Mark an answer: compare it with the reference case by case until one fails, then look for a matching mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from glassformer_course.cases import Case, Function, Mistake
from glassformer_course.judging import worker
from glassformer_course.judging.outcomes import Difference, Fault, Outcome, difference, same

COMPARED = 12  # cases, from the first wrong one on, used to identify the mistake
ALIKE = 0.66  # minimum fraction of the failed cases in which answer and mistake give the same result


class StoppedError(Exception):
    """Exception for an answer whose process was stopped, or exited; the message gives the reason."""


class Answers(Protocol):
    """Interface for functions that are called by name, in this process or in another one."""

    def call(self, name: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Call a function by name and return the reply of `worker.call_function`.

        Raises:
            StoppedError: the process was stopped, or exited.
        """
        ...

    def select_last_call(self) -> None:
        """Mark the last call as the failed one, so that its printed output is shown."""
        ...


class LocalFunctions:
    """Functions in this process: the reference, known mistakes and shipped solutions."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions = functions

    def call(self, name: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Call a function on copies of the arguments and return the reply of `worker.call_function`."""
        return worker.call_function(self.functions[name], arguments, keywords)

    def select_last_call(self) -> None:
        """Do nothing: printed output is not captured in this process."""


@dataclass(frozen=True)
class FailedCase:
    """The first case that an answer fails.

    Args:
        number: number of the case, from 1.
        case: the case.
        fault, difference: the reason for the failure; exactly one of the two is None.
        mistake: the known mistake whose results agree best with those of the answer; None if no mistake matches.
    """

    number: int
    case: Case
    fault: Fault | None
    difference: Difference | None
    mistake: Mistake | None


@dataclass(frozen=True)
class Marks:
    """Number of cases run until one fails, and the first failed case, or None if the answer passes."""

    cases_run: int
    wrong: FailedCase | None

    @property
    def passed(self) -> bool:
        """Whether every case passed."""
        return self.wrong is None


class _FaultError(Exception):
    """Exception that ends a case in which a call raised an exception or changed an argument."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault


class _CallableAnswers:
    """Adapter that gives the cases access to `answers` as functions."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Function:
        def function(*arguments: Any, **keywords: Any) -> Any:
            reply = self._answers.call(name, arguments, keywords)
            if "raised" in reply:
                line = f" (line {reply['line']})" if reply["line"] else ""
                description = f"{name} raised {reply['raised']}: {reply['message']}".rstrip(": ") + line
                raise _FaultError(Fault("raised", description, reply["raised"]))
            if reply["changed"]:
                description = f"{name} changed its argument {reply['changed'][0] + 1}: work on a copy"
                raise _FaultError(Fault("changed", description, str(reply["changed"])))
            return reply["gave"]

        return function


def outcome(case: Case, answers: Answers) -> Outcome:
    """Run one case and return its outcome: the result, or the fault that ended it."""
    try:
        return Outcome(case.compute(_CallableAnswers(answers)))
    except _FaultError as error:
        return Outcome(fault=error.fault)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        # a case indexed into a result that has another type or shape, such as None
        description = f"the result has the wrong type or shape: {error}"
        return Outcome(fault=Fault("raised", description, type(error).__name__))


def mark(
    answers: Answers,
    reference: Mapping[str, Function],
    cases: Iterable[Case],
    mistakes: Callable[[], list[tuple[Mistake, Mapping[str, Function]]]],
) -> Marks:
    """Run the cases until one fails, then identify the mistake.

    A case that ends in NotImplementedError counts only if no other case fails, so a mistake is found while other
    functions of the exercise are still unwritten.

    Args:
        answers: the functions to mark.
        reference: the reference functions, by name.
        cases: the test cases.
        mistakes: function that returns each known mistake with all functions of the exercise; it is called only if a
            case fails.
    """
    reference_functions = LocalFunctions(reference)
    cases_run = 0
    unwritten: FailedCase | None = None
    wrong: FailedCase | None = None
    passed: list[_ComparedCase] = []
    compared: list[_ComparedCase] = []  # from the first wrong case on
    for number, case in enumerate(cases, start=1):
        try:
            actual = outcome(case, answers)
        except StoppedError:
            if wrong is None:
                raise
            break  # report the failed case without the remaining ones
        if wrong is None:
            cases_run = number
        if actual.unwritten:
            if unwritten is None and wrong is None:
                answers.select_last_call()
                unwritten = FailedCase(number, case, actual.fault, None, None)
            continue
        expected = outcome(case, reference_functions)
        if expected.fault:
            raise RuntimeError(f"the reference fails its own case: {case.note}: {expected.fault.message}")
        each = _ComparedCase(case, actual, expected)
        if wrong is None and not each.wrong:
            passed.append(each)
            continue
        if wrong is None:
            answers.select_last_call()
            case_difference = difference(actual.value, expected.value, case.relative, case.absolute)
            wrong = FailedCase(number, case, actual.fault, None if actual.fault else case_difference, None)
        compared.append(each)
        if len(compared) == COMPARED:
            break
    if wrong is not None:
        return Marks(cases_run, replace(wrong, mistake=_matching_mistake(passed, compared, mistakes())))
    return Marks(unwritten.number if unwritten else cases_run, unwritten)


@dataclass(frozen=True)
class _ComparedCase:
    """A case with the outcomes of the answer and of the reference."""

    case: Case
    actual: Outcome
    expected: Outcome

    def matches(self, functions: Answers) -> bool:
        """Return whether `functions` give the same outcome as the answer."""
        return same(outcome(self.case, functions), self.actual, self.case.relative, self.case.absolute)

    @property
    def wrong(self) -> bool:
        return not same(self.actual, self.expected, self.case.relative, self.case.absolute)


def _matching_mistake(
    passed: list[_ComparedCase], compared: list[_ComparedCase], mistakes: list[tuple[Mistake, Mapping[str, Function]]]
) -> Mistake | None:
    """Return the known mistake that best matches the answer, or None.

    A mistake matches if it gives the same results as the answer on every passed case, on the first failed case, on at
    least the fraction `ALIKE` of the failed cases, and on more than half of the compared cases. The failed cases
    have a separate threshold, because most mistakes change only one function of an exercise and are right in the cases
    of other functions.
    """
    failed = [each for each in compared if each.wrong]
    best = None
    best_matches = 0
    for mistake, functions in mistakes:
        mistaken = LocalFunctions(functions)
        if not compared[0].matches(mistaken) or sum(each.matches(mistaken) for each in failed) < ALIKE * len(failed):
            continue
        matches = sum(each.matches(mistaken) for each in compared)
        if matches > max(best_matches, len(compared) / 2) and all(each.matches(mistaken) for each in passed):
            best = mistake
            best_matches = matches
    return best
