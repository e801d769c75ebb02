"""Count rows, documents or examples that are left out or need a note, with one example position for each reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from glassformer.base.wording import counted


@dataclass
class Tally:
    """Counts of rows, documents or examples that are left out, or that are used but need a note for the user.

    Attributes:
        left_out: number of items left out, by reason.
        remarks: number of items that are used but need a note, by the text of the note (the remark).
        example_positions: for each reason or remark, the weight and the position of the item with the largest weight
            (the first such item).
    """

    left_out: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)
    example_positions: dict[str, tuple[int, str]] = field(default_factory=dict)

    def leave_out(self, reason: str, position: str) -> None:
        """Count an item that is left out; record the first position that is not empty."""
        self.left_out[reason] += 1
        if position:
            self.example_positions.setdefault(reason, (0, position))

    def remark(self, remark: str, position: str, weight: int = 0) -> None:
        """Count an item that is used but needs a note; record the position with the largest `weight`."""
        self.remarks[remark] += 1
        if remark not in self.example_positions or weight > self.example_positions[remark][0]:
            self.example_positions[remark] = (weight, position)

    def notes(self) -> list[str]:
        """Return one note for each count, then one note for each example position."""
        notes = [f"left out {counted(count, reason)}" for reason, count in sorted(self.left_out.items())]
        notes += [counted(count, remark) for remark, count in sorted(self.remarks.items()) if count]
        return notes + [
            f"{reason}: for example {position}" for reason, (_, position) in sorted(self.example_positions.items())
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the counts and positions as a JSON-serializable dictionary."""
        return {"left_out": self.left_out, "remarks": self.remarks, "places": self.example_positions}

    def add(self, other: Mapping[str, Any]) -> None:
        """Add the counts and positions of a later part, as `as_json` returned them."""
        self.left_out.update(other["left_out"])
        self.remarks.update(other["remarks"])
        for reason, (weight, position) in other["places"].items():
            if reason not in self.example_positions or weight > self.example_positions[reason][0]:
                self.example_positions[reason] = (weight, position)
