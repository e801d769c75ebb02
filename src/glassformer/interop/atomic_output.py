"""Atomic export: it appears whole after all comparisons pass, or not at all; existing files are never overwritten."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from glassformer.base.errors import GlassError
from glassformer.base.files import clear_disk_errors, no_empty_folders, sync
from glassformer.interop.export_report import Measured


def refuse_taken(out: Path) -> None:
    """Raise a `GlassError` if there is something at `out` already, be it a link that leads nowhere."""
    if out.exists() or out.is_symlink():
        raise GlassError(f"{out} is there already; nothing is written over", "Choose another --out, or move it away.")


def appear_whole(target: str, out: Path, fill: Callable[[Path], Sequence[Measured]]) -> tuple[Measured, ...]:
    """Write beside `out`; if every comparison is within its limit it becomes `out`, else nothing is left.

    Args:
        target: its name, for errors.
        out: the new folder or file; folders above it are made, and taken away again where it does not appear.
        fill: makes the folder or file that it is given, and compares it with the run.

    Raises:
        GlassError: something is at `out`, a comparison failed, or the disk refuses.
    """
    refuse_taken(out)
    partial = out.with_name(out.name + ".partial")
    with no_empty_folders(out.parent), clear_disk_errors(out):
        _remove(partial)
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            measured = tuple(fill(partial))
            _refuse_differences(target, measured)
            for path in partial.iterdir() if partial.is_dir() else [partial]:
                sync(path)
            refuse_taken(out)  # it may have come in the meantime
            partial.rename(out)
        except BaseException:
            _remove(partial)
            raise
    return measured


def _refuse_differences(target: str, measured: Sequence[Measured]) -> None:
    bad = next((each for each in measured if not each.ok), None)
    if bad is not None:
        raise GlassError(
            f"the {target} export is not the run: {bad.name} differ by {bad.value:g}, more than {bad.limit:g} "
            f"({bad.compared})",
            "Nothing was written. Run glass doctor; if all agrees there, report this with the run's config.toml.",
        )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
