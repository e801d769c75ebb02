"""A figure on which parts are placed by pixels, so that every cell is as many pixels wide as any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from glassformer.inspection.plots.cells import MASKED, NAMES, TICKS, Pixels, Scale, painted, positions
from glassformer.inspection.plots.fonts import BASE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

DPI = 100
MARGIN = 12
# TITLE, NOTE and LABEL are heights of letters in pixels.
TITLE = 15
NOTE = 12
LABEL = 12
BAR = 16
SHORTEST_BAR = 130
LONGEST_BAR = 240
INK = "#333333"
Families = Sequence[str]


class Sheet:
    """An empty figure; places are pixels from its top left corner.

    Args:
        width, height: in pixels.
        families: of fonts.
    """

    def __init__(self, width: int, height: int, families: Families) -> None:
        from matplotlib.figure import Figure

        self.width = width
        self.height = height
        self.families = list(families)
        self.figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")

    def axes(self, x: int, y: int, width: int, height: int) -> Axes:
        """Empty axes without a frame."""
        left = x / self.width
        bottom = 1 - (y + height) / self.height
        axes = self.figure.add_axes((left, bottom, width / self.width, height / self.height))
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, pad=4, colors=INK)
        return axes

    def image(self, pixels: Pixels, x: int, y: int, cell: tuple[int, int]) -> Axes:
        """Cells of so many pixels each (width, height); one unit of the axes is one cell, from the top left corner."""
        rows, columns = pixels.shape[:2]
        axes = self.axes(x, y, columns * cell[0], rows * cell[1])
        large = pixels.repeat(cell[1], axis=0).repeat(cell[0], axis=1)
        axes.imshow(large, interpolation="none", aspect="auto", extent=(0, columns, rows, 0))
        return axes

    def text(self, x: float, y: float, words: str, size: float, **style: str | list[str]) -> Text:
        """A line of our own words; y is its middle. `family` names other fonts, for words of a text."""
        look = {"size": points(size), "family": BASE, "color": INK, "va": "center", **style}
        return self.figure.text(x / self.width, 1 - y / self.height, words, parse_math=False, **look)  # type: ignore[arg-type]

    def ticks(
        self, axes: Axes, axis: str, places: Sequence[float], labels: Sequence[str], size: float, upright: bool = False
    ) -> None:
        """Labels along one axis, taken as they are."""
        which = axes.xaxis if axis == "x" else axes.yaxis
        which.set_ticks(
            list(places),
            list(labels),
            parse_math=False,
            fontsize=points(size),
            family=self.families,
            color=INK,
            rotation=90 if upright else 0,
        )

    def colour_bar(self, x: int, y: int, height: int, scale: Scale, what: str, grey: str) -> None:
        """The colours with their values, and what grey stands for; empty where there is none."""
        ramp = np.linspace(1, 0, height)[:, None]
        axes = self.image(painted(ramp, "linear"), x, y, (BAR, 1))
        axes.yaxis.tick_right()
        places = positions(np.array(list(TICKS[scale])), scale)
        axes.tick_params(length=3)
        self.ticks(axes, "y", [float(height * (1 - place)) for place in places], list(TICKS[scale].values()), LABEL)
        self.text(x, y - 14, f"{what}, {NAMES[scale]} scale", NOTE)
        if grey:
            swatch = np.array(MASKED, dtype=np.uint8)[None, None]
            self.image(swatch, x, y + height + 14, (BAR, BAR))
            self.text(x + BAR + 8, y + height + 14 + BAR / 2, grey, NOTE)


def bar_width(scale: Scale, what: str) -> int:
    """Pixels that a colour bar takes with its words."""
    return max(text_width(f"{what}, {NAMES[scale]} scale", NOTE, [BASE]), 90)


def points(pixels: float) -> float:
    """The size of letters as matplotlib wants it."""
    return pixels * 72 / DPI


def text_width(words: str, size: float, families: Families, weight: str = "normal") -> int:
    """Pixels that a line takes."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family=list(families), size=points(size), weight=weight)
    return int(RendererAgg(1, 1, DPI).get_text_width_height_descent(words, font, ismath=False)[0]) + 1


def room_below(words: Sequence[str], cell: int, size: float, families: Families) -> tuple[int, bool]:
    """Pixels that labels below cells take, and whether they must stand upright, being wider than a cell."""
    widest = max(text_width(word, size, families) for word in words)
    return (widest + 10, True) if widest > cell - 6 else (2 * LABEL, False)
