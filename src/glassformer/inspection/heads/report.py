"""Report on heads: roles and measures of each, the texts measured, and reasons for left-out roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from glassformer.inspection.heads.probes import HeadProbe
from glassformer.inspection.heads.role_scores import RoleScore
from glassformer.inspection.heads.roles import SINK
from glassformer.inspection.sites import HeadSite


@dataclass(frozen=True)
class LeftOut:
    """A role that was not scored.

    Attributes:
        part: of which heads: "dec.self", "enc.self", "dec.cross".
        role: its name.
        reason: why not.
    """

    part: str
    role: str
    reason: str


@dataclass(frozen=True)
class HeadReport:
    """One head.

    Attributes:
        head: which.
        roles: role -> verdict.
        numbers: entropy, distance and the like: means over rows.
        importance: how much the loss depends on the head; None where it was not measured.
    """

    head: HeadSite
    roles: dict[str, RoleScore]
    numbers: dict[str, float]
    importance: float | None = None

    @property
    def names(self) -> list[str]:
        """The roles that it has earned, the clearest first."""
        earned = {role: found for role, found in self.roles.items() if found.earned}
        return sorted(earned, key=lambda role: -earned[role].score)

    def facts(self) -> dict[str, Any]:
        """Return the report as a JSON-serializable dict."""
        site = self.head.site
        return {
            "name": str(self.head),
            "stack": site.stack,
            "part": site.part,
            "layer": site.layer,
            "head": self.head.head,
            "is": self.names,
            "roles": {r: asdict(s) for r, s in self.roles.items()},
            "numbers": self.numbers,
            "importance": self.importance,
        }


@dataclass(frozen=True, eq=False)
class HeadSurvey:
    """The report on all heads of a model.

    Attributes:
        heads: in the order in which they run.
        probes: the texts on which they were looked at.
        left_out: roles that are not possible, or could not be measured.
        notes: what else a person should know.
    """

    heads: list[HeadReport]
    probes: tuple[HeadProbe, ...]
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        from glassformer.inspection.heads.table import table_lines  # it imports this module

        return "\n".join(table_lines(self, self.heads))

    @property
    def sinks(self) -> float | None:
        """The share of self-attention heads of the last stack that are sinks: Sink_1 of Gu et al. 2025, ε = 0.3.

        They measure on 64 tokens; shorter texts are measured whole. None without text.
        """
        stack = self.heads[-1].head.site.stack if self.heads else ""
        weights = [
            found.numbers["first_of_64"]
            for found in self.heads
            if found.head.site.stack == stack and "first_of_64" in found.numbers
        ]
        return sum(weight > SINK for weight in weights) / len(weights) if weights else None

    def with_importance(self, importance: Mapping[str, float]) -> HeadSurvey:
        """Return the same report with how much the loss depends on each head, by the head's name."""
        heads = [replace(found, importance=importance.get(str(found.head))) for found in self.heads]
        return replace(self, heads=heads)

    def facts(self) -> dict[str, Any]:
        """Return the report as a JSON-serializable dict."""
        return {
            "heads": [found.facts() for found in self.heads],
            "sink_share": self.sinks,
            "probes": {probe.name: probe.words for probe in self.probes},
            "left_out": [asdict(each) for each in self.left_out],
            "notes": list(self.notes),
        }
