"""Data classes of a check, its finding and its result, and the distance between two tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from glassformer.verification.verified_run import VerifiedRun

LOGITS = 1e-5
"""Largest allowed `distance` between the float32 logits of two equivalent computations in PyTorch."""


@dataclass(frozen=True)
class Finding:
    """Measurement of one check.

    Attributes:
        measured: the measured value; the check passes if it is at most the limit.
        note: description of the data used, and of anything left out.
    """

    measured: float
    note: str


@dataclass(frozen=True)
class Check:
    """Check of one property of a run.

    Attributes:
        name: short, unique name.
        claim: the property that holds if the check passes.
        limit: the largest value of `measured` that passes.
        unit: unit of the measured value.
        measure: function that measures the run; if it raises an exception, the check fails.
        exempt: function that returns the reason why the check does not apply to a run; None if it applies.
        files_only: True if the check tests the run's files, and so runs even if the model cannot be loaded.
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
    """Result of one check.

    Attributes:
        check: the check that was made.
        ok: True if the check passed, False if it failed; None if it does not apply or could not run.
        measured: the measured value; None if nothing was measured.
        note: description of the data used, or the reason why nothing was measured.
        seconds: duration in seconds.
        could_run: False if the check could not run, because the run could not be loaded.
    """

    check: Check
    ok: bool | None
    measured: float | None
    note: str
    seconds: float
    could_run: bool = True

    def facts(self) -> dict[str, Any]:
        """Return the result as JSON values; an infinite or NaN measurement becomes null, and `ok` is then false."""
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
        """Return one line of text: verdict, name padded to `width`, measured value, limit and an explanation.

        The explanation is the claim if the check passed, the claim and the note if it failed, otherwise the note.
        """
        verdict, sign = {True: ("pass", "<="), False: ("FAIL", " >"), None: ("-", "  ")}[self.ok]
        explanation = (
            self.check.claim if self.ok else self.note if self.ok is None else f"{self.check.claim}? {self.note}"
        )
        figures = f"{format_number(self.measured):>8} {sign} {format_number(self.check.limit):<7}"
        return f"{verdict:<4}  {self.check.name:<{width}}  {figures}  {explanation}"


def format_number(number: float | None) -> str:
    """Format a number: integers below one million exactly, other numbers with two significant digits; "" for None."""
    if number is None:
        return ""
    # The first comparison is False for infinity and NaN, which round() refuses.
    is_small_integer = abs(number) < 1e6 and number == round(number)
    return f"{number:.0f}" if is_small_integer else f"{number:.1e}"


def distance(actual: Tensor, expected: Tensor) -> float:
    """Return max |actual - expected| / max(1, max |expected|).

    The distance is infinity if the shapes differ or a value is not finite.
    """
    if actual.shape != expected.shape:
        return math.inf
    if not expected.numel():
        return 0.0
    difference = float((actual.double() - expected.double()).abs().max())
    difference /= max(1.0, float(expected.double().abs().max()))
    return difference if math.isfinite(difference) else math.inf
