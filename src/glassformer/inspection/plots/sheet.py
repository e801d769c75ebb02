"""Figure with a layout in pixels, so that all cells have exactly the same size."""

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
# TITLE, NOTE and LABEL are font heights in pixels.
TITLE = 15
NOTE = 12
LABEL = 12
BAR = 16
SHORTEST_BAR = 130
LONGEST_BAR = 240
INK = "#333333"
Families = Sequence[str]


class Sheet:
    """Figure whose parts are positioned in pixels from its top left corner.

    Args:
        width, height: size in pixels.
        families: font families for tick labels.
    """

    def __init__(self, width: int, height: int, families: Families) -> None:
        from matplotlib.figure import Figure

        self.width = width
        self.height = height
        self.families = list(families)
        self.figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")

    def axes(self, x: int, y: int, width: int, height: int) -> Axes:
        """Add empty axes without a frame."""
        left = x / self.width
        bottom = 1 - (y + height) / self.height
        axes = self.figure.add_axes((left, bottom, width / self.width, height / self.height))
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, pad=4, colors=INK)
        return axes

    def image(self, pixels: Pixels, x: int, y: int, cell: tuple[int, int]) -> Axes:
        """Add an image with cells of `cell` pixels (width, height).

        The unit of the axes is a cell, counted from the top left corner.
        """
        rows, columns = pixels.shape[:2]
        axes = self.axes(x, y, columns * cell[0], rows * cell[1])
        large = pixels.repeat(cell[1], axis=0).repeat(cell[0], axis=1)
        axes.imshow(large, interpolation="none", aspect="auto", extent=(0, columns, rows, 0))
        return axes

    def text(self, x: float, y: float, text: str, size: float, **style: str | list[str]) -> Text:
        """Add a line of text, vertically centred at y; `style` can set another font family, such as that of tokens."""
        text_properties = {"size": points(size), "family": BASE, "color": INK, "va": "center", **style}
        return self.figure.text(x / self.width, 1 - y / self.height, text, parse_math=False, **text_properties)  # type: ignore[arg-type]

    def ticks(
        self, axes: Axes, axis: str, values: Sequence[float], labels: Sequence[str], size: float, upright: bool = False
    ) -> None:
        """Set tick labels along one axis, without math parsing."""
        target = axes.xaxis if axis == "x" else axes.yaxis
        target.set_ticks(
            list(values),
            list(labels),
            parse_math=False,
            fontsize=points(size),
            family=self.families,
            color=INK,
            rotation=90 if upright else 0,
        )

    def colour_bar(self, x: int, y: int, height: int, scale: Scale, what: str, grey: str) -> None:
        """Add a colour bar, and a swatch with the meaning of grey cells unless `grey` is empty."""
        ramp = np.linspace(1, 0, height)[:, None]
        axes = self.image(painted(ramp, "linear"), x, y, (BAR, 1))
        axes.yaxis.tick_right()
        fractions = positions(np.array(list(TICKS[scale])), scale)
        axes.tick_params(length=3)
        self.ticks(
            axes, "y", [float(height * (1 - fraction)) for fraction in fractions], list(TICKS[scale].values()), LABEL
        )
        self.text(x, y - 14, f"{what}, {NAMES[scale]} scale", NOTE)
        if grey:
            swatch = np.array(MASKED, dtype=np.uint8)[None, None]
            self.image(swatch, x, y + height + 14, (BAR, BAR))
            self.text(x + BAR + 8, y + height + 14 + BAR / 2, grey, NOTE)


def bar_width(scale: Scale, what: str) -> int:
    """Return the width of a colour bar with its title, in pixels."""
    return max(text_width(f"{what}, {NAMES[scale]} scale", NOTE, [BASE]), 90)


def points(pixels: float) -> float:
    """Convert a font height in pixels to points."""
    return pixels * 72 / DPI


def text_width(text: str, size: float, families: Families, weight: str = "normal") -> int:
    """Return the width of a line of text, in pixels."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family=list(families), size=points(size), weight=weight)
    return int(RendererAgg(1, 1, DPI).get_text_width_height_descent(text, font, ismath=False)[0]) + 1


def room_below(labels: Sequence[str], cell_width: int, size: float, families: Families) -> tuple[int, bool]:
    """Return the height of labels below cells in pixels, and whether they are vertical because a cell is too narrow."""
    widest = max(text_width(label, size, families) for label in labels)
    return (widest + 10, True) if widest > cell_width - 6 else (2 * LABEL, False)
