"""`GlassError`, the error for users: a problem and a remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

OUT_OF_MEMORY = ("not enough memory", "can't allocate memory", "out of memory", "Storage size calculation overflowed")
"""Phrases in torch's messages for memory errors, on CPUs and GPUs."""
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)
"""Exceptions that a damaged or malicious JSON or TOML file can raise when it is parsed and its values are converted."""
SHORTEST = 4
"""Minimum length of words that `closest` compares by their beginnings."""
SMALLER = (
    "Give a smaller input; in training, lower train.micro_batch, model.context or the model's size. "
    "Saved files are intact."
)
"""Default remedy for memory errors."""


class GlassError(Exception):
    """An error that the user can correct.

    The command line prints its two lines (with `--debug`, a traceback first) and exits with code 2; library users catch
    it like any exception.

    Args:
        problem: what happened, with the received value; line breaks become spaces.
        remedy: what is allowed, or what to do next; line breaks become spaces.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem = " ".join(problem.split())
        self.remedy = " ".join(remedy.split())
        super().__init__(f"{self.problem}\n{self.remedy}")

    def __reduce__(self) -> tuple[type[GlassError], tuple[str, str]]:
        """Pickle the error as its two lines, so that it can be sent between processes."""
        return type(self), (self.problem, self.remedy)


class ShortMemoryError(GlassError):
    """An error that is raised when Python, NumPy or torch runs out of memory."""


class ReportedElsewhereError(GlassError):
    """An error that another process of the same run reports; this process exits with code 2 and without a message."""


def closest(name: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed word that is most similar to `name`; None if none is close.

    A name of at least `SHORTEST` characters is first compared by its beginning: the shortest word that begins with the
    name is preferred, then the longest word of at least `SHORTEST` characters with which the name begins.

    >>> closest("--temp", ["--top", "--temperature"])
    '--temperature'
    >>> closest("--output", ["--out", "--dtype"])
    '--out'
    """
    name = str(name)  # a caller from Python may pass anything
    words = sorted(allowed)
    if len(name) >= SHORTEST:
        longer = [word for word in words if word.startswith(name)]
        shorter = [word for word in words if len(word) >= SHORTEST and name.startswith(word)]
        if longer or shorter:
            return min(longer, key=len) if longer else max(shorter, key=len)
    close = difflib.get_close_matches(name, words, n=1, cutoff=0.6)
    return close[0] if close else None


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return a sentence that suggests the closest allowed word, or lists all allowed words if none is close.

    >>> nearest("leyers", ["layers", "heads"])
    'Did you mean layers?'
    >>> nearest("zzz", ["layers", "heads"])
    'Choose one of: heads, layers.'
    """
    words = sorted(allowed)
    close = closest(name, words)
    return f"Choose one of: {', '.join(words)}." if close is None else f"Did you mean {close}?"


def nearest_file(path: Path, otherwise: str) -> str:
    """Return the remedy for a missing file: a sentence that suggests the most similar path in its folder.

    If no name is similar, or the folder cannot be read, return `otherwise`; if the folder is missing, return a sentence
    that says so.
    """
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return otherwise if path.parent.is_dir() else f"There is no folder {path.parent} either."
    close = closest(path.name, names)
    return otherwise if close is None else f"Did you mean {path.with_name(close)}?"


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error of Python, NumPy or torch means that memory ran out."""
    return isinstance(error, MemoryError) or any(phrase in str(error) for phrase in OUT_OF_MEMORY)


@contextmanager
def convert_memory_errors(remedy: str = SMALLER) -> Iterator[None]:
    """Convert out-of-memory errors inside the context to a `ShortMemoryError` with this remedy."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        detail = " ".join(str(error).split())[:200] or "Python has none left"
        raise ShortMemoryError(f"there is not enough memory ({detail})", remedy) from error
