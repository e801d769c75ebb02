"""Clean documents: remove control characters and superfluous white space; keep the characters of every script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85]")
"""Line ends other than `\\n`, including vertical tab, form feed and next line: removing these could join two words."""
UNSEEN = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")
"""Byte order marks, two code points that are not characters, and control characters except tab and line ends."""
BEFORE_LINE_END = re.compile(r"[^\S\n]+\n")
BLANK_LINES = re.compile(r"\n{3,}")
MAX_PENDING_SPACE = 2_000_000  # maximum number of white-space characters to hold back unchanged


def cleaned(parts: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
    r"""Clean documents that come in parts, and yield their clean text in parts: (text, whether the part is the last).

    Line ends become `\n`. Control characters, byte order marks, and white space before line ends and around each
    document are removed. Several blank lines become one. Joiners (U+200C, U+200D) are kept, because they belong to
    words. The joined result does not depend on how a document is cut into parts.
    """
    pending_space = ""
    begun = False
    for text, last in parts:
        raw = pending_space + UNSEEN.sub("", text)
        raw = raw if begun else raw.lstrip()
        body_length = len(raw.rstrip())  # white space at the end may continue in the next part
        body = tidied(raw[:body_length])
        pending_space = raw[body_length:]
        if len(pending_space) > MAX_PENDING_SPACE:
            pending_space = tidied(pending_space)
        if body or last:
            begun = not last
            yield body, last
        if last:  # the next part begins another document
            pending_space = ""


def tidied(text: str) -> str:
    """Normalize the line ends of a text, the white space before them, and blank lines."""
    return BLANK_LINES.sub("\n\n", BEFORE_LINE_END.sub("\n", LINE_ENDS.sub("\n", text)))
