"""Pictures of what others compute: a lens, the roles of heads, curves. Plain numbers in, a figure out."""

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
"""Told apart by people of all kinds of colour vision (Okabe and Ito 2008)."""
ROW = 24  # pixels
Points = Sequence[tuple[float, float]]


def draw_lens(
    probabilities: Floats,
    words: Sequence[Sequence[str]],
    layers: Sequence[str],
    tokens: Sequence[str],
    title: str = "logit lens: the likeliest next token after each layer",
    families: Families = (BASE,),
) -> Figure:
    """Draw the prediction of each layer at each position: its likeliest token and that token's probability.

    Args:
        probabilities: (layers, T) of the likeliest tokens.
        words: (layers, T) their texts.
        layers: the names of the rows, the first at the bottom.
        tokens: (T) what the model reads.
        title: of the picture.
        families: of fonts, for tokens and words.
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
    title: str = "roles of heads: score / chance, framed where it earns the name",
) -> Figure:
    """The score of every head in every role, beside its chance level; earned names are framed.

    Args:
        heads: names of the rows.
        roles: names of the columns.
        scores: (heads, roles); NaN where a role is not possible or was not measured; below 0 they look like 0.
        chances: (heads, roles) of uniform attention; NaN where there is no such level.
        earned: (heads, roles) whether a head is called by a role.
        title: of the picture.
    """
    for name, values in (("chances", chances), ("earned", earned)):
        _refuse_shape(name, values.shape, scores.shape)
    _refuse_shape("names", (len(heads), len(roles)), scores.shape)
    words = [
        [_score_and_chance(score, chance) for score, chance in zip(*row, strict=True)]
        for row in zip(scores, chances, strict=True)
    ]
    figure = _table(title, np.clip(scores, 0.0, 1.0), words, heads, roles, "score", (BASE,))
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
    words: Sequence[Sequence[str]],
    rows: Sequence[str],
    columns: Sequence[str],
    what: str,
    families: Families,
) -> Figure:
    """Coloured cells with a word in each."""
    widths = [text_width(word, LABEL, families) for row in words for word in row]
    cell = max(36, *widths) + 10
    left = MARGIN + max(text_width(name, LABEL, families) for name in rows) + 8
    below, upright = room_below(columns, cell, LABEL, families)
    top = MARGIN + TITLE + 30
    right = left + len(columns) * cell + 2 * MARGIN
    bar = max(SHORTEST_BAR, min(LONGEST_BAR, len(rows) * ROW))
    width = max(right + bar_width("linear", what), text_width(title, TITLE, [BASE], "bold") + 3 * MARGIN) + MARGIN
    sheet = Sheet(width, top + max(len(rows) * ROW + below, bar + 50) + MARGIN, families)
    sheet.text(MARGIN, MARGIN + TITLE / 2, title, TITLE, weight="bold")
    axes = sheet.image(painted(values, "linear"), left, top, (cell, ROW))
    sheet.ticks(axes, "y", [row + 0.5 for row in range(len(rows))], rows, LABEL)
    sheet.ticks(axes, "x", [column + 0.5 for column in range(len(columns))], columns, LABEL, upright)
    for row, named in enumerate(words):
        for column, word in enumerate(named):
            value = values[row, column]
            colour = "white" if not np.isnan(value) and is_dark(float(value), "linear") else "black"
            place = (left + (column + 0.5) * cell, top + (row + 0.5) * ROW)
            sheet.text(*place, word, LABEL, color=colour, ha="center", family=list(families))
    sheet.colour_bar(right, top, bar, "linear", what, "not measured" if np.isnan(values).any() else "")
    return sheet.figure


def draw_curve(curves: Mapping[str, Sequence[Points]], x: str, y: str, title: str = "") -> Figure:
    """A line for each name; of several curves the mean, and a band from the least to the greatest.

    Args:
        curves: name -> curves of points (x, y), all at the same x.
        x, y: names of the axes.
        title: of the picture.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    for number, (name, several) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [place for place, _ in several[0]]
        values = np.array([[value for _, value in points] for points in several])  # (curves, points)
        if len(several) > 1:
            axes.fill_between(places, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, linewidth=0)
            name = f"{name}, mean of {len(several)}"
        axes.plot(places, values.mean(axis=0), "o-", color=colour, markersize=3, label=name)
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def _refuse_shape(what: str, got: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if got != wanted:
        raise GlassError(f"{what} of shape {got} were given for values of shape {wanted}", "Give the same shape.")
