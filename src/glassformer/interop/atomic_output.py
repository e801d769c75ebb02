"""Atomic export: the complete output is written only if all comparisons pass. No existing output is replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from glassformer.base.errors import GlassError
from glassformer.base.files import new_output
from glassformer.interop.export_report import Comparison


def write_atomically(target: str, out: Path, fill: Callable[[Path], Sequence[Comparison]]) -> tuple[Comparison, ...]:
    """Write to a temporary path, and rename it to `out` if every comparison is within its limit; otherwise, delete it.

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
    with new_output(out) as temporary:
        comparisons = tuple(fill(temporary))
        _refuse_differences(target, comparisons)
    return comparisons


def _refuse_differences(target: str, comparisons: Sequence[Comparison]) -> None:
    failed = next((each for each in comparisons if not each.ok), None)
    if failed is not None:
        raise GlassError(
            f"the {target} export does not match the run: in the comparison '{failed.name}', the difference is "
            f"{failed.value:g}, above the limit {failed.limit:g} ({failed.compared})",
            "Nothing was written. Run glass doctor; if it finds no problem, report this with the run's config.toml.",
        )
