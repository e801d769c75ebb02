"""Cut plain text into documents, in bounded memory: a very long document is yielded in several pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LINE_END = re.compile(r"\r\n|\n|\r")
BLANK_LINES = re.compile(r"(?>\r\n|\n|\r)(?:[ \t]*(?>\r\n|\n|\r))+")  # atomic: \r\n is never two line ends
MAX_PENDING_CHARACTERS = 2_000_000  # characters of one document kept in memory before it is passed on in pieces


def documents(chunks: Iterable[str], unit: str) -> Iterator[Iterator[tuple[str, bool]]]:
    """Yield one iterator over the pieces of all documents, in order: (text, whether the piece ends its document).

    With `unit` = file, the whole text is one document, unchanged. Otherwise, line ends and blank lines between
    documents are not part of them, and lines or paragraphs with only white space are skipped.

    Args:
        chunks: the text of a file.
        unit: `data.document`: file, paragraph or line.
    """
    if unit == "file":
        yield _whole_text(chunks)
    else:
        yield _separated(chunks, LINE_END if unit == "line" else BLANK_LINES)


def _whole_text(chunks: Iterable[str]) -> Iterator[tuple[str, bool]]:
    previous: str | None = None
    for chunk in chunks:
        if previous is not None:
            yield previous, False
        previous = chunk
    yield previous or "", True


def _separated(chunks: Iterable[str], separator: re.Pattern[str]) -> Iterator[tuple[str, bool]]:
    """Cut the text at `separator`; a document longer than `MAX_PENDING_CHARACTERS` may be yielded in several pieces."""
    pending = ""
    begun = False
    for chunk in chunks:
        pending += chunk
        complete_length = len(pending.rstrip(" \t\r\n"))  # white space at the end may be the beginning of a separator
        if len(pending) - complete_length > MAX_PENDING_CHARACTERS:
            complete_length = len(pending)  # pass on long white space, to bound memory
        *complete, remainder = separator.split(pending[:complete_length])
        pending = remainder + pending[complete_length:]
        for text in complete:
            yield from _last_piece(text, begun)
            begun = False
        if len(remainder) > MAX_PENDING_CHARACTERS:
            yield (remainder if begun else remainder.lstrip("\r\n")), False
            pending = pending[len(remainder) :]
            begun = True
    *complete, remainder = separator.split(pending)
    for text in (*complete, remainder.rstrip("\r\n")):
        yield from _last_piece(text, begun)
        begun = False


def _last_piece(text: str, begun: bool) -> Iterator[tuple[str, bool]]:
    """Yield the rest of a document that has begun, or a whole document; skip white space between separators."""
    if begun:
        yield text, True
    elif (stripped := text.strip("\r\n")) and not stripped.isspace():
        yield stripped, True
