"""Numbers, paths and commands in sentences: 1 token, 2,000 tokens; 0, or 0 to 3; 'my runs/book'. Depths of words."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Literal, get_args

Level = Literal["school", "student", "practitioner", "engineer", "researcher"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""The depths at which things are explained, from the simplest to the deepest."""


def as_said(value: object) -> str:
    """A setting's value as people write it.

    >>> as_said(20000), as_said(0.01), as_said("bf16")
    ('20,000', '0.01', 'bf16')
    """
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def counted(number: int, several: str, one: str | None = None) -> str:
    """A number and what it counts.

    Args:
        number: how many.
        several: what stands after any number but 1, with the verb where there is one.
        one: what stands after 1; None: `several`, whose first word that ends in s has lost it.

    >>> counted(2000, "tokens"), counted(1, "tokens"), counted(1, "rows without labels")
    ('2,000 tokens', '1 token', '1 row without labels')
    >>> counted(0, "texts are left out", "text is left out")
    '0 texts are left out'
    """
    if number != 1:
        return f"{number:,} {several}"
    return "1 " + (one or re.sub(r"s\b", "", several, count=1))


def span(first: object, last: object) -> str:
    """Return a range in words, "first to last", or the single value if both are equal.

    >>> span(0, 0), span(0, 3)
    ('0', '0 to 3')
    """
    return str(first) if first == last else f"{first} to {last}"


def quoted(path: Path | str) -> str:
    """A path as it is typed in a command: one with spaces or signs that a shell reads stands in quotes.

    >>> quoted("runs/book"), quoted("my runs/book")
    ('runs/book', "'my runs/book'")
    """
    text = str(path)
    if os.name == "nt":  # whose shells know no single quotes, and have backslashes in every path
        return f'"{text}"' if " " in text else text
    return shlex.quote(text)
