"""What a check is made of: the questions that are put to an answer, and the known wrong answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Function = Callable[..., Any]


class Functions(Protocol):
    """The functions that a check asks: the reference's, a learner's, or those of a known mistake, by name."""

    def __getattr__(self, name: str) -> Function:
        """The function of that name."""
        ...


@dataclass(frozen=True)
class Case:
    """One question. What it gives for the learner's functions must be what it gives for the reference's.

    Args:
        ask: calls some of the functions and returns what is compared: numbers, text, arrays, or lists, tuples and
            dictionaries of them. Mostly a single call (see `call`).
        note: what is special about it, in a few words that end a sentence "where ...": "where two numbers are equal".
        words: the question as it is shown when the answer is wrong, such as "softmax(float64 (2, 5))"; or what makes
            it.
        relative, absolute: how far numbers may be apart, as in `numpy.allclose`; None: by their type, 1e-5 and 1e-6
            for float32, 1e-7 and 1e-9 for float64.
    """

    ask: Callable[[Functions], Any]
    note: str
    words: str | Callable[[], str] = ""
    relative: float | None = None
    absolute: float | None = None

    def question(self) -> str:
        """Its words, made when they are needed."""
        return self.words() if callable(self.words) else self.words


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that people give, which a check recognises by what it computes.

    Args:
        name: a few words, such as "no maximum subtracted".
        why: one or two sentences: what goes wrong, and what to do instead.
        wrong: the functions of the exercise that are wrong, by name; the others are those of the shipped solution.
    """

    name: str
    why: str
    wrong: Mapping[str, Function]


def call(
    name: str,
    *arguments: Any,
    note: str,
    relative: float | None = None,
    absolute: float | None = None,
) -> Case:
    """The question that most cases are: one call, whose result is compared."""
    from glassformer_course.judging.showing import shown

    return Case(
        ask=lambda functions: getattr(functions, name)(*arguments),
        note=note,
        words=lambda: f"{name}({', '.join(shown(argument) for argument in arguments)})",
        relative=relative,
        absolute=absolute,
    )
