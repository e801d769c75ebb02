"""Small pieces of Markdown that made pages share."""

from __future__ import annotations

import re


def cell(text: str) -> str:
    """A text for a table's cell; what looks like a tag or a pattern stays as it is written."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    plain = [part if part.startswith("`") else re.sub(r"([*_<\[\]$])", r"\\\1", part) for part in parts]
    return "".join(plain).replace("|", "\\|")


def fenced(kind: str, text: str) -> str:
    """A block of code."""
    return f"```{kind}\n{text.strip(chr(10))}\n```"


def shortened(text: str, lines: int = 30, columns: int = 118) -> str:
    """The first lines of an output, and of long lines the beginning."""
    rows = [row if len(row) <= columns else row[: columns - 1] + "…" for row in text.rstrip().splitlines()]
    return "\n".join(rows if len(rows) <= lines else [*rows[: lines - 1], f"… {len(rows) - lines + 1} more lines"])


def indented(text: str, spaces: int) -> str:
    """A text whose lines but the first are moved to the right."""
    return text.replace("\n", "\n" + " " * spaces)


def folded(summary: str, text: str) -> str:
    """Text that a click unfolds."""
    return f"<details>\n<summary>{summary}</summary>\n\n{text}\n\n</details>"
