"""Turn links to repository files that are not pages, such as ../benchmarks/results/tried.md, into downloads."""

from __future__ import annotations

import re

from sphinx.application import Sphinx

LINK = re.compile(r"\]\(((?:\.\./)+(?:benchmarks|src|tests)/[^)#\s]+)\)")


def as_files(app: Sphinx, docname: str, content: list[str]) -> None:
    """Add `path:` to these links, without which MyST would read a link to a Markdown file as a link to a page."""
    content[0] = LINK.sub(r"](path:\1)", content[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Change the links before Sphinx parses a page."""
    app.connect("source-read", as_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
