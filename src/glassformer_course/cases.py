"""Test cases and known mistakes, which define the check of an exercise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Function = Callable[..., Any]


class Functions(Protocol):
    """Functions that a check calls, by name: the reference's, the learner's, or a known mistake's."""

    def __getattr__(self, name: str) -> Function:
        """Return the function with this name."""
        ...


@dataclass(frozen=True)
class Case:
    """One test case: the learner's functions must give the same result as the reference functions.

    Args:
        compute: function that calls some of the functions and returns the value to compare: numbers, strings, arrays,
            or lists, tuples and dictionaries of these. Usually, it makes a single call (see `call`).
        note: short description of the case, such as "where all numbers are equal".
        description: the call as shown when the answer is wrong, such as "softmax(float64 (2, 5))", or a function that
            returns it.
        relative, absolute: tolerances, as in `numpy.allclose`; None: by dtype (1e-5 and 1e-6 for float32, 1e-7 and
            1e-9 for float64).
    """

    compute: Callable[[Functions], Any]
    note: str
    description: str | Callable[[], str] = ""
    relative: float | None = None
    absolute: float | None = None

    def question(self) -> str:
        """Return the call as text."""
        return self.description() if callable(self.description) else self.description


@dataclass(frozen=True)
class Mistake:
    """A common mistake, which a check recognizes by its results.

    Args:
        name: short name, such as "no maximum subtracted".
        why: one or two sentences that say why it is wrong and how to fix it.
        wrong: the wrong functions, by name; the other functions of the exercise are taken from the shipped solution.
        variants: further sets of wrong functions that are recognized as the same mistake.
    """

    name: str
    why: str
    wrong: Mapping[str, Function]
    variants: Sequence[Mapping[str, Function]] = ()


def call(
    name: str,
    *arguments: Any,
    note: str,
    relative: float | None = None,
    absolute: float | None = None,
) -> Case:
    """Build the usual case: one call whose result is compared."""
    from glassformer_course.judging.showing import format_value

    return Case(
        compute=lambda functions: getattr(functions, name)(*arguments),
        note=note,
        description=lambda: f"{name}({', '.join(format_value(argument) for argument in arguments)})",
        relative=relative,
        absolute=absolute,
    )
