"""Results of a probe: accuracy in each group of questions, with chance and the accuracy of heuristics."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from glassformer.evaluation.minimal_pairs import Proportion


@dataclass(frozen=True)
class Group:
    """Results on a group of questions.

    Attributes:
        name: name of the group.
        proportion: proportion that the run answers correctly.
        chance: proportion that guessing gets right.
        rules: heuristic -> proportion of the same questions that it gets right.
    """

    name: str
    proportion: Proportion
    chance: float
    rules: Mapping[str, float]

    def facts(self) -> dict[str, Any]:
        """Return the group as JSON values."""
        return {"group": self.name, **self.proportion.facts(), "chance": self.chance, "rules": dict(self.rules)}


@dataclass(frozen=True)
class ProbeResult:
    """Results of one probe of one run.

    Attributes:
        name: name of the probe.
        about: description of the probe.
        groups: the group of all questions, then smaller groups.
        figures: description of each further number -> its value.
        notes: notes for the user.
    """

    name: str
    about: str
    groups: Sequence[Group]
    figures: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def facts(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "about": self.about,
            "groups": [group.facts() for group in self.groups],
            "figures": dict(self.figures),
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """Format the result as text, with proportions in percent."""
        rules = list(self.groups[0].rules)
        width = max(len(group.name) for group in self.groups)
        header = f"{'':{width}}{'right':>8}  {'95 %':<16}{'chance':>7}"
        lines = [f"{self.name}: {self.about}", *self.notes]
        lines.append(header + "".join(f"{rule:>{_column_width(rule)}}" for rule in rules) + f"{'of':>8}")
        for group in self.groups:
            low, high = group.proportion.interval
            interval = f"{100 * low:.1f} to {100 * high:.1f}"
            line = f"{group.name:{width}}{100 * group.proportion.value:>8.1f}  {interval:<16}"
            line += f"{100 * group.chance:>7.1f}"
            line += "".join(f"{100 * group.rules[rule]:>{_column_width(rule)}.1f}" for rule in rules)
            lines.append(line + f"{group.proportion.count:>8,}")
        return "\n".join([*lines, *(f"{what}: {value:.3f}" for what, value in self.figures.items())])


def _column_width(rule: str) -> int:
    return max(7, len(rule) + 2)


def by_number(name: str) -> list[str]:
    """Return a sort key for group names that puts `2 pairs` before `12 pairs`."""
    return [part.rjust(9) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
