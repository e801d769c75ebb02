"""Draw curves and attention maps of the lab as text and as SVG, without third-party libraries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from glassformer.base.svg import document, element, line, text, ticks
from glassformer_course.drawing import SHADES, number
from glassformer_course.lab.evidence import Chart, Map, Point

COLUMNS = 60  # columns of a text chart
LINES = 12  # lines of a text chart
MARKS = "ox"  # characters of the two curves; "#" where they meet
COLOURS = ("#0072b2", "#d55e00")  # distinguishable with any kind of color vision
DASHES = ("", "7 4")
WIDTH = 380  # width and height of a chart's frame in pixels
HEIGHT = 230
LEFT = 56  # margins around the frame in pixels
TOP = 58
BOTTOM = 44
GAP = 36
CELL = 24  # side of a map's cell in pixels
LETTER = 7  # approximate width of a letter in pixels


def chart_text(chart: Chart) -> str:
    """Return a chart as text: o and x for the two curves, # where they meet, - for a horizontal line."""
    left, right, low, high = _axis_ranges(chart)
    grid = [[" "] * COLUMNS for _ in range(LINES)]

    def row(y: float) -> int:
        return round((high - y) / (high - low) * (LINES - 1))

    if chart.level is not None:
        grid[row(chart.level[1])] = ["-"] * COLUMNS
    for mark, points in zip(MARKS, chart.curves.values(), strict=False):
        for column, y in _interpolated_columns(points, left, right):
            cell = grid[row(y)][column]
            grid[row(y)][column] = "#" if cell in MARKS and cell != mark else mark
    names = [f"{mark} {name}" for mark, name in zip(MARKS, chart.curves, strict=False)] + ["# both"]
    names += [] if chart.level is None else [f"- {chart.level[0]} {number(chart.level[1])}"]
    axis_labels = {0: number(high), LINES - 1: number(low)}
    label_width = max(len(text) for text in axis_labels.values())
    lines = [f"{chart.title} ({chart.y})   {'   '.join(names)}"]
    lines += [
        f"{axis_labels.get(row_number, ''):>{label_width}} |{''.join(cells).rstrip()}"
        for row_number, cells in enumerate(grid)
    ]
    lines.append(f"{'':>{label_width}} +{'-' * COLUMNS}")
    lines.append(f"{'':>{label_width}}  {number(left):<8}{chart.x:^{COLUMNS - 16}}{number(right):>8}")
    return "\n".join(line.rstrip() for line in lines)


def map_text(attention_map: Map) -> str:
    """Return a map as text: darker means larger; row sums are on the right, column sums at the bottom."""
    name_width = min(12, max(len(name) for name in attention_map.rows))
    header = "".join(f"{column[:3]:<4}" for column in attention_map.columns)
    lines = [attention_map.title, f"{'':>{name_width}}  {header} sum"]
    for name, row in zip(attention_map.rows, attention_map.weights, strict=True):
        cells = "".join(f"{_shade(weight) * 3} " for weight in row)
        lines.append(f"{name[:name_width]:>{name_width}}  {cells} {sum(row):.2f}")
    sums = [sum(row[column] for row in attention_map.weights) for column in range(len(attention_map.columns))]
    lines.append(f"{'sum':>{name_width}}  " + "".join(f"{total:<4.1f}" for total in sums))
    return "\n".join(line.rstrip() for line in lines)


def charts_svg(charts: Sequence[Chart]) -> str:
    """Return all charts as one SVG, from left to right."""
    chart_width = LEFT + WIDTH
    parts = [_chart_svg(chart, index * (chart_width + GAP)) for index, chart in enumerate(charts)]
    return _document(
        len(charts) * (chart_width + GAP), TOP + HEIGHT + BOTTOM, parts, "; ".join(c.title for c in charts)
    )


def maps_svg(maps: Sequence[Map]) -> str:
    """Return all maps as one SVG, from left to right, with row sums."""
    parts = []
    x = 0
    height = 0
    for attention_map in maps:
        name_width = LETTER * max(len(name) for name in attention_map.rows) + 12
        top = TOP + LETTER * max(len(name) for name in attention_map.columns)
        parts.append(_map_svg(attention_map, x + name_width, top))
        x += (
            max(name_width + len(attention_map.columns) * CELL + 60, LETTER * len(attention_map.title) + name_width)
            + GAP
        )
        height = max(height, top + len(attention_map.rows) * CELL + 16)
    return _document(x, height, parts, "; ".join(attention_map.title for attention_map in maps))


def _document(width: int, height: int, parts: Sequence[str], title: str) -> str:
    """Return an SVG document whose text has the color of the surrounding page, or black without such a page."""
    style: dict[str, str | float] = {"font_family": "sans-serif", "font_size": 12, "fill": "currentColor"}
    return document(width, height, title, *parts, width=width, height=height, **style) + "\n"


def _chart_svg(chart: Chart, x0: int) -> str:
    left, right, low, high = _axis_ranges(chart)
    edge = x0 + LEFT

    def x(value: float) -> float:
        return edge + WIDTH * (value - left) / (right - left)

    def y(value: float) -> float:
        return TOP + HEIGHT * (high - value) / (high - low)

    parts = [text(chart.title, x=edge, y=18, font_size=14, font_weight=600)]
    for tick in ticks(low, high):
        parts.append(line([(edge, y(tick)), (edge + WIDTH, y(tick))], stroke="currentColor", stroke_opacity=0.15))
        parts.append(text(f"{tick:g}", x=edge - 6, y=y(tick) + 4, text_anchor="end"))
    for tick in ticks(left, right):
        parts.append(text(f"{tick:g}", x=x(tick), y=TOP + HEIGHT + 18, text_anchor="middle"))
    parts.append(text(chart.x, x=edge + WIDTH / 2, y=TOP + HEIGHT + 38, text_anchor="middle"))
    parts.append(text(chart.y, x=edge, y=TOP - 22, fill_opacity=0.7))
    if chart.level is not None:
        name, value = chart.level
        parts.append(line([(edge, y(value)), (edge + WIDTH, y(value))], stroke="currentColor", stroke_dasharray="2 3"))
        parts.append(text(f"{name} {number(value)}", x=edge + WIDTH - 4, y=y(value) - 5, text_anchor="end"))
    legend_x = edge + WIDTH - sum(LETTER * len(name) + 40 for name in chart.curves)
    # the first curve stays visible through the dashes of the second
    for curve, (name, points) in enumerate(chart.curves.items()):
        pen: dict[str, str | float] = {"stroke": COLOURS[curve], "stroke_width": 2.5, "fill": "none"}
        pen["stroke_dasharray"] = DASHES[curve]
        parts.append(line([(x(px), y(py)) for px, py in points if math.isfinite(py)], **pen))
        parts.append(line([(legend_x, TOP - 26), (legend_x + 26, TOP - 26)], **pen))
        parts.append(text(name, x=legend_x + 30, y=TOP - 22))
        legend_x += LETTER * len(name) + 40
    return "".join(parts)


def _map_svg(attention_map: Map, left: int, top: int) -> str:
    sum_x = left + len(attention_map.columns) * CELL + 8
    parts = [text(attention_map.title, x=left, y=18, font_size=14, font_weight=600)]
    for column, name in enumerate(attention_map.columns):
        parts.append(text(name, transform=f"translate({left + (column + 0.65) * CELL:.1f} {top - 6}) rotate(-90)"))
    parts.append(text("sum", x=sum_x, y=top - 6, fill_opacity=0.7))
    for row, (name, weights) in enumerate(zip(attention_map.rows, attention_map.weights, strict=True)):
        y = top + row * CELL
        parts.append(text(name, x=left - 6, y=y + 16, text_anchor="end"))
        for column, weight in enumerate(weights):
            x = left + column * CELL
            if weight == 0:  # distinguish exact zeros from small weights
                parts.append(element("circle", cx=x + CELL / 2, cy=y + CELL / 2, r=1, fill_opacity=0.4))
                continue
            tooltip = element("title", escape(f"{name} attends to {attention_map.columns[column]}: {weight:.3f}"))
            opacity = f"{0.08 + 0.92 * min(1.0, max(0.0, weight)):.3f}"
            box = {"x": x + 1, "y": y + 1, "width": CELL - 2, "height": CELL - 2, "rx": 3}
            parts.append(element("rect", tooltip, fill=COLOURS[0], fill_opacity=opacity, **box))
        parts.append(text(f"{sum(weights):.2f}", x=sum_x, y=y + 16))
    return "".join(parts)


def _axis_ranges(chart: Chart) -> tuple[float, float, float, float]:
    """Return the smallest and largest x, and the same for y with a margin; the ranges are never empty."""
    points = [point for curve in chart.curves.values() for point in curve if math.isfinite(point[1])] or [(0.0, 0.0)]
    ys = [y for _, y in points] + ([] if chart.level is None else [chart.level[1]])
    left = min(x for x, _ in points)
    right = max(x for x, _ in points)
    low = min(ys)
    high = max(ys)
    margin = 0.06 * (high - low) or max(1e-3, 0.1 * abs(high))
    return left, max(right, left + 1e-9), low - (margin if low < 0 else min(margin, low)), high + margin


def _interpolated_columns(points: Sequence[Point], left: float, right: float) -> list[tuple[int, float]]:
    """Return (column, y) for every text column that the curve covers, interpolated linearly between its points."""
    values = []
    for column in range(COLUMNS):
        x = left + (right - left) * column / (COLUMNS - 1)
        before = [point for point in points if point[0] <= x + 1e-9]
        after = [point for point in points if point[0] >= x - 1e-9]
        if before and after:
            x0, y0 = max(before)
            x1, y1 = min(after)
            y = y0 if x1 == x0 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)
            values += [(column, y)] if math.isfinite(y) else []
    return values


def _shade(weight: float) -> str:
    """Return the shade of a weight; exact zeros are dots, to distinguish them from small weights."""
    return "·" if weight == 0 else SHADES[1 + min(3, int(weight * 4))]
