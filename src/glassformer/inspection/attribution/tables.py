"""Format attributions as lines for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from glassformer.base.wording import counted
from glassformer.inspection.attribution.agreement import LEAST, RankAgreement
from glassformer.inspection.attribution.case import Output
from glassformer.inspection.attribution.grid import PatchGrid
from glassformer.inspection.attribution.lens import Lens
from glassformer.inspection.attribution.logits import LogitSplit, Neurons
from glassformer.inspection.receipt.parts import CROSS, LogitPart

BAR = 20  # characters of the longest bar
CELL = 14  # characters of the widest token
SHOWN = 8  # maximum number of layers with a column

Name = Callable[[int], str]


def lens_grid_lines(lens: Lens, labels: Sequence[str], name: Name) -> Iterator[str]:
    """Yield a line for each output, with the likeliest token and its probability in a column for each layer.

    At most `SHOWN` layers, counting the embedding, have a column. Further lines have the mean loss, if an answer is
    known, the fraction of settled outputs (see `Lens.settled`), and the number of shown columns if some are not shown.
    """
    layers = _layers_to_show(len(lens.top))
    cells = [
        [
            f"{_cut(name(int(lens.top[layer, column, 0])))} {float(lens.probabilities[layer, column, 0]):>4.0%}"
            for layer in layers
        ]
        for column in range(len(lens.outputs))
    ]
    widths = [max(len(row[n]) for row in [*cells, ["layer 0"] * len(layers)]) for n in range(len(layers))]
    titles = [_output_label(output, labels) for output in lens.outputs]
    title_width = max(*map(len, titles), len("settled"))
    heads = ["embedded" if layer == 0 else f"layer {layer - 1}" for layer in layers]
    widths = [max(width, len(head)) for width, head in zip(widths, heads, strict=True)]
    yield (
        " " * title_width
        + "".join(f"  {head:<{width}}" for head, width in zip(heads, widths, strict=True))
        + "  answer"
    )
    any_known = any(output.known for output in lens.outputs)
    for column, (output, title, row) in enumerate(zip(lens.outputs, titles, cells, strict=True)):
        line = "".join(f"  {cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        where = "  not in the text" if any_known and not output.known else ""
        yield f"{title:<{title_width}}{line}  {_cut(name(output.answer))}, rank {int(lens.ranks[-1, column]):,}{where}"
    curve = lens.curve
    for title, values, form in (("loss", curve, ".4f"), ("settled", lens.settled, ".0%")):
        if values is not None:
            formatted = "".join(f"  {format(values[n], form):<{w}}" for n, w in zip(layers, widths, strict=True))
            yield f"{title:<{title_width}}{formatted}".rstrip()
    if len(layers) < len(lens.top):
        yield f"{len(layers)} of {len(lens.top)} columns are shown; --json has all"


def lens_position_lines(lens: Lens, column: int, name: Name) -> Iterator[str]:
    """Yield a line for each layer with the likeliest tokens and the answer's rank, for one output."""
    answer = lens.outputs[column].answer
    yield f"{'after':<10}  {'rank':>6}  {'nats':>7}  of {_cut(name(answer))}; the likeliest"
    for layer in range(len(lens.top)):
        top_tokens = zip(lens.top[layer, column].tolist(), lens.probabilities[layer, column].tolist(), strict=True)
        likeliest = "  ".join(f"{_cut(name(id))} {probability:.1%}" for id, probability in top_tokens)
        after = "embedding" if layer == 0 else f"layer {layer - 1}"
        rank = int(lens.ranks[layer, column])
        loss = float(lens.losses[layer, column])
        yield f"{after:<10}  {rank:>6,}  {loss:>7.4f}  {likeliest}"


def split_grid_lines(split: LogitSplit, labels: Sequence[str], name: Name) -> Iterator[str]:
    """Yield a line for each output, with a column for each group of parts and one for their sum."""
    groups = split.grouped()
    widths = [max(9, len(group)) for group in groups]
    titles = [f"{_output_label(output, labels)} -> {_cut(name(output.answer))}" for output in split.outputs]
    title_width = max(map(len, titles))
    heads = "".join(f"  {group:>{width}}" for group, width in zip(groups, widths, strict=True))
    yield f"{'':<{title_width}}{heads}  {'sum':>9}  {'logit':>9}"
    for column, title in enumerate(titles):
        cells = "".join(f"  {float(v[column]):>+{w}.4f}" for v, w in zip(groups.values(), widths, strict=True))
        total = float(split.values[:, column].sum())
        logit = float(split.logits[column])
        yield f"{title:<{title_width}}{cells}  {total:>+9.4f}  {logit:>+9.4f}"
    yield f"largest difference between a sum and its logit: {split.error:.1e}"


def split_position_lines(
    parts: Sequence[LogitPart], row: Sequence[str], source: Sequence[str], top: int
) -> Iterator[str]:
    """Yield a line for each of the `top` parts that contribute most to one logit, and lines for the rest and the sum.

    The line of a head also names the token that contributes most. Contributions are compared by absolute value.
    """
    order = sorted(parts, key=lambda part: -abs(part.value))
    width = max(len(part.name) for part in order[:top])
    largest = abs(order[0].value) or 1.0
    for part in order[:top]:
        main_source = ""
        if part.sources is not None and part.head is not None:
            position = max(range(len(part.sources)), key=lambda n: abs(part.sources[n]) if part.sources else 0.0)
            labels = source if part.kind == CROSS else row
            main_source = f"most from {_position_label(labels, position)}: {part.sources[position]:+.4f}"
        bar = "█" * round(BAR * abs(part.value) / largest)
        yield f"{part.name:<{width}}  {part.value:>+9.4f}  {bar:<{BAR}}  {main_source}".rstrip()
    if order[top:]:
        yield f"{'others':<{width}}  {sum(part.value for part in order[top:]):>+9.4f}"
    yield f"{'sum':<{width}}  {sum(part.value for part in parts):>+9.4f}"


def neuron_lines(neurons: Neurons, top: int) -> Iterator[str]:
    """Yield a line for the total contribution of a feed-forward layer, then lines for its summands.

    Each of the `top` neurons with the largest absolute contributions has a line; the other neurons share a line, and
    the bias has a line if it contributes.
    """
    order = neurons.values.abs().argsort(descending=True).tolist()
    bias = " and a bias" if neurons.bias else ""
    yield f"layer {neurons.layer} feed-forward, {len(order):,} neurons{bias}: {neurons.total:+.4f}"
    for number in order[:top]:
        yield f"{f'neuron {number}':<14}  {float(neurons.values[number]):>+9.4f}"
    if order[top:]:
        yield f"{counted(len(order) - top, 'others'):<14}  {float(neurons.values[order[top:]].sum()):>+9.4f}"
    if neurons.bias:
        yield f"{'bias':<14}  {neurons.bias:>+9.4f}"


def token_lines(columns: dict[str, Tensor], labels: Sequence[str], form: str = "9.4f") -> Iterator[str]:
    """Yield a line for each token, with a column for each measure and a bar for the first measure."""
    first = next(iter(columns.values()))
    label_width = max(len(_position_label(labels, n)) for n in range(len(labels)))
    largest = float(first.abs().max()) or 1.0
    widths = [max(9, len(title)) for title in columns]
    yield f"{'':<{label_width}}" + "".join(f"  {title:>{width}}" for title, width in zip(columns, widths, strict=True))
    for position in range(len(labels)):
        cells = [_format_value(float(values[position]), form) for values in columns.values()]
        row = "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        bar = "█" * round(BAR * abs(float(first[position])) / largest) if float(cells[0]) else ""
        yield f"{_position_label(labels, position):<{label_width}}{row}  {bar}".rstrip()


def agreement_lines(agreement: RankAgreement) -> Iterator[str]:
    """Yield a line for each layer with its correlations with occlusion.

    A further line has the correlation of the last layer's attention with the rollout.
    """
    names = {"own": "tokens of the row", "source": "tokens of the source"}
    for side in dict.fromkeys(row.side for row in agreement.rows):
        rows = [row for row in agreement.rows if row.side == side]
        yield f"Spearman's correlation with occlusion, {names[side]}"
        yield f"{'layer':<8}{'attention':>10}{'rollout':>10}{'outputs':>10}"
        for layer in dict.fromkeys(row.layer for row in rows):
            cells = {row.measure: row.correlation for row in rows if row.layer == layer}
            count = max(row.outputs for row in rows if row.layer == layer)
            yield f"{layer:<8}{_correlation_cell(cells['attention'])}{_correlation_cell(cells['rollout'])}{count:>10,}"
        yield f"attention of the last layer and rollout:{_correlation_cell(agreement.attention_and_rollout[side])}"
    yield f"mean over outputs with {LEAST} visible tokens or more; -: no such outputs, all values equal, or no heads"


def grid_lines(grid: PatchGrid, clean: Sequence[str], corrupt: Sequence[str]) -> Iterator[str]:
    """Yield a line for each patched position, with a column for each layer.

    Two further lines have the values with no position patched and with all positions patched.

    For heads, yield a line for each layer, with a column for each head.
    """
    if grid.part == "heads":
        heads = range(max(max(numbers) for numbers in grid.columns) + 1)
        yield f"{'head':<12}" + "".join(f"{head:>8}" for head in heads)
        for site, numbers, values in zip(grid.sites, grid.columns, grid.values, strict=True):
            value_of_head = dict(zip(numbers, values, strict=True))
            cells = (
                _format_value(value_of_head[head], ">8.3f") if head in value_of_head else f"{'-':>8}" for head in heads
            )
            yield f"{site:<12}{''.join(cells)}"
        return
    position_labels = [
        _position_label(clean, n) if a == b else f"{_position_label(clean, n)} for {_cut(b)}"
        for n, (a, b) in enumerate(zip(clean, corrupt, strict=True))
    ]
    label_width = max([*map(len, position_labels), len("none patched")])
    widths = [max(8, len(site) + 2) for site in grid.sites]
    yield f"{'':<{label_width}}" + "".join(f"{site:>{width}}" for site, width in zip(grid.sites, widths, strict=True))
    for position, label in enumerate(position_labels):
        cells = (
            _format_value(values[position], f">{width}.3f") for values, width in zip(grid.values, widths, strict=True)
        )
        yield f"{label:<{label_width}}{''.join(cells)}"
    for title, row in (("none patched", grid.nothing), ("all patched", grid.everything)):
        yield f"{title:<{label_width}}" + "".join(
            _format_value(value, f">{width}.3f") for value, width in zip(row, widths, strict=True)
        )


def _layers_to_show(count: int) -> list[int]:
    """Return at most `SHOWN` evenly spaced numbers below `count`, including the first and the last."""
    return sorted({round(n * (count - 1) / (min(count, SHOWN) - 1)) for n in range(min(count, SHOWN))})


def _output_label(output: Output, labels: Sequence[str]) -> str:
    """Return the label of the position, or positions, that an output reads."""
    return "all positions" if len(output.reads) > 1 else _position_label(labels, output.place)


def _format_value(value: float, number_format: str) -> str:
    """Format a number without the minus sign of a value that rounds to zero."""
    text = format(value, number_format)
    return text if float(text) else format(0.0, number_format)


def _position_label(labels: Sequence[str], position: int) -> str:
    return f"{position:>3} {_cut(labels[position])}"


def _cut(text: str) -> str:
    return text if len(text) <= CELL else f"{text[: CELL - 1]}…"


def _correlation_cell(value: float | None) -> str:
    return f"{'-':>10}" if value is None else f"{value:>10.2f}"
