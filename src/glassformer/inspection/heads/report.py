"""Report on attention heads: roles and statistics of each head, probes, and reasons for roles without a score."""

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
    """Role that was not scored.

    Attributes:
        part: attention layers concerned: "dec.self", "enc.self" or "dec.cross".
        role: name of the role.
        reason: reason why the role was not scored.
    """

    part: str
    role: str
    reason: str


@dataclass(frozen=True)
class HeadReport:
    """Report on one head.

    Attributes:
        head: name of the head.
        roles: role -> score of the head in this role, for each measured role.
        statistics: statistics by name, such as entropy and attention distance; `table.NUMBERS` describes them.
        importance: importance of the head for the loss, see `pruning.importance`; None if it was not measured.
    """

    head: HeadSite
    roles: dict[str, RoleScore]
    statistics: dict[str, float]
    importance: float | None = None

    @property
    def names(self) -> list[str]:
        """Names of the roles that the head has earned, the highest score first."""
        earned = {role: score for role, score in self.roles.items() if score.earned}
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
            "numbers": self.statistics,
            "importance": self.importance,
        }


@dataclass(frozen=True, eq=False)
class HeadSurvey:
    """Report on all heads of a model.

    Attributes:
        heads: report on each head, in order of execution.
        probes: sequences that the heads were measured on.
        left_out: roles that are impossible or could not be measured.
        notes: further remarks for readers.
    """

    heads: list[HeadReport]
    probes: tuple[HeadProbe, ...]
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        from glassformer.inspection.heads.table import table_lines  # a circular import at module level

        return "\n".join(table_lines(self, self.heads))

    @property
    def sinks(self) -> float | None:
        """Fraction of the last stack's self-attention heads that are sinks: Sink_1 of Gu et al. 2025, with ε = 0.3.

        It is measured on the first 64 tokens of each row of the probe "text", as in the paper, or on all tokens of a
        shorter row; None without this probe or without such heads.
        """
        stack = self.heads[-1].head.site.stack if self.heads else ""
        weights = [
            report.statistics["first_of_64"]
            for report in self.heads
            if report.head.site.stack == stack and "first_of_64" in report.statistics
        ]
        return sum(weight > SINK for weight in weights) / len(weights) if weights else None

    def with_importance(self, importance: Mapping[str, float]) -> HeadSurvey:
        """Return a copy of the report with the importance of each head; `importance` maps names of heads to values."""
        heads = [replace(report, importance=importance.get(str(report.head))) for report in self.heads]
        return replace(self, heads=heads)

    def facts(self) -> dict[str, Any]:
        """Return the report as a JSON-serializable dict."""
        return {
            "heads": [report.facts() for report in self.heads],
            "sink_share": self.sinks,
            "probes": {probe.name: probe.description for probe in self.probes},
            "left_out": [asdict(each) for each in self.left_out],
            "notes": list(self.notes),
        }
