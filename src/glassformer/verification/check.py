"""Checks, their findings, and the distance between two tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from glassformer.verification.verified_run import VerifiedRun

LOGITS = 1e-5
"""How far logits of single precision may be apart that are computed in two ways; see `distance`."""


@dataclass(frozen=True)
class Finding:
    """Measurement of one check.

    Attributes:
        measured: to be at most the check's limit.
        note: on what it was measured, and what was cut.
    """

    measured: float
    note: str


@dataclass(frozen=True)
class Check:
    """One promise that is put to the test.

    Attributes:
        name: short, unique.
        claim: what holds if it passes.
        limit: the largest `measured` that passes.
        unit: what is measured.
        measure: does it; a `GlassError` is a failure.
        exempt: why a run is not concerned; None: it is.
        files_only: the check needs no model, and is made even where none can be loaded.
    """

    name: str
    claim: str
    limit: float
    unit: str
    measure: Callable[[VerifiedRun], Finding]
    exempt: Callable[[VerifiedRun], str | None] = lambda subject: None
    files_only: bool = False


@dataclass(frozen=True)
class Result:
    """One line of the sheet.

    Attributes:
        check: what was checked.
        ok: None where the check does not apply, or could not be made.
        measured: None where nothing was.
        note: on what it was measured, or why it was not.
        seconds: it took.
        made: False where the check concerns the run and could not be made: nothing is shown then.
    """

    check: Check
    ok: bool | None
    measured: float | None
    note: str
    seconds: float
    made: bool = True

    def facts(self) -> dict[str, Any]:
        """For JSON, which has no infinity: that is null, and `ok` false."""
        finite = self.measured is not None and math.isfinite(self.measured)
        return {
            "name": self.check.name,
            "claim": self.check.claim,
            "unit": self.check.unit,
            "measured": self.measured if finite else None,
            "limit": self.check.limit,
            "ok": self.ok,
            "note": self.note,
            "seconds": round(self.seconds, 3),
        }

    def line(self, width: int) -> str:
        """Return one line of text: verdict, name padded to `width`, figures, and the claim or the reason."""
        verdict, sign = {True: ("pass", "<="), False: ("FAIL", " >"), None: ("-", "  ")}[self.ok]
        told = self.check.claim if self.ok else self.note if self.ok is None else f"{self.check.claim}? {self.note}"
        figures = f"{shown(self.measured):>8} {sign} {shown(self.check.limit):<7}"
        return f"{verdict:<4}  {self.check.name:<{width}}  {figures}  {told}"


def shown(number: float | None) -> str:
    """Counts as they are, other numbers with two digits."""
    if number is None:
        return ""
    return f"{number:.0f}" if number == round(number) and abs(number) < 1e6 else f"{number:.1e}"


def distance(found: Tensor, wanted: Tensor) -> float:
    """The largest difference, as a share of the largest number that is wanted (of 1, if that is smaller).

    Infinite where something is not a finite number, or where the shapes differ: equal shapes are part of every claim.
    """
    if found.shape != wanted.shape:
        return math.inf
    if not wanted.numel():
        return 0.0
    apart = float((found.double() - wanted.double()).abs().max())
    apart /= max(1.0, float(wanted.double().abs().max()))
    return apart if math.isfinite(apart) else math.inf
