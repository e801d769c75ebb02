"""`loss.svg`: the curves of a run, drawn without any plotting library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

Curve = Sequence[tuple[int, float]]
WIDTH = 720
HEIGHT = 400
LEFT = 64
RIGHT = 120
TOP = 40
BOTTOM = 48


def loss_svg(training: Curve, validation: Curve, title: str, floor: float | None = None) -> str:
    """An SVG document of training and validation loss (nats per token) over steps.

    Args:
        training, validation: (step, loss) pairs in order.
        title: above the picture.
        floor: the text's true entropy, drawn as a line where it is known.
    """
    points = [pair for pair in (*training, *validation) if math.isfinite(pair[1])]
    steps = [step for step, _ in points] or [0]
    losses = [loss for _, loss in points] or [0.0]
    if floor is not None:
        losses.append(floor)
    low = min(losses)
    high = max(losses)
    last = max(1, *steps)
    margin = 0.05 * (high - low)
    low = low - margin - 1e-9
    high = high + margin + 1e-9

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def y(loss: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / (high - low)

    parts = [_frame(title)]
    for value in _ticks(low, high):
        parts.append(f'<path class="grid" d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in (tick for tick in _ticks(0, last) if tick == round(tick)):
        parts.append(f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:,.0f}</text>')
    for name, curve in (("training", training), ("validation", validation)):
        shown = [(step, loss) for step, loss in curve if math.isfinite(loss)]
        if shown:
            path = "L".join(f"{x(step):.1f} {y(loss):.1f}" for step, loss in shown)
            parts.append(f'<path class="{name}" d="M{path}"/>')
        if name == "validation" and len(shown) <= 60:  # the first alone would make no line
            parts += [f'<circle cx="{x(step):.1f}" cy="{y(loss):.1f}" r="3"/>' for step, loss in shown]
    labels = [(name, curve[-1][1]) for name, curve in (("training", training), ("validation", validation)) if curve]
    if floor is not None:
        parts.append(f'<path class="floor" d="M{LEFT} {y(floor):.1f}H{WIDTH - RIGHT}"/>')
        labels.append(("true entropy", floor))
    parts += _labels([(name, value, y(value)) for name, value in labels if math.isfinite(value)])
    return "\n".join([*parts, "</svg>\n"])


def _frame(title: str) -> str:
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">
<title>{escape(title)}</title>
<style>
text {{ font: 12px system-ui, sans-serif; fill: #444 }} .title {{ font-size: 15px; fill: #111 }}
path {{ fill: none }} path.grid {{ stroke: #ddd }} path.training {{ stroke: #8fb3d9; stroke-width: 1.5 }}
path.validation {{ stroke: #1f5fa8; stroke-width: 2.5 }} path.floor {{ stroke: #b3541e; stroke-dasharray: 6 4 }}
circle, text.validation {{ fill: #1f5fa8 }} text.training {{ fill: #5a86b5 }} text.floor {{ fill: #b3541e }}
</style>
<rect width="100%" height="100%" fill="#fff"/>
<text class="title" x="{LEFT}" y="24">{escape(title)}</text>
<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">step</text>
<text transform="translate(16 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">loss (nats per token)</text>"""


def _labels(items: list[tuple[str, float, float]]) -> list[str]:
    """Names and last values at the right end of the curves, pushed apart so that none hides another."""
    items = sorted(items, key=lambda item: item[2])
    gap = 30
    heights = [height for _, _, height in items]
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + gap)
    limit: float = HEIGHT - BOTTOM - 13  # the value under the last name still stands above the axis
    for i in reversed(range(len(heights))):
        heights[i] = min(heights[i], limit)
        limit = heights[i] - gap
    parts = []
    for (name, value, _), height in zip(items, heights, strict=True):
        kind = "floor" if name == "true entropy" else name
        parts.append(f'<text class="{kind}" x="{WIDTH - RIGHT + 8}" y="{height:.1f}">{name}</text>')
        parts.append(f'<text x="{WIDTH - RIGHT + 8}" y="{height + 13:.1f}">{value:.3f}</text>')
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers between two others."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
