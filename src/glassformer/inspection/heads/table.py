"""Text report on attention heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from glassformer.base.wording import counted
from glassformer.inspection.heads.report import HeadReport, HeadSurvey
from glassformer.inspection.heads.role_scores import RoleScore

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
