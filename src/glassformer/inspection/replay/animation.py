"""A history of one head as a moving picture, GIF or animated PNG: its attention map above the curves."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from glassformer.inspection.replay.history import History
from glassformer.inspection.replay.page import text_for

if TYPE_CHECKING:
    from PIL import Image
    from PIL.ImageDraw import ImageDraw

SIDE = 400
"""Pixels of the map, at most."""
MARGIN = 40
CURVE = 120
TITLE = 24
FRAME = 200
"""Milliseconds of each snapshot."""
LAST = 2000
"""Milliseconds of the last snapshot."""
DARK = np.array([0, 80, 140])
"""Colour of a weight of 1; 0 is white."""
BLUE = (0, 114, 178)
GREY = (150, 150, 150)
INK = (34, 34, 34)


def moving_picture(history: History, head: str, role: str, suffix: str) -> bytes:
    """The file's bytes: a frame for each snapshot.

    Args:
        history: what is shown.
        head, role: whose map, and whose score beside the loss (blue, 0 to 1; the loss is grey).
        suffix: ".gif" or ".png".
    """
    from PIL import Image

    frames = [_frame(history, number, head, role) for number in range(len(history.snapshots))]
    times = [FRAME] * (len(frames) - 1) + [LAST]
    packed = io.BytesIO()
    if suffix == ".gif":
        palette = _palette()
        frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    frames[0].save(
        packed, "GIF" if suffix == ".gif" else "PNG", save_all=True, append_images=frames[1:], duration=times, loop=0
    )
    return packed.getvalue()


def _palette() -> Image.Image:
    """The 256 colours of a GIF: shades of the map, and the inks, softened at the edges of letters."""
    from PIL import Image

    inks = np.array([ink for ink in (BLUE, GREY, INK) for _ in range(4)])  # (12, 3)
    soft = np.tile([0.0, 0.25, 0.5, 0.75], 3)[:, None] * (255 - inks) + inks  # (12, 3)
    shades = 255 - np.linspace(0, 1, 256 - len(soft))[:, None] * (255 - DARK)  # (244, 3)
    image = Image.new("P", (1, 1))
    image.putpalette(np.rint(np.concatenate([shades, soft])).astype(np.uint8).tobytes())
    return image


def _frame(history: History, number: int, head: str, role: str) -> Image.Image:
    from PIL import Image, ImageDraw

    snapshot = history.snapshots[number]
    weights = snapshot.map_of(text_for(history, role), head)  # (T, S)
    share = weights[..., None] / 255  # (T, S, 1)
    cell = max(1, SIDE // max(weights.shape))
    small = Image.fromarray(np.rint(255 - share * (255 - DARK)).astype(np.uint8))
    map_ = small.resize((weights.shape[1] * cell, weights.shape[0] * cell), Image.Resampling.NEAREST)
    picture = Image.new("RGB", (SIDE + 2 * MARGIN, map_.height + CURVE + 2 * TITLE + 2 * MARGIN), "white")
    pen = ImageDraw.Draw(picture)
    score = float(history.curve(head, role)[number])
    title = (
        f"{head}   step {snapshot.step:,}   loss {history.losses[number]:.3f}   {role.replace('_', ' ')} {score:.2f}"
    )
    pen.text((MARGIN, 8), title, fill=INK)
    picture.paste(map_, (MARGIN, TITLE + 8))
    pen.rectangle((MARGIN - 1, TITLE + 7, MARGIN + map_.width, TITLE + 8 + map_.height), outline=GREY)
    _curves(pen, history, number, head, role, TITLE + 8 + map_.height + MARGIN)
    return picture


def _curves(pen: ImageDraw, history: History, number: int, head: str, role: str, top: int) -> None:
    """Loss and score over steps, whose axis is logarithmic, with a line at this snapshot and one at the birth."""
    steps = history.steps
    losses = history.losses
    width = SIDE
    most = math.log1p(steps[-1]) or 1.0
    low = min(losses)
    high = max(losses)
    born = next((birth.step for birth in history.births(role, head)), None)

    def x(step: int) -> float:
        return MARGIN + width * math.log1p(step) / most

    def line(values: Sequence[float], y: Callable[[float], float], colour: tuple[int, int, int]) -> None:
        points = [(x(step), y(value)) for step, value in zip(steps, values, strict=True)]
        if len(points) > 1:
            pen.line(points, fill=colour, width=2)

    pen.rectangle((MARGIN, top, MARGIN + width, top + CURVE), outline=GREY)
    line(losses, lambda value: top + CURVE * (high - value) / ((high - low) or 1.0), GREY)
    scores = [max(0.0, float(value)) for value in np.nan_to_num(history.curve(head, role))]
    line(scores, lambda value: top + CURVE * (1 - value), BLUE)
    pen.line([(x(steps[number]), top), (x(steps[number]), top + CURVE)], fill=INK)
    if born is not None:
        for dash in range(top, top + CURVE, 8):
            pen.line([(x(born), dash), (x(born), dash + 3)], fill=BLUE)
        label = f"born at {born:,}"
        left = min(x(born) + 4, MARGIN + width - pen.textlength(label))
        pen.text((left, top + CURVE // 2), label, fill=BLUE)
    for step in (10**power for power in range(7) if 10**power <= steps[-1]):
        pen.text((x(step), top + CURVE + 4), f"{step:,}", fill=INK)
    pen.text((MARGIN, top + CURVE + 20), "grey: validation loss   blue: the head's score, 0 to 1", fill=INK)
