"""Figures of results given as plain arrays: logit lens, head roles and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from glassformer.base.errors import GlassError
from glassformer.inspection.plots.cells import Floats, is_dark, painted
from glassformer.inspection.plots.fonts import BASE
from glassformer.inspection.plots.sheet import (
    LABEL,
    LONGEST_BAR,
    MARGIN,
    SHORTEST_BAR,
    TITLE,
    Families,
    Sheet,
    bar_width,
    room_below,
    text_width,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#b3a100")
"""Colours that people with any type of colour vision can distinguish (Okabe and Ito 2008), with a darker yellow."""
ROW = 24  # height of a row in pixels
Points = Sequence[tuple[float, float]]


def draw_lens(
    probabilities: Floats,
    words: Sequence[Sequence[str]],
    layers: Sequence[str],
    tokens: Sequence[str],
    title: str = "logit lens: the likeliest next token after each layer",
    families: Families = (BASE,),
) -> Figure:
    """Draw the likeliest token and its probability after each layer, at each position.

    Args:
        probabilities: probabilities of the likeliest tokens, (layers, T).
        words: texts of the likeliest tokens, (layers, T).
        layers: names of the rows; the first row is at the bottom.
        tokens: texts of the input tokens, (T).
        title: title of the figure.
        families: font families for tokens and words.

    Raises:
        GlassError: the shapes do not match.
    """
    _refuse_shape("words", (len(words), *{len(row) for row in words}), probabilities.shape)
    _refuse_shape("layers and tokens", (len(layers), len(tokens)), probabilities.shape)
    return _table(title, probabilities[::-1], words[::-1], layers[::-1], tokens, "probability", families)


def draw_roles(
    heads: Sequence[str],
    roles: Sequence[str],
    scores: Floats,
    chances: Floats,
    earned: npt.NDArray[np.bool_],
    title: str = "roles of heads: score / chance, framed if the role is earned",
) -> Figure:
    """Draw the score and chance level of each head in each role; earned roles are framed.

    Args:
        heads: names of the rows.
        roles: names of the columns.
        scores: scores, (heads, roles); NaN if a role is impossible or was not measured. The colour scale ranges
            from 0 to 1, and scores outside this range are clipped.
        chances: chance levels, (heads, roles); NaN if there is none.
        earned: bool, (heads, roles), True if the head has earned the role.
        title: title of the figure.

    Raises:
        GlassError: the shapes do not match.
    """
    for name, values in (("chances", chances), ("earned", earned)):
        _refuse_shape(name, values.shape, scores.shape)
    _refuse_shape("names", (len(heads), len(roles)), scores.shape)
    cell_texts = [
        [_score_and_chance(score, chance) for score, chance in zip(*row, strict=True)]
        for row in zip(scores, chances, strict=True)
    ]
    figure = _table(title, np.clip(scores, 0.0, 1.0), cell_texts, heads, roles, "score", (BASE,))
    axes = figure.axes[0]
    for row, column in np.argwhere(earned):
        x = np.array([0.03, 0.97, 0.97, 0.03, 0.03]) + column
        y = np.array([0.08, 0.08, 0.92, 0.92, 0.08]) + row
        axes.plot(x, y, color=COLOURS[1], linewidth=2)
    return figure


def _score_and_chance(score: float, chance: float) -> str:
    if np.isnan(score):
        return ""
    if np.isnan(chance):
        return f"{score:.2f}"
    return f"{score:.2f} / {chance:.2f}"


def _table(
    title: str,
    values: Floats,
    cell_texts: Sequence[Sequence[str]],
    rows: Sequence[str],
    columns: Sequence[str],
    what: str,
    families: Families,
) -> Figure:
    """Draw a table of coloured cells, each with a text."""
    widths = [text_width(text, LABEL, families) for row in cell_texts for text in row]
    cell = max(36, *widths) + 10
    left = MARGIN + max(text_width(name, LABEL, families) for name in rows) + 8
    label_height, upright = room_below(columns, cell, LABEL, families)
    top = MARGIN + TITLE + 30
    right = left + len(columns) * cell + 2 * MARGIN
    bar = max(SHORTEST_BAR, min(LONGEST_BAR, len(rows) * ROW))
    width = max(right + bar_width("linear", what), text_width(title, TITLE, [BASE], "bold") + 3 * MARGIN) + MARGIN
    sheet = Sheet(width, top + max(len(rows) * ROW + label_height, bar + 50) + MARGIN, families)
    sheet.text(MARGIN, MARGIN + TITLE / 2, title, TITLE, weight="bold")
    axes = sheet.image(painted(values, "linear"), left, top, (cell, ROW))
    sheet.ticks(axes, "y", [row + 0.5 for row in range(len(rows))], rows, LABEL)
    sheet.ticks(axes, "x", [column + 0.5 for column in range(len(columns))], columns, LABEL, upright)
    for row, row_texts in enumerate(cell_texts):
        for column, text in enumerate(row_texts):
            value = values[row, column]
            colour = "white" if not np.isnan(value) and is_dark(float(value), "linear") else "black"
            centre = (left + (column + 0.5) * cell, top + (row + 0.5) * ROW)
            sheet.text(*centre, text, LABEL, color=colour, ha="center", family=list(families))
    sheet.colour_bar(right, top, bar, "linear", what, "not measured" if np.isnan(values).any() else "")
    return sheet.figure


def draw_curve(curves: Mapping[str, Sequence[Points]], x: str, y: str, title: str = "") -> Figure:
    """Draw a line for each name: its only curve, or the mean of its curves with a band from minimum to maximum.

    Args:
        curves: name -> curves of points (x, y); all curves of a name must have the same x values.
        x, y: labels of the axes.
        title: title of the figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    for number, (name, named_curves) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        xs = [value for value, _ in named_curves[0]]
        values = np.array([[value for _, value in points] for points in named_curves])  # (curves, points)
        if len(named_curves) > 1:
            axes.fill_between(xs, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, linewidth=0)
            name = f"{name}, mean of {len(named_curves)}"
        axes.plot(xs, values.mean(axis=0), "o-", color=colour, markersize=3, label=name)
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def _refuse_shape(what: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape != expected:
        raise GlassError(
            f"{what} of shape {shape} were given for values of shape {expected}", f"Give {what} of shape {expected}."
        )
