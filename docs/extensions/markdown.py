"""Markdown helpers for generated pages."""

from __future__ import annotations

import re


def cell(text: str) -> str:
    """Return a text for a table cell, on one line, with Markdown characters outside of code escaped."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    plain = [part if part.startswith("`") else re.sub(r"([*_<\[\]$])", r"\\\1", part) for part in parts]
    return "".join(plain).replace("|", "\\|")


def fenced(kind: str, text: str) -> str:
    """Return a code block of a language."""
    return f"```{kind}\n{text.strip(chr(10))}\n```"


def shortened(text: str, lines: int = 30, columns: int = 118) -> str:
    """Return at most `lines` lines of an output, each of at most `columns` characters."""
    rows = [row if len(row) <= columns else row[: columns - 1] + "…" for row in text.rstrip().splitlines()]
    return "\n".join(rows if len(rows) <= lines else [*rows[: lines - 1], f"… {len(rows) - lines + 1} more lines"])


def indented(text: str, spaces: int) -> str:
    """Return a text whose lines after the first are indented."""
    return text.replace("\n", "\n" + " " * spaces)


def folded(summary: str, text: str) -> str:
    """Return a text that is hidden until the reader clicks on its summary."""
    return f"<details>\n<summary>{summary}</summary>\n\n{text}\n\n</details>"
