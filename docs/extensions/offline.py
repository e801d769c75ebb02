"""Fail the build if a page would load a resource from the network."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

OUTSIDE = re.compile(
    r"""<(?:script|link|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|href|data)=["']?(?:https?:)?//[^>]*>"""
    r"""|url\(["']?(?:https?:)?//[^)]*\)|@import\s+["'](?:https?:)?//[^"']*["']"""
)
"""Pattern of resources that a browser loads without being asked; links that a reader clicks on do not match."""


def find_outside(app: Sphinx, error: Exception | None) -> None:
    """Search all written pages and style sheets for resources from the network.

    Raises:
        ExtensionError: a page or style sheet loads a resource from the network.
    """
    if error is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir)
    for path in sorted([*folder.rglob("*.html"), *folder.rglob("*.css")]):
        for found in OUTSIDE.finditer(path.read_text(encoding="utf-8")):
            raise ExtensionError(f"{path.relative_to(folder)} loads from the network: {found[0]}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Search the pages at the end of the build."""
    app.connect("build-finished", find_outside)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
