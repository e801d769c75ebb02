"""Report on attention heads: roles and statistics of each head, probes, and reasons for roles without a score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from glassformer.base.wording import counted
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
        statistics: statistics by name, such as entropy and attention distance; `NUMBERS` describes them.
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


NUMBERS = {
    "entropy": "entropy of the attention weights, in nats",
    "entropy_share": "entropy relative to uniform attention",
    "confidence": "largest weight on a token that is not special, mean over queries",
    "distance": "distance to the key in tokens, weighted by attention",
    "distance_share": "distance relative to uniform attention",
    "divergence": "Jensen-Shannon divergence of the weights in two texts at the same position, in nats; "
    "0: depends on positions only",
    "coverage": "fraction of source tokens with a total weight of at least 0.5",
    "first_of_64": "weight on the first token, mean over the first 64 queries",
    "hidden_weight": "largest weight on masked keys, such as padding or later tokens: must be 0",
}

NO_ROLE = "no role is earned"


def table_lines(report: HeadSurvey, heads: Sequence[HeadReport]) -> Iterator[str]:
    """Yield a line for each head, then the probes and the roles without a score."""
    ranked = any(head_report.importance is not None for head_report in report.heads)
    width = max(len(str(head_report.head)) for head_report in heads)
    yield f"{'head':<{width}}  {'entropy':>7}  {'distance':>8}  {'importance  ' if ranked else ''}is"
    for head_report in heads:
        nats, far = (head_report.statistics.get(name) for name in ("entropy", "distance"))
        importance = f"{_cell(head_report.importance, 10, 4)}  " if ranked else ""
        role_text = _earned_roles(head_report) or _nearest_role(head_report)
        yield f"{head_report.head!s:<{width}}  {_cell(nats, 7)}  {_cell(far, 8)}  {importance}{role_text}"
    yield ""
    if not all(head_report.names for head_report in heads):
        yield f"-: {NO_ROLE}; the nearest role is in brackets"
    if ranked:
        yield "importance: gradient estimate of the effect on the loss, in nats per target; use it to rank heads"
    for probe in report.probes:
        yield f"{probe.name}: {probe.description}"
    if report.sinks is not None:
        yield f"sinks: {report.sinks:.0%} of the last stack's self-attention heads (mean weight above 0.3 on token 0)"
    for part in dict.fromkeys(each.part for each in report.left_out):
        reasons: dict[str, list[str]] = {}
        for left_out in report.left_out:
            if left_out.part == part:
                reasons.setdefault(left_out.reason, []).append(left_out.role)
        for reason, roles in reasons.items():
            yield f"left out of {part}: {', '.join(map(display_name, roles))} ({reason})"
    yield from report.notes


def head_lines(report: HeadSurvey, head_report: HeadReport) -> Iterator[str]:
    """Yield the lines of a text report on one head."""
    head = head_report.head
    yield f"{head} is {_earned_roles(head_report)}" if head_report.names else f"{head}: {NO_ROLE}"
    yield ""
    yield f"{'role':<24}{'score':>8}{'chance':>8}{'lift':>8}{'95 %':>18}{'needs':>8}  measured on"
    for role, role_score in sorted(head_report.roles.items(), key=lambda item: (not item[1].earned, -item[1].score)):
        interval = (
            "" if role_score.interval is None else f"{role_score.interval[0]:.3f} to {role_score.interval[1]:.3f}"
        )
        nouns = ("sequences", "sequence") if role == "monotone" else ("queries", "query")
        data = f"{role_score.probe}, {counted(role_score.rows, *nouns)}" if role_score.rows else role_score.probe
        detail = "".join(f", {name} {value:+g}" for name, value in role_score.detail.items() if name == "offset")
        yield (
            f"{display_name(role):<24}{role_score.score:>8.3f}{_cell(role_score.chance, 8, 3)}"
            f"{_cell(role_score.lift, 8, 1)}{interval:>18}"
            f"{role_score.threshold:>8.2f}  {data}{detail}"
        )
    yield ""
    for name, value in head_report.statistics.items():
        yield f"{display_name(name):<24}{value:>8.3f}  {NUMBERS[name]}"
    if head_report.importance is not None:
        yield f"{'importance':<24}{head_report.importance:>8.4f}"
    part = f"{head.site.stack}.{head.site.part}"
    for left_out in report.left_out:
        if left_out.part == part:
            yield f"left out: {display_name(left_out.role)} ({left_out.reason})"


def _earned_roles(head_report: HeadReport) -> str:
    return ", ".join(_role_text(role, head_report.roles[role]) for role in head_report.names)


def _nearest_role(head_report: HeadReport) -> str:
    """Return the role whose threshold a head without a role comes closest to, as text; "-" if it has no scores."""
    if not head_report.roles:
        return "-"
    role = max(head_report.roles, key=lambda name: head_report.roles[name].score / head_report.roles[name].threshold)
    role_score = head_report.roles[role]
    reason = (
        f"needs {role_score.threshold:.2f}" if role_score.score < role_score.threshold else "near chance or not copying"
    )
    return f"- ({_role_text(role, role_score)}, {reason})"


def _role_text(role: str, role_score: RoleScore) -> str:
    offset = role_score.detail.get("offset")
    offset_text = "" if offset is None else f" {offset:+.0f}"
    return f"{display_name(role)}{offset_text} {role_score.score:.2f}"


def display_name(role: str) -> str:
    """Return the name of a role or statistic, with spaces instead of underscores."""
    return role.replace("_", " ")


def _cell(value: float | None, width: int, digits: int = 2) -> str:
    return f"{'':>{width}}" if value is None else f"{value:>{width}.{digits}f}"
