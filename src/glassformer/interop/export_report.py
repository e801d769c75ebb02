"""Export requests and export reports, in the same form for all target formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.runs.folder import Which


def _discard(text: str) -> None:
    """Ignore a progress message."""


@dataclass(frozen=True)
class ExportRequest:
    """Request to export a run.

    Attributes:
        folder: the run folder.
        out: the output, which must not exist yet: a folder (hf, onnx) or a file (gguf).
        which: the checkpoint to export.
        architecture: name of the target's architecture; None: the first one that can express the run. It must be None
            for onnx.
        dtype: type of the exported weights, as it is named in the target format; None: float32.
        note: function that is called with each progress message.
    """

    folder: Path
    out: Path
    which: Which = "best"
    architecture: str | None = None
    dtype: str | None = None
    note: Callable[[str], None] = _discard


@dataclass(frozen=True)
class Comparison:
    """One comparison of the reloaded export with the run.

    Attributes:
        name: the quantity that was compared.
        value: the measured difference.
        limit: the largest allowed difference.
        compared: the amount of data compared, in words.
    """

    name: str
    value: float
    limit: float
    compared: str

    @property
    def ok(self) -> bool:
        """Return whether the difference is within the limit; False for NaN."""
        return self.value <= self.limit

    def line(self) -> str:
        """Return the comparison as a line of text."""
        difference = "identical" if self.value == 0 else f"differ by at most {self.value:.1e} (limit {self.limit:.0e})"
        return f"  {self.name:<16} {difference}: {self.compared}"


@dataclass(frozen=True)
class ExportReport:
    """Report on a finished export.

    Attributes:
        target: "hf", "onnx" or "gguf".
        architecture: name of the Hugging Face class, the GGUF architecture or, for onnx, glassformer's model class.
        out: the folder or file.
        bytes: total size of the export.
        measured: all comparisons with the run, each within its limit.
        checked_by: the program that loaded the export for comparison, with its version unless the program is part of
            glassformer.
        notes: remarks for the user.
        use: a command or lines of code that load or use the export.
    """

    target: str
    architecture: str
    out: Path
    bytes: int
    measured: tuple[Comparison, ...]
    checked_by: str
    notes: tuple[str, ...] = ()
    use: str = ""

    def facts(self) -> dict[str, Any]:
        """Return the report without `use`, as JSON values for `--json`."""
        return {
            "target": self.target,
            "architecture": self.architecture,
            "out": str(self.out),
            "bytes": self.bytes,
            "checked_by": self.checked_by,
            "measured": [{**each.__dict__, "ok": each.ok} for each in self.measured],
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """Return the report as lines of text."""
        size = f"{self.bytes / 1e6:,.2f} MB"
        lines = [f"{self.out}: {self.architecture}, {size}; loaded by {self.checked_by} and compared:"]
        lines += [each.line() for each in self.measured]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, *([f"\n{self.use}"] if self.use else [])])
