"""Text report on attention heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from glassformer.inspection.heads.report import HeadReport, HeadSurvey
from glassformer.inspection.heads.role_scores import RoleScore

NUMBERS = {
    "entropy": "entropy of the attention weights, in nats",
    "entropy_share": "entropy relative to uniform attention",
    "confidence": "largest weight on a token that is not special, mean over rows",
    "distance": "distance to the key in tokens, weighted by attention",
    "distance_share": "distance relative to uniform attention",
    "divergence": "Jensen-Shannon divergence of texts at equal positions, in nats; 0: depends on positions only",
    "coverage": "fraction of source tokens with a total weight of at least 0.5",
    "first_of_64": "weight on the first token, mean over the first 64 rows",
    "hidden_weight": "largest weight on masked keys, such as padding or later tokens: must be 0",
}

NO_ROLE = "no role is earned"


def table_lines(report: HeadSurvey, heads: Sequence[HeadReport]) -> Iterator[str]:
    """Yield a line for each head, then the probes and the roles without a score."""
    ranked = any(found.importance is not None for found in report.heads)
    width = max(len(str(found.head)) for found in heads)
    yield f"{'head':<{width}}  {'entropy':>7}  {'distance':>8}  {'importance  ' if ranked else ''}is"
    for found in heads:
        nats, far = (found.numbers.get(name) for name in ("entropy", "distance"))
        importance = f"{_cell(found.importance, 10, 4)}  " if ranked else ""
        yield f"{found.head!s:<{width}}  {_cell(nats, 7)}  {_cell(far, 8)}  {importance}{_is(found) or _nearest(found)}"
    yield ""
    if not all(found.names for found in heads):
        yield f"-: {NO_ROLE}; in brackets the nearest"
    for probe in report.probes:
        yield f"{probe.name}: {probe.words}"
    if report.sinks is not None:
        yield f"sinks: {report.sinks:.0%} of the last stack's self-attention heads (mean weight above 0.3 on token 0)"
    for part in dict.fromkeys(each.part for each in report.left_out):
        reasons: dict[str, list[str]] = {}
        for each in report.left_out:
            if each.part == part:
                reasons.setdefault(each.reason, []).append(each.role)
        for reason, roles in reasons.items():
            yield f"left out of {part}: {', '.join(map(_plain, roles))} ({reason})"
    yield from report.notes


def head_lines(report: HeadSurvey, found: HeadReport) -> Iterator[str]:
    """Yield the lines of a text report on one head."""
    yield f"{found.head} is {_is(found)}" if found.names else f"{found.head}: {NO_ROLE}"
    yield ""
    yield f"{'role':<24}{'score':>8}{'chance':>8}{'lift':>8}{'95 %':>18}{'needs':>8}  measured on"
    for role, scored in sorted(found.roles.items(), key=lambda item: (not item[1].earned, -item[1].score)):
        ends = "" if scored.interval is None else f"{scored.interval[0]:.3f} to {scored.interval[1]:.3f}"
        rows = f"{scored.probe}, {scored.rows:,} rows" if scored.rows else scored.probe
        detail = "".join(f", {name} {value:+g}" for name, value in scored.detail.items() if name == "offset")
        yield (
            f"{_plain(role):<24}{scored.score:>8.3f}{_cell(scored.chance, 8, 3)}{_cell(scored.lift, 8, 1)}{ends:>18}"
            f"{scored.threshold:>8.2f}  {rows}{detail}"
        )
    yield ""
    for name, value in found.numbers.items():
        yield f"{_plain(name):<24}{value:>8.3f}  {NUMBERS[name]}"
    if found.importance is not None:
        yield f"{'importance':<24}{found.importance:>8.4f}"
    part = f"{found.head.site.stack}.{found.head.site.part}"
    for each in report.left_out:
        if each.part == part:
            yield f"left out: {_plain(each.role)} ({each.reason})"


def _is(found: HeadReport) -> str:
    return ", ".join(_named(role, found.roles[role]) for role in found.names)


def _nearest(found: HeadReport) -> str:
    """Return the role whose threshold a head without a role comes closest to, as text; "-" without scores."""
    if not found.roles:
        return "-"
    role = max(found.roles, key=lambda name: found.roles[name].score / found.roles[name].threshold)
    scored = found.roles[role]
    missing = f"needs {scored.threshold:.2f}" if scored.score < scored.threshold else "near chance or not copying"
    return f"- ({_named(role, scored)}, {missing})"


def _named(role: str, scored: RoleScore) -> str:
    offset = scored.detail.get("offset")
    where = "" if offset is None else f" {offset:+.0f}"
    return f"{_plain(role)}{where} {scored.score:.2f}"


def _plain(role: str) -> str:
    return role.replace("_", " ")


def _cell(value: float | None, width: int, digits: int = 2) -> str:
    return f"{'':>{width}}" if value is None else f"{value:>{width}.{digits}f}"
