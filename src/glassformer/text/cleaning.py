"""Cleaning of documents: what no reader would miss goes, and everything that belongs to a script stays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85]")
"""Also vertical tab, form feed and next line: taken out, they would join two words."""
UNSEEN = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")
"""Control characters but tab and line ends, marks of byte order, and two code points that are no characters."""
BEFORE_LINE_END = re.compile(r"[^\S\n]+\n")
BLANK_LINES = re.compile(r"\n{3,}")
HELD = 2_000_000  # characters of white space that are held back as they stand


def cleaned(parts: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
    r"""One document that comes in parts (its text, whether it is the last), cleaned.

    Line ends become `\n`; control characters and marks of byte order go, and so do white space before a line end and
    around the document, and all but one of several blank lines. Joiners (U+200C, U+200D) are letters' business and
    stay. How the document is cut into parts changes nothing in what comes out, joined.
    """
    held = ""
    begun = False
    for text, last in parts:
        raw = held + UNSEEN.sub("", text)
        raw = raw if begun else raw.lstrip()
        solid = len(raw.rstrip())  # white space at the end may go on in the next part
        body = tidied(raw[:solid])
        held = raw[solid:]
        if len(held) > HELD:
            held = tidied(held)
        if body or last:
            begun = True
            yield body, last


def tidied(text: str) -> str:
    """A text's line ends, white space before them, and blank lines, put right."""
    return BLANK_LINES.sub("\n\n", BEFORE_LINE_END.sub("\n", LINE_ENDS.sub("\n", text)))
