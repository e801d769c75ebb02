"""Counts of rows, documents or examples that were left out or noted in reading, each with the position of one case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from glassformer.base.wording import counted


@dataclass
class Tally:
    """Count rows, documents or examples by what happened to them.

    Attributes:
        left_out: how many were left out, by reason.
        remarks: how many were used but noted, by remark.
        places: for a reason or remark, the weight and the position of the case to show: the heaviest, else the first.
    """

    left_out: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)
    places: dict[str, tuple[int, str]] = field(default_factory=dict)

    def leave_out(self, reason: str, position: str) -> None:
        """Count one that is left out; the first position is kept, where there is one to show."""
        self.left_out[reason] += 1
        if position:
            self.places.setdefault(reason, (0, position))

    def remark(self, remark: str, place: str, weight: int = 0) -> None:
        """Count one that is used but noted; the position with the largest `weight` is kept."""
        self.remarks[remark] += 1
        if remark not in self.places or weight > self.places[remark][0]:
            self.places[remark] = (weight, place)

    def notes(self) -> list[str]:
        """Return one note for each count, then one for each position."""
        notes = [f"left out {counted(count, reason)}" for reason, count in sorted(self.left_out.items())]
        notes += [counted(count, remark) for remark, count in sorted(self.remarks.items()) if count]
        return notes + [f"{what}: for example {place}" for what, (_, place) in sorted(self.places.items())]

    def as_json(self) -> dict[str, Any]:
        """Return the counts in a form that JSON can hold."""
        return {"left_out": self.left_out, "remarks": self.remarks, "places": self.places}

    def add(self, other: Mapping[str, Any]) -> None:
        """Add the counts of a later part, as `as_json` gave them."""
        self.left_out.update(other["left_out"])
        self.remarks.update(other["remarks"])
        for what, (weight, place) in other["places"].items():
            if what not in self.places or weight > self.places[what][0]:
                self.places[what] = (weight, place)
