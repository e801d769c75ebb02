"""Save figures: check the path before drawing, and write files atomically and reproducibly."""

from __future__ import annotations

import io
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.base.errors import GlassError
from glassformer.base.files import atomic_file, refuse_no_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WITHOUT: dict[str, dict[str, Any]] = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}}
"""Metadata to leave out of files, by format, so that equal figures give equal bytes."""
SALT = "glassformer"
"""Fixed salt of SVG element ids, without which the ids would be random."""


def refuse_no_picture(path: Path, option: str = "--out") -> None:
    """Check that a figure can be written to `path`; `option` is its command-line option, for error messages.

    Raises:
        GlassError: the format is unknown, or `refuse_no_file` refuses `path`.
    """
    if path.suffix.lower() not in WITHOUT:
        raise GlassError(
            f"{option} {path} is not the name of a picture", f"Give a name that ends in {' or '.join(WITHOUT)}."
        )
    refuse_no_file(path, option)


def save(figure: Figure, path: str | PathLike[str]) -> None:
    """Save a figure as .png or .svg, atomically; equal figures give equal bytes.

    Raises:
        GlassError: the name does not end in .png or .svg, or the file cannot be written; an existing file stays
            unchanged.
    """
    import matplotlib

    path = Path(path)
    refuse_no_picture(path, "the path")
    kind = path.suffix.lower()
    with atomic_file(path) as temporary, matplotlib.rc_context({"svg.hashsalt": SALT}):
        figure.savefig(temporary, format=kind[1:], metadata=WITHOUT[kind])


def svg_text(figure: Figure) -> str:
    """Return a figure as an SVG element without the XML prologue, for use in an HTML page."""
    import matplotlib

    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": SALT}):
        figure.savefig(out, format="svg", metadata=WITHOUT[".svg"])
    return out.getvalue()[out.getvalue().index("<svg") :]
