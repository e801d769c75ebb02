"""Results of a probe: shares of right answers, by group, beside chance and rules of thumb."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from glassformer.evaluation.minimal_pairs import Share


@dataclass(frozen=True)
class Group:
    """Some of a probe's questions.

    Attributes:
        name: which.
        share: how many the run answers right.
        chance: the share that guessing gets right.
        rules: the share that each rule of thumb gets right, on the same questions.
    """

    name: str
    share: Share
    chance: float
    rules: Mapping[str, float]

    def facts(self) -> dict[str, Any]:
        """Return the group as JSON."""
        return {"group": self.name, **self.share.facts(), "chance": self.chance, "rules": dict(self.rules)}


@dataclass(frozen=True)
class ProbeResult:
    """One probe of one run.

    Attributes:
        name: of the probe.
        about: what was asked, in words.
        groups: all questions first, then by kind.
        figures: other numbers, each by what it is.
        notes: what a person should know.
    """

    name: str
    about: str
    groups: Sequence[Group]
    figures: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def facts(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "about": self.about,
            "groups": [group.facts() for group in self.groups],
            "figures": dict(self.figures),
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """Format the result as text: shares in percent."""
        rules = list(self.groups[0].rules)
        width = max(len(group.name) for group in self.groups)
        head = f"{'':{width}}{'right':>8}  {'95 %':<16}{'chance':>7}"
        lines = [f"{self.name}: {self.about}", *self.notes]
        lines.append(head + "".join(f"{rule:>{_wide(rule)}}" for rule in rules) + f"{'of':>8}")
        for group in self.groups:
            low, high = group.share.interval
            line = f"{group.name:{width}}{100 * group.share.share:>8.1f}  {f'{100 * low:.1f} to {100 * high:.1f}':<16}"
            line += f"{100 * group.chance:>7.1f}"
            line += "".join(f"{100 * group.rules[rule]:>{_wide(rule)}.1f}" for rule in rules)
            lines.append(line + f"{group.share.count:>8,}")
        return "\n".join([*lines, *(f"{what}: {value:.3f}" for what, value in self.figures.items())])


def _wide(rule: str) -> int:
    return max(7, len(rule) + 2)


def by_number(name: str) -> list[str]:
    """A key by which `2 pairs` comes before `12 pairs`."""
    return [part.rjust(9) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
