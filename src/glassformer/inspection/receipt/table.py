"""Terminal text of a receipt."""

from __future__ import annotations

from collections.abc import Sequence

from glassformer.base.config import LABELLED
from glassformer.base.wording import counted
from glassformer.inspection.receipt.draw import Draw, RaceEntry, SamplingStage
from glassformer.inspection.receipt.naming import in_quotes
from glassformer.inspection.receipt.parts import CROSS, LogitPart
from glassformer.inspection.receipt.receipt import Receipt

BAR = 24  # characters of the longest bar
SOURCES = 6  # maximum number of tokens in a list of contributions by token
SHOWN = 5  # maximum number of tokens whose probabilities after each filter are shown


def table(receipt: Receipt, top: int = 12) -> str:
    """Format the receipt as text.

    Args:
        receipt: the receipt.
        top: maximum number of parts to list one by one; the others are summed up in one line.
    """
    return "\n".join(
        [
            *_heading_lines(receipt),
            "",
            *_part_lines(receipt, top),
            "",
            *_source_lines(receipt),
            "",
            *_draw_lines(receipt),
        ]
    )


def _heading_lines(receipt: Receipt) -> list[str]:
    prediction = receipt.prediction
    chosen = receipt.prediction.draw.token
    what = "label" if receipt.config.train.task in LABELLED else "token"
    lines = [f"{what} {_quoted(receipt, receipt.token)}: logit {receipt.logit:.6f}"]
    if receipt.against is not None:
        pair = f"{_quoted(receipt, receipt.token)} against {_quoted(receipt, receipt.against)}"
        lines = [f"{what} {pair}: difference of their logits {receipt.logit:.6f}"]
    if receipt.token != chosen:
        lines.append(f"the model itself chooses {_quoted(receipt, chosen)}")
    if prediction.unread:
        unread = counted(prediction.unread, "tokens of the text are", "token of the text is")
        lines.append(f"{unread} not read: the model reads at most {receipt.config.model.context:,}")
    return lines


def _part_lines(receipt: Receipt, top: int) -> list[str]:
    ranked = receipt.ranked()
    listed = ranked[:top]
    others = ranked[top:]
    width = max(len(part.name) for part, _ in listed)
    largest = abs(listed[0][0].value) or 1.0
    lines = [f"{'part':<{width}}  {'value':>10}   share"]
    for part, fraction in listed:
        bar = "█" * round(BAR * abs(part.value) / largest)
        row = f"{part.name:<{width}}  {part.value:>+10.4f}  {fraction:>6.1%}  {bar:<{BAR}}{_main_source(receipt, part)}"
        lines.append(row.rstrip())
    if others:
        other_value = sum(part.value for part, _ in others)
        fraction = sum(fraction for _, fraction in others)
        lines.append(f"{counted(len(others), 'others'):<{width}}  {other_value:>+10.4f}  {fraction:>6.1%}")
    logit_name = "logit" if receipt.against is None else "difference of logits"
    difference = receipt.total - receipt.logit
    return [*lines, f"sum of parts {receipt.total:.6f} = {logit_name} {receipt.logit:.6f}, difference {difference:.1e}"]


def _main_source(receipt: Receipt, part: LogitPart) -> str:
    """Return a note on the token that contributes most to a head's part of the logit; "" for other parts."""
    if part.head is None or part.sources is None:
        return ""
    value, position = max(
        ((value, position) for position, value in enumerate(part.sources)), key=lambda each: abs(each[0])
    )
    texts = receipt.source if part.kind == CROSS and receipt.source is not None else receipt.read
    return f"  most from {in_quotes(texts[position])} at {position}: {value:+.4f}"


def _source_lines(receipt: Receipt) -> list[str]:
    """Return the lines on the contributions that come from each token, through heads and embeddings."""
    lines = _contribution_lines(
        "contributions by token, through all heads and embeddings", receipt.by_source(), receipt.read
    )
    if receipt.source is not None:
        title = "contributions by token of the source, through all cross-attention heads"
        lines += _contribution_lines(title, receipt.by_source(cross=True), receipt.source)
    without_source = sum(part.value for part in receipt.parts if part.sources is None)
    return [*lines, f"{without_source:>+10.4f}  feed-forward layers and biases, which have no source token"]


def _contribution_lines(title: str, values: Sequence[float], texts: Sequence[str]) -> list[str]:
    order = sorted(range(len(values)), key=lambda position: -abs(values[position]))[:SOURCES]
    others = len(values) - len(order)
    other_value = sum(values) - sum(values[position] for position in order)
    return [
        title,
        *(f"{values[position]:>+10.4f}  {in_quotes(texts[position])} at {position}" for position in order),
        *([f"{other_value:>+10.4f}  {counted(others, 'others')}"] if others else []),
    ]


def _draw_lines(receipt: Receipt) -> list[str]:
    draw = receipt.prediction.draw
    likeliest = draw.stages[0].probabilities.sort(descending=True, stable=True).indices[:SHOWN].tolist()
    named_tokens = [draw.token, receipt.token, *([] if receipt.against is None else [receipt.against])]
    columns = list(dict.fromkeys([*named_tokens, *likeliest]))[:SHOWN]
    heads = [in_quotes(receipt.names(token)) for token in columns]
    widths = [max(9, len(head)) for head in heads]
    lines = [f"{'probability':<26}" + "".join(f"  {h:>{w}}" for h, w in zip(heads, widths, strict=True)) + "    left"]
    for stage in draw.stages:
        cells = [f"{float(stage.probabilities[token]):.4%}" for token in columns]
        row = "".join(f"  {cell:>{w}}" for cell, w in zip(cells, widths, strict=True))
        lines.append(f"{_stage_name(stage):<26}{row}  {stage.left:>6,}")
    return [*lines, *_choice_lines(receipt, draw)]


def _stage_name(stage: SamplingStage) -> str:
    if stage.filter is None:
        return "no filter"
    name = stage.filter.replace("_", " ")
    return name if stage.setting is None else f"{name} {stage.setting:g}"


def _choice_lines(receipt: Receipt, draw: Draw) -> list[str]:
    if draw.how == "likeliest":
        return [f"chosen: {_quoted(receipt, draw.token)}, the likeliest; nothing is random"]
    if draw.how == "beam search":
        return [f"chosen: {_quoted(receipt, draw.token)}, by beam search for the likeliest text; nothing is random"]
    named_tokens = [receipt.token, *([] if receipt.against is None else [receipt.against])]
    runners = dict.fromkeys([*draw.runners[:2], *(runner for token in named_tokens if (runner := draw.runner(token)))])
    return [
        f"sampled with seed {draw.seed}, generated token {draw.step}: each token draws an exponential waiting time, "
        "its random number / its probability; the shortest wins",
        *(_race_line(receipt, draw, runner) for runner in runners),
    ]


def _race_line(receipt: Receipt, draw: Draw, runner: RaceEntry) -> str:
    rank = draw.runners.index(runner) + 1
    first = ": sampled" if rank == 1 else ""
    name = in_quotes(receipt.names(runner.token))
    times = f"{runner.number:.6g} / {runner.probability:.6g}"
    return f"{rank:>4,}.  {name} arrives after {times} = {runner.arrival:.6g}{first}"


def _quoted(receipt: Receipt, token: int) -> str:
    return f"{in_quotes(receipt.names(token))} ({token})"
