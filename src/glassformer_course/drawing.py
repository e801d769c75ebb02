"""Pictures of small matrices, side by side: text for the terminal, SVG for notebooks and the book."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from textwrap import fill

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glassformer.base.svg import document, element, text

SHADES = " ░▒▓█"
WIDEST = 640  # maximum width of a row of panels in pixels; panels that do not fit start a new row
BETWEEN = "    "
CELL = 46  # pixels of a cell's side in the SVG
GAP = 34  # pixels between panels
TOP = 40  # pixels above the cells
EDGE = 12  # pixels around the picture


class Panel:
    """One matrix with a title and optional names of its rows and columns.

    Args:
        title: printed above the matrix.
        values: (rows, columns) or (columns,); a larger magnitude is darker. NaN is shown as an empty cell.
        rows, columns: names of the rows and columns; empty: no names.
    """

    def __init__(self, title: str, values: ArrayLike, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> None:
        self.title = title
        self.values: NDArray[np.float64] = np.atleast_2d(np.asarray(values, dtype=np.float64))
        self.rows = list(rows)
        self.columns = list(columns)

    def strengths(self) -> NDArray[np.float64]:
        """Return the darkness of each cell, 0 to 1: its magnitude relative to the largest finite magnitude."""
        sizes = np.abs(np.where(np.isfinite(self.values), self.values, 0.0))
        return sizes / max(float(sizes.max(initial=0.0)), 1e-12)


@dataclass(frozen=True)
class Picture:
    """Panels from left to right, with a caption."""

    panels: list[Panel]
    caption: str

    def text(self, width: int = 100) -> str:
        """Return the picture as text: each number is followed by a block whose shade shows its magnitude.

        Args:
            width: columns of the terminal; panels that do not fit start a new row.
        """
        rows: list[list[list[str]]] = [[]]
        for block in map(_panel_lines, self.panels):
            if rows[-1] and sum(len(each[0]) + len(BETWEEN) for each in rows[-1]) + len(block[0]) > width:
                rows.append([])
            rows[-1].append(block)
        return "\n\n".join([*map(_side_by_side, rows), fill(self.caption, width)])

    def svg(self) -> str:
        """Return the picture as SVG: dark on a light background, readable on light and on dark pages."""
        parts: list[str] = []
        x = EDGE
        y = 0
        width = 0
        height = 0
        for panel in self.panels:
            panel_svg, panel_width, panel_height = _panel_svg(panel)
            if x > EDGE and x + panel_width + EDGE > WIDEST:
                x = EDGE
                y = height
            parts.append(element("g", panel_svg, transform=f"translate({x} {y})"))
            width = max(width, x + panel_width + EDGE)
            height = max(height, y + panel_height + EDGE)
            x += panel_width + GAP
        card = element("rect", width=width, height=height, rx=8, fill="#fafaf7")
        return document(
            width,
            height,
            self.caption,
            card,
            *parts,
            width=width,
            height=height,
            font_family="sans-serif",
            font_size=13,
            fill="#20242a",
        )


def number(value: float) -> str:
    """Return a number with few digits, so that it fits in a cell: 0, 2, -0.25, 3e-4, 1e+04, -inf.

    >>> number(2.0), number(-0.25), number(0.0900306), number(0.000335), number(float("-inf"))
    ('2', '-0.25', '0.09', '3e-4', '-inf')
    """
    if not isfinite(value):
        return str(value)
    if 0 < abs(value) < 0.001:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value + 0.0:.3g}" if abs(value) >= 0.1 or value == 0 else f"{value:.2g}"


def _side_by_side(blocks: list[list[str]]) -> str:
    lines = range(max(map(len, blocks)))
    parts = [[block[line] if line < len(block) else " " * len(block[0]) for block in blocks] for line in lines]
    return "\n".join(BETWEEN.join(part).rstrip() for part in parts)


def _panel_lines(panel: Panel) -> list[str]:
    """Return the panel as lines of equal length."""
    cells = [["" if np.isnan(value) else number(value) for value in row] for row in panel.values]
    names = panel.rows or [""] * len(cells)
    cell_width = max(len(text) for text in [*(text for row in cells for text in row), *panel.columns, ""]) + 3
    name_width = max(map(len, names))
    lines = [panel.title]
    if panel.columns:
        lines.append(" " * (name_width + 1) + "".join(f"{name:>{cell_width - 2}}  " for name in panel.columns))
    for name, row, strengths in zip(names, cells, panel.strengths(), strict=True):
        shades = [SHADES[min(int(strength * len(SHADES)), len(SHADES) - 1)] for strength in strengths]
        cell_texts = [f"{text:>{cell_width - 2}}{shade} " for shade, text in zip(shades, row, strict=True)]
        lines.append(f"{name:>{name_width}} {''.join(cell_texts)}")
    length = max(map(len, lines))
    return [line.ljust(length) for line in lines]


def _panel_svg(panel: Panel) -> tuple[str, int, int]:
    """Return the SVG elements of the panel, its width and its height in pixels."""
    x0 = 9 * max((len(name) for name in panel.rows), default=0) + (8 if panel.rows else 0)
    top = TOP + (18 if panel.columns else 0)
    parts = [text(panel.title, x=x0, y=18, font_weight=600)]
    for j, name in enumerate(panel.columns):
        parts.append(text(name, x=x0 + (j + 0.5) * CELL, y=top - 8, text_anchor="middle"))
    for i, (row, strengths) in enumerate(zip(panel.values, panel.strengths(), strict=True)):
        y = top + i * CELL
        if panel.rows:
            parts.append(text(panel.rows[i], x=x0 - 8, y=y + CELL / 2 + 5, text_anchor="end"))
        for j, (value, strength) in enumerate(zip(row, strengths, strict=True)):
            parts.append(
                element(
                    "rect",
                    x=x0 + j * CELL + 1,
                    y=y + 1,
                    width=CELL - 2,
                    height=CELL - 2,
                    rx=4,
                    fill="#d8572f" if value < 0 else "#2f7ed8",
                    fill_opacity=f"{0.08 + 0.52 * strength:.3f}",
                )
            )
            if not np.isnan(value):
                parts.append(text(number(value), x=x0 + (j + 0.5) * CELL, y=y + CELL / 2 + 5, text_anchor="middle"))
    width = x0 + max(panel.values.shape[1] * CELL, 8 * len(panel.title))
    return "".join(parts), width, top + len(panel.values) * CELL + 4
