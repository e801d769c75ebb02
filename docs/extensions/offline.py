"""A page that would load anything from the network ends the build."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

OUTSIDE = re.compile(
    r"""<(?:script|link|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|href|data)=["']?(?:https?:)?//[^>]*>"""
    r"""|url\(["']?(?:https?:)?//[^)]*\)|@import\s+["'](?:https?:)?//[^"']*["']"""
)
"""What a browser fetches by itself; links that a reader follows are no such thing."""


def find_outside(app: Sphinx, error: Exception | None) -> None:
    """Look through all pages and style sheets that were written.

    Raises:
        ExtensionError: one of them loads something.
    """
    if error is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir)
    for path in sorted([*folder.rglob("*.html"), *folder.rglob("*.css")]):
        for found in OUTSIDE.finditer(path.read_text(encoding="utf-8")):
            raise ExtensionError(f"{path.relative_to(folder)} loads from the network: {found[0]}")


def setup(app: Sphinx) -> dict[str, bool]:
    """When all is written."""
    app.connect("build-finished", find_outside)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
