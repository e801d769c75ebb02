"""Atomic export: the complete output is written only if all comparisons pass. No existing output is replaced."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from glassformer.base.errors import GlassError
from glassformer.base.files import convert_os_errors, no_empty_folders, sync
from glassformer.interop.export_report import Comparison


def refuse_taken(out: Path) -> None:
    """Raise a `GlassError` if `out` exists, even as a broken symbolic link."""
    if out.exists() or out.is_symlink():
        raise GlassError(f"{out} already exists and is not overwritten", f"Choose another --out, or move {out} away.")


def write_atomically(target: str, out: Path, fill: Callable[[Path], Sequence[Comparison]]) -> tuple[Comparison, ...]:
    """Write to a temporary path, and rename it to `out` if every comparison is within its limit; otherwise, delete it.

    The temporary path is `out` with the suffix `.partial`; a file or folder that an interrupted export left there is
    deleted first.

    Args:
        target: name of the target format, for error messages.
        out: the new folder or file; missing parent folders are created, and removed again if the export fails.
        fill: function that writes the folder or file at the given path, and compares it with the run.

    Returns:
        The comparisons.

    Raises:
        GlassError: `out` exists, a comparison exceeds its limit, or the disk cannot be written. Errors of `fill` are
            passed on.
    """
    refuse_taken(out)
    partial = out.with_name(out.name + ".partial")
    with no_empty_folders(out.parent), convert_os_errors(out):
        _remove(partial)
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            comparisons = tuple(fill(partial))
            _refuse_differences(target, comparisons)
            for path in partial.iterdir() if partial.is_dir() else [partial]:
                sync(path)
            refuse_taken(out)  # another process may have created it in the meantime
            partial.rename(out)
        except BaseException:
            _remove(partial)
            raise
    return comparisons


def _refuse_differences(target: str, comparisons: Sequence[Comparison]) -> None:
    failed = next((each for each in comparisons if not each.ok), None)
    if failed is not None:
        raise GlassError(
            f"the {target} export does not match the run: in the comparison '{failed.name}', the difference is "
            f"{failed.value:g}, above the limit {failed.limit:g} ({failed.compared})",
            "Nothing was written. Run glass doctor; if it finds no problem, report this with the run's config.toml.",
        )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
