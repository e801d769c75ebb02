"""The one error that people see: what happened, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GlassError(Exception):
    """A mistake that the person at the keyboard can put right.

    The command line prints it as exactly two lines and exits with code 2; library users catch it as any exception.

    Args:
        problem: one line: what happened, with the value that was received.
        remedy: one line: what is allowed, or what to do next.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem = " ".join(problem.split())
        self.remedy = " ".join(remedy.split())
        super().__init__(f"{self.problem}\n{self.remedy}")


def nearest(name: str, allowed: Iterable[str]) -> str:
    """A sentence that names the closest allowed word, or lists them all when none is close.

    >>> nearest("leyers", ["layers", "heads"])
    'Did you mean layers?'
    >>> nearest("zzz", ["layers", "heads"])
    'Choose one of: heads, layers.'
    """
    words = sorted(allowed)
    close = difflib.get_close_matches(name, words, n=1, cutoff=0.6)
    return f"Did you mean {close[0]}?" if close else f"Choose one of: {', '.join(words)}."
