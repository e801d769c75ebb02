"""Format numbers, ranges and paths in messages; list the levels of explanations."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

Level = Literal["school", "student", "practitioner", "engineer", "researcher"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""Levels of explanations, from the simplest to the most advanced."""


def format_value(value: object) -> str:
    """Format the value of a setting as text; numbers have thousands separators.

    >>> format_value(20000), format_value(0.01), format_value("bf16"), format_value(True)
    ('20,000', '0.01', 'bf16', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def counted(number: int, several: str, one: str | None = None) -> str:
    """Return a number followed by a noun in the singular or plural.

    Args:
        number: the number.
        several: text after any number except 1, including a verb if there is one.
        one: text after 1; None: `several` without the final s of the first word that ends in s.

    >>> counted(2000, "tokens"), counted(1, "tokens"), counted(1, "rows without labels")
    ('2,000 tokens', '1 token', '1 row without labels')
    >>> counted(0, "texts are left out", "text is left out")
    '0 texts are left out'
    """
    if number != 1:
        return f"{number:,} {several}"
    return "1 " + (one or re.sub(r"s\b", "", several, count=1))


def span(first: object, last: object) -> str:
    """Return "first to last", or a single value if both are equal.

    >>> span(0, 0), span(0, 3)
    ('0', '0 to 3')
    """
    return str(first) if first == last else f"{first} to {last}"


def quoted(path: Path | str) -> str:
    """Return a path as typed in a command, in quotes if it has spaces or special characters of the shell.

    On Windows, only a path with spaces is quoted.

    >>> quoted("runs/book"), quoted("my runs/book")
    ('runs/book', "'my runs/book'")
    """
    text = str(path)
    if os.name == "nt":  # Windows shells have no single quotes, and paths contain backslashes
        return f'"{text}"' if " " in text else text
    return shlex.quote(text)


def listed(names: Sequence[str], max_names: int) -> str:
    """Return the first `max_names` names, separated by commas, and the number of further names.

    >>> listed(["a", "b"], 5), listed(["a", "b", "c", "d"], 2)
    ('a, b', 'a, b and 2 more')
    """
    more = f" and {len(names) - max_names:,} more" if len(names) > max_names else ""
    return ", ".join(names[:max_names]) + more


def visible_text(name: str) -> str:
    """Return a token's text with spaces made visible, or a symbol if the text is empty.

    >>> visible_text(" cat"), visible_text("")
    ('␣cat', '∅')
    """
    return name.replace(" ", "␣") or "∅"


def in_quotes(text: str) -> str:
    r"""Return a token's printable text, or a label, in quotes, without doubling the backslash of bytes such as `\xe0`.

    >>> print(in_quotes(" cat"), in_quotes("\\xe0"), in_quotes("it's"))
    ' cat' '\xe0' "it's"
    """
    return repr(text).replace("\\\\", "\\")
