"""Links to files of the repository that are no pages, such as ../benchmarks/results/tried.md: the book has a copy."""

from __future__ import annotations

import re

from sphinx.application import Sphinx

LINK = re.compile(r"\]\(((?:\.\./)+(?:benchmarks|src|tests)/[^)#\s]+)\)")


def as_files(app: Sphinx, docname: str, content: list[str]) -> None:
    """MyST takes a link to Markdown for one to a page, unless it says `path:`."""
    content[0] = LINK.sub(r"](path:\1)", content[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Before a page is read."""
    app.connect("source-read", as_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
