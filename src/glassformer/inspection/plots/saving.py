"""Writing pictures: known to be possible before the work is done, whole or not at all, the same bytes every time."""

from __future__ import annotations

import importlib.util
import io
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.base.errors import GlassError
from glassformer.base.files import clear_disk_errors, refuse_no_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WITHOUT: dict[str, dict[str, Any]] = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}}
"""By format: what files would say of their making."""
SALT = "glassformer"
"""SVG names its parts by it; without one the names would be random."""


def refuse_no_picture(path: Path, option: str = "--out") -> None:
    """Check that a picture can be written.

    Raises:
        GlassError: another format, no such folder, a folder of that name, or no matplotlib.
    """
    if path.suffix.lower() not in WITHOUT:
        raise GlassError(f"{option} {path} is no picture's name", f"Let it end in {' or '.join(WITHOUT)}.")
    if path.is_dir():
        raise GlassError(f"{option} {path} is a folder", "Give the name of a file.")
    refuse_no_folder(path)
    refuse_no_matplotlib()


def refuse_no_matplotlib() -> None:
    """Raise a `GlassError` if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise GlassError("a picture needs matplotlib", 'Install it: pip install -e ".[plots]"')


def save(figure: Figure, path: str | PathLike[str]) -> None:
    """Write a picture; the same figure gives the same bytes.

    Raises:
        GlassError: the file cannot be written; one that was there before is as it was.
    """
    import matplotlib

    path = Path(path)
    kind = path.suffix.lower()
    partial = path.with_name(path.name + ".partial")
    with clear_disk_errors(path), matplotlib.rc_context({"svg.hashsalt": SALT}):
        try:
            figure.savefig(partial, format=kind[1:], metadata=WITHOUT[kind])
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def svg_text(figure: Figure) -> str:
    """Return a figure as an SVG element, without a prologue, so that a page can hold it."""
    import matplotlib

    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": SALT}):
        figure.savefig(out, format="svg", metadata=WITHOUT[".svg"])
    return out.getvalue()[out.getvalue().index("<svg") :]
