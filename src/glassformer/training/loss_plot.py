"""Draw the loss curves of a run as SVG (`loss.svg`), without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from glassformer.base.svg import document, element, line, text, ticks

Curve = Sequence[tuple[int, float]]
WIDTH = 720
HEIGHT = 400
LEFT = 64
RIGHT = 120
TOP = 40
BOTTOM = 48
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #444 } .title { font-size: 15px; fill: #111 }
path { fill: none } path.grid { stroke: #ddd } path.training { stroke: #8fb3d9; stroke-width: 1.5 }
path.validation { stroke: #1f5fa8; stroke-width: 2.5 } path.floor { stroke: #b3541e; stroke-dasharray: 6 4 }
circle, text.validation { fill: #1f5fa8 } text.training { fill: #5a86b5 } text.floor { fill: #b3541e }
"""


def loss_svg(training: Curve, validation: Curve, title: str, entropy: float | None = None) -> str:
    """Return an SVG document of training and validation loss (in nats) over steps.

    Args:
        training, validation: (step, loss) pairs in order of steps.
        title: title of the plot.
        entropy: true entropy of the text in nats per token, drawn as a horizontal line; None: no line.
    """
    points = [pair for pair in (*training, *validation) if math.isfinite(pair[1])]
    steps = [step for step, _ in points] or [0]
    losses = [loss for _, loss in points] or [0.0]
    if entropy is not None:
        losses.append(entropy)
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

    parts = [
        element("title", escape(title)),
        element("style", STYLE),
        element("rect", width="100%", height="100%", fill="#fff"),
    ]
    parts.append(text(title, class_="title", x=LEFT, y=24))
    parts.append(text("step", x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 10, text_anchor="middle"))
    upright = f"translate(16 {HEIGHT / 2:g}) rotate(-90)"
    parts.append(text("loss (nats)", transform=upright, text_anchor="middle"))
    for value in ticks(low, high):
        parts.append(line([(LEFT, y(value)), (WIDTH - RIGHT, y(value))], class_="grid"))
        parts.append(text(f"{value:g}", x=LEFT - 8, y=y(value) + 4, text_anchor="end"))
    for value in (tick for tick in ticks(0, last) if tick == round(tick)):
        parts.append(text(f"{value:,.0f}", x=x(value), y=HEIGHT - BOTTOM + 18, text_anchor="middle"))
    for name, curve in (("training", training), ("validation", validation)):
        pixels = [(x(step), y(loss)) for step, loss in curve if math.isfinite(loss)]
        if pixels:
            parts.append(line(pixels, class_=name))
        if name == "validation" and len(pixels) <= 60:  # a single evaluation has no line
            parts += [element("circle", cx=across, cy=down, r=3) for across, down in pixels]
    labels = [(name, curve[-1][1]) for name, curve in (("training", training), ("validation", validation)) if curve]
    if entropy is not None:
        parts.append(line([(LEFT, y(entropy)), (WIDTH - RIGHT, y(entropy))], class_="floor"))
        labels.append(("true entropy", entropy))
    parts += _labels([(name, value, y(value)) for name, value in labels if math.isfinite(value)])
    return document(WIDTH, HEIGHT, title, *parts) + "\n"


def _labels(items: list[tuple[str, float, float]]) -> list[str]:
    """Return SVG elements that label each curve at its right end with its name and last value, without overlap.

    `items` are (name, last value, y coordinate of the last value in pixels).
    """
    items = sorted(items, key=lambda item: item[2])
    gap = 30
    heights = [height for _, _, height in items]
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + gap)
    limit: float = HEIGHT - BOTTOM - 13  # keeps the value under the last name above the axis
    for i in reversed(range(len(heights))):
        heights[i] = min(heights[i], limit)
        limit = heights[i] - gap
    parts = []
    for (name, value, _), height in zip(items, heights, strict=True):
        kind = "floor" if name == "true entropy" else name
        parts.append(text(name, class_=kind, x=WIDTH - RIGHT + 8, y=height))
        parts.append(text(f"{value:.3f}", x=WIDTH - RIGHT + 8, y=height + 13))
    return parts
