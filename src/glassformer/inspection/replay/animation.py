"""Animation of one head during training, as GIF or animated PNG: attention map above curves of score and loss."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from glassformer.inspection.plots.charts import COLOURS
from glassformer.inspection.plots.fonts import BASE
from glassformer.inspection.plots.sheet import DPI, INK, NOTE, Sheet
from glassformer.inspection.replay.history import History
from glassformer.inspection.replay.page import text_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDE = 400
"""Maximum number of pixels per side of the map."""
MARGIN = 40
MAP_TOP = 32
CURVE = 120
"""Height of the curves in pixels."""
BELOW = 44
"""Height in pixels of the step labels and the legend below the curves."""
FRAMES_PER_SECOND = 5
LAST = 10
"""Number of frames for which the last snapshot is shown."""
DARK = np.array([0, 80, 140])
"""Colour of a weight of 1; a weight of 0 is white."""
BLUE = COLOURS[0]
GREY = "#969696"


def animation_bytes(history: History, head: str, role: str, suffix: str) -> bytes:
    """Return the bytes of an animation with a frame for each snapshot; the last frame is shown longer.

    Args:
        history: the snapshots of a run.
        head: head to show.
        role: role whose score (blue, 0 to 1) is drawn with the loss (grey, scaled to the same height).
        suffix: format of the file, ".gif" or ".png".
    """
    from matplotlib.animation import PillowWriter

    text = text_for(history, role)
    maps = [_pixels(snapshot.map_of(text, head)) for snapshot in history.snapshots]
    height, width = maps[0].shape[:2]
    cell_size = max(1, SIDE // max(height, width))
    top = MAP_TOP + height * cell_size + MARGIN
    sheet = Sheet(SIDE + 2 * MARGIN, top + CURVE + BELOW, [BASE])
    axes = sheet.image(maps[0], MARGIN, MAP_TOP, (cell_size, cell_size))
    axes.spines[:].set(visible=True, color=GREY)
    title = sheet.text(MARGIN, MAP_TOP / 2, "", NOTE)
    curves = sheet.axes(MARGIN, top, SIDE, CURVE)
    _draw_curves(sheet, history, head, role, curves)
    step_line = curves.axvline(0, color=INK, linewidth=1)
    scores = history.curve(head, role)
    writer = PillowWriter(FRAMES_PER_SECOND)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"heads{suffix}"
        with writer.saving(sheet.figure, str(path), DPI):
            for number, (snapshot, pixels) in enumerate(zip(history.snapshots, maps, strict=True)):
                axes.images[0].set_data(pixels.repeat(cell_size, axis=0).repeat(cell_size, axis=1))
                step_line.set_xdata([np.log1p(snapshot.step)] * 2)
                loss = f"loss {history.losses[number]:.3f}"
                score = f"{role.replace('_', ' ')} {float(scores[number]):.2f}"
                title.set_text(f"{head}   step {snapshot.step:,}   {loss}   {score}")
                for _ in range(LAST if number == len(maps) - 1 else 1):
                    writer.grab_frame()
        return path.read_bytes()


def _pixels(weights: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Convert weights (T, S), from 0 to 255, to RGB colours (T, S, 3)."""
    return np.rint(255 - weights[..., None] / 255 * (255 - DARK)).astype(np.uint8)


def _draw_curves(sheet: Sheet, history: History, head: str, role: str, axes: Axes) -> None:
    """Draw the score and the scaled loss over steps on a logarithmic axis, with a line at the birth of the role."""
    xs = np.log1p(history.steps)
    losses = np.array(history.losses)
    scores = np.clip(np.nan_to_num(history.curve(head, role)), 0, None)
    axes.spines[:].set(visible=True, color=GREY)
    axes.set(xlim=(0, xs[-1] or 1.0), ylim=(0, 1))
    axes.plot(xs, (losses - losses.min()) / (np.ptp(losses) or 1.0), color=GREY)
    axes.plot(xs, scores, color=BLUE)
    birth_step = next((birth.step for birth in history.births(role, head)), None)
    if birth_step is not None:
        axes.axvline(np.log1p(birth_step), color=BLUE, linestyle=":")
        alignment = "left" if np.log1p(birth_step) < xs[-1] / 2 else "right"
        axes.text(np.log1p(birth_step), 0.5, f" born at {birth_step:,} ", color=BLUE, ha=alignment, family=BASE)
    powers = [10**power for power in range(7) if 10**power <= history.steps[-1]]
    sheet.ticks(axes, "x", np.log1p(powers).tolist(), [f"{step:,}" for step in powers], NOTE)
    legend = "grey: validation loss, scaled   blue: the head's score, 0 to 1"
    sheet.text(MARGIN, sheet.height - NOTE, legend, NOTE)
