"""What every export is asked for, and what it tells: the same for all targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.runs.folder import Which


def _unheard(text: str) -> None:
    """Progress that nobody reads."""


@dataclass(frozen=True)
class ExportRequest:
    """What shall be written, and where.

    Attributes:
        folder: of the run.
        out: where it shall be: a folder (hf, onnx) or a file (gguf) that does not exist yet.
        which: checkpoint.
        architecture: of the target, by name; None: the one that fits best.
        dtype: of the weights that are written, by the target's own name; None: float32.
        note: is told what is being done.
    """

    folder: Path
    out: Path
    which: Which = "best"
    architecture: str | None = None
    dtype: str | None = None
    note: Callable[[str], None] = _unheard


@dataclass(frozen=True)
class Measured:
    """One comparison of what was written, loaded back, with the run: a difference and the most it may be.

    `compared` says on how much: texts, tokens, numbers.
    """

    name: str
    value: float
    limit: float
    compared: str

    @property
    def ok(self) -> bool:
        """Whether it is within its limit; what is not a number is not."""
        return self.value <= self.limit

    def line(self) -> str:
        """For people."""
        shown = "identical" if self.value == 0 else f"differ by {self.value:.1e} at most (limit {self.limit:.0e})"
        return f"  {self.name:<16} {shown}: {self.compared}"


@dataclass(frozen=True)
class ExportReport:
    """What was written, and that it was loaded back and compared before it appeared.

    Attributes:
        target: "hf", "onnx" or "gguf".
        architecture: as the target calls it.
        out: the folder or file.
        bytes: of all that was written.
        measured: every comparison; all are within their limits, or nothing would have been written.
        checked_by: the program that read what was written, with its version.
        notes: what a person should know of it.
        use: the first lines of code, or the command, that use it.
    """

    target: str
    architecture: str
    out: Path
    bytes: int
    measured: tuple[Measured, ...]
    checked_by: str
    notes: tuple[str, ...] = ()
    use: str = ""

    def facts(self) -> dict[str, Any]:
        """For `--json`."""
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
        """For people."""
        size = f"{self.bytes / 1e6:,.2f} MB"
        lines = [f"{self.out}: {self.architecture}, {size}; loaded by {self.checked_by} and compared:"]
        lines += [each.line() for each in self.measured]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, *([f"\n{self.use}"] if self.use else [])])
