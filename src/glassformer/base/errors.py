"""The one error that people see: what happened, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

OUT_OF_MEMORY = ("not enough memory", "can't allocate memory", "out of memory", "Storage size calculation overflowed")
"""How torch says it, on the processor and on GPUs."""
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)
"""Exceptions that a damaged or hostile JSON or TOML file can raise when it is parsed and its values are converted."""
SMALLER = "Lower train.micro_batch (rows at a time), model.context or the model's size; what was saved is intact."
"""What a command is to do where memory is short."""


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

    def __reduce__(self) -> tuple[type[GlassError], tuple[str, str]]:
        """So that it comes whole out of another process."""
        return type(self), (self.problem, self.remedy)


class ShortMemoryError(GlassError):
    """There is not enough memory for what was asked."""


class SaidElsewhereError(GlassError):
    """An error that another process of the same run has too, and says: it ends this one without a word."""


def closest(name: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed word that is most like a name; None if none is close."""
    close = difflib.get_close_matches(name, sorted(allowed), n=1, cutoff=0.6)
    return close[0] if close else None


def nearest(name: str, allowed: Iterable[str]) -> str:
    """A sentence that names the closest allowed word, or lists them all when none is close.

    >>> nearest("leyers", ["layers", "heads"])
    'Did you mean layers?'
    >>> nearest("zzz", ["layers", "heads"])
    'Choose one of: heads, layers.'
    """
    words = sorted(allowed)
    close = closest(name, words)
    return f"Choose one of: {', '.join(words)}." if close is None else f"Did you mean {close}?"


def nearest_file(path: Path, otherwise: str) -> str:
    """The remedy for a file that is missing: the name in its folder that is most like it, or `otherwise`."""
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return f"There is no folder {path.parent} either."
    close = closest(path.name, names)
    return otherwise if close is None else f"Did you mean {path.with_name(close)}?"


def is_out_of_memory(error: Exception) -> bool:
    """Whether Python, NumPy or torch says that memory is short."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in OUT_OF_MEMORY)


@contextmanager
def clear_memory_errors(remedy: str = SMALLER) -> Iterator[None]:
    """Turn "out of memory", from Python, NumPy or torch, into a `ShortMemoryError` that says what to make smaller."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        found = " ".join(str(error).split())[:200] or "Python has none left"
        raise ShortMemoryError(f"there is not enough memory ({found})", remedy) from error
