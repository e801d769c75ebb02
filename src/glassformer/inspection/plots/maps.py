"""Heat maps of attention: one head with tokens as labels, the heads of one layer, or all heads side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glassformer.inspection.plots.cells import Floats, Scale, block_for, painted, pooled
from glassformer.inspection.plots.fonts import BASE
from glassformer.inspection.plots.sheet import (
    LABEL,
    LONGEST_BAR,
    MARGIN,
    NOTE,
    SHORTEST_BAR,
    TITLE,
    Families,
    Sheet,
    bar_width,
    room_below,
    text_width,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CELLS = 256
"""Maximum number of cells per side of the map of one head; longer texts are pooled."""
LARGE = 1024
"""Approximate length in pixels of the longer side of the map of one head; cells have at most `LARGEST_CELL` pixels."""
LARGEST_CELL = 40
LEGIBLE = 12
"""Minimum size of a cell with a token label, in pixels; smaller cells get a ruler instead of labels."""
GAP = 10
LARGEST_LETTERS = 15.0


@dataclass(frozen=True)
class MapLabels:
    """Axis labels of attention maps.

    Attributes:
        rows, columns: a label for each position, before pooling.
        row_name, column_name: titles of the axes.
    """

    rows: Sequence[str]
    columns: Sequence[str]
    row_name: str = "query tokens"
    column_name: str = "key tokens"


@dataclass(frozen=True)
class _Plan:
    """Layout of all maps, with sizes in pixels."""

    cell: int
    slot: tuple[int, int]  # width and height of the largest map
    left: int
    top: int
    above: int  # space above each row of maps, for names
    below: int  # space below the last row, for labels
    upright: bool
    notes: tuple[str, ...]


Grid = Sequence[tuple[str, Sequence[tuple[str, Floats | None]]]]
"""Rows of maps, each with a name; a map has a name and its cells, (rows, columns), or None to leave a gap."""


def draw_maps(
    title: str,
    grid: Grid,
    *,
    block: int = 1,
    labels: MapLabels | None = None,
    scale: Scale = "linear",
    size: int = LARGE,
    families: Families = (BASE,),
    what: str = "attention weight",
) -> Figure:
    """Draw maps on a grid, with a colour bar and notes on the cells.

    Args:
        title: title of the figure.
        grid: rows of pooled maps; weights from 0 to 1, NaN where masked.
        block: pooling block size; if it is above 1, a note above the maps gives it.
        labels: labels to draw at the left and the lower edge of the grid; None: no labels.
        scale: scale of the colours.
        size: minimum length in pixels of a map's longer side, unless a cell would exceed `LARGEST_CELL` pixels.
        families: font families for the labels.
        what: name of the values, shown at the colour bar.
    """
    arrays = [cells for _, row in grid for _, cells in row if cells is not None]
    plan = _plan(grid, arrays, block, labels, size, families)
    right = plan.left + max(len(row) for _, row in grid) * (plan.slot[0] + GAP) + MARGIN
    bar = max(SHORTEST_BAR, min(LONGEST_BAR, plan.slot[1]))
    header_width = max(
        text_width(title, TITLE, [BASE], "bold"), *(text_width(note, NOTE, [BASE]) for note in plan.notes), 0
    )
    width = max(right + bar_width(scale, what), header_width + 2 * MARGIN) + MARGIN
    row_height = plan.above + plan.slot[1] + GAP
    bottom = plan.top + len(grid) * row_height + plan.below
    sheet = Sheet(width, max(bottom, plan.top + plan.above + bar + 60) + MARGIN, families)
    sheet.text(MARGIN, MARGIN + TITLE / 2, title, TITLE, weight="bold")
    for number, note in enumerate(plan.notes):
        sheet.text(MARGIN, MARGIN + TITLE + (NOTE + 6) * (number + 0.75), note, NOTE)
    for row, (name, maps) in enumerate(grid):
        y = plan.top + row * row_height + plan.above
        sheet.text(plan.left - 8, y + plan.slot[1] / 2, name, NOTE, ha="right")
        for column, (map_name, values) in enumerate(maps):
            x = plan.left + column * (plan.slot[0] + GAP)
            sheet.text(x, y - 9, map_name, NOTE)
            if values is not None:
                axes = sheet.image(painted(values, scale), x, y, (plan.cell, plan.cell))
                is_lowest = row == len(grid) - 1 or column >= len(grid[row + 1][1])
                _label_axes(sheet, axes, labels, block, plan, (column == 0, is_lowest))
    grey = "masked" if any(np.isnan(cells).any() for cells in arrays) else ""
    sheet.colour_bar(right, plan.top + plan.above, bar, scale, what, grey)
    return sheet.figure


def draw_rollout(
    weights: Floats,
    labels: MapLabels,
    title: str = "attention rollout",
    *,
    scale: Scale = "linear",
    families: Families = (BASE,),
    what: str = "rollout weight",
) -> Figure:
    """Draw a matrix of values from 0 to 1, such as rollout or flow, as a map.

    Args:
        weights: the values, (T, S), NaN where masked; a large matrix is pooled.
        labels: labels of rows and columns.
        title: title of the figure.
        what: name of the values, shown at the colour bar.
        scale, families: as in `draw_maps`.
    """
    block = block_for(max(weights.shape), MOST_CELLS)
    grid = [("", [("", pooled(weights, block))])]
    return draw_maps(title, grid, block=block, labels=labels, scale=scale, families=families, what=what)


def _plan(
    grid: Grid, arrays: Sequence[Floats], block: int, labels: MapLabels | None, size: int, families: Families
) -> _Plan:
    """Compute the layout: size of cells, notes, and position of the first map."""
    rows = max(cells.shape[0] for cells in arrays)
    columns = max(cells.shape[1] for cells in arrays)
    cell = min(LARGEST_CELL, -(-size // max(rows, columns)))
    left = MARGIN + max(text_width(name, NOTE, families) for name, _ in grid) + 8
    below = 0
    upright = False
    notes = []
    if labels is not None:
        tick_texts = (labels.rows, labels.columns)
        font_height = _font_height(cell)
        if not _legible(cell, block):
            tick_texts = (("0,000",), ("0",))
            font_height = LABEL
        left += max(text_width(word, font_height, families) for word in tick_texts[0])
        below, upright = (
            room_below(tick_texts[1], cell, font_height, families) if _legible(cell, block) else (2 * LABEL, False)
        )
        ruler_note = "" if _legible(cell, block) else ", by position from 0"
        notes.append(f"rows: {labels.row_name}; columns: {labels.column_name}{ruler_note}")
    if block > 1:
        notes.append(f"each cell is the maximum of {block} x {block} weights")
    top = MARGIN + TITLE + len(notes) * (NOTE + 6) + 30
    above = 20 if any(map_name for _, row in grid for map_name, _ in row) else 8
    return _Plan(cell, (columns * cell, rows * cell), left, top, above, below, upright, tuple(notes))


def _legible(cell: int, block: int) -> bool:
    """Return whether each cell is one token and is large enough for its label."""
    return block == 1 and cell >= LEGIBLE


def _font_height(cell: int) -> float:
    """Return the font height, in pixels, of labels beside cells of `cell` pixels."""
    return min(LARGEST_LETTERS, cell * 0.8)


def _label_axes(
    sheet: Sheet, axes: Axes, labels: MapLabels | None, block: int, plan: _Plan, sides: tuple[bool, bool]
) -> None:
    """Draw token labels, or a ruler if labels would be illegible, along the axes selected by `sides` (y, x)."""
    if labels is None:
        return
    for axis, tick_labels, at_edge in (("y", labels.rows, sides[0]), ("x", labels.columns, sides[1])):
        if at_edge and _legible(plan.cell, block):
            centres = [index + 0.5 for index in range(len(tick_labels))]
            sheet.ticks(axes, axis, centres, tick_labels, _font_height(plan.cell), plan.upright and axis == "x")
        elif at_edge:
            marks = ruler(len(tick_labels), plan.cell / block)
            offset = 0.5 if block == 1 else 0.0
            axes.tick_params(axis="both", length=4)
            sheet.ticks(axes, axis, [mark / block + offset for mark in marks], [f"{mark}" for mark in marks], LABEL)


def ruler(length: int, pixels: float) -> list[int]:
    """Return the positions to mark: every 1, 2, 5, 10, 20... so that marks are at least 60 pixels apart.

    >>> ruler(1024, 1.0)
    [0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]
    """
    step = next(s for power in range(9) for s in (10**power, 2 * 10**power, 5 * 10**power) if s * pixels >= 60)
    return list(range(0, length, step))
