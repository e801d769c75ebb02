"""Conversion of attention weights to coloured cells: pooling, scales and colours, without matplotlib figures.

NaN marks masked cells, which are drawn differently from weights of 0.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Pixels = npt.NDArray[np.uint8]
Scale = Literal["linear", "sqrt", "log"]
SCALES: tuple[Scale, ...] = ("linear", "sqrt", "log")
NAMES: dict[Scale, str] = {"linear": "linear", "sqrt": "square-root", "log": "logarithmic"}
TICKS: dict[Scale, dict[float, str]] = {
    "linear": {0.0: "0", 0.25: "0.25", 0.5: "0.5", 0.75: "0.75", 1.0: "1"},
    "sqrt": {0.0: "0", 0.01: "0.01", 0.1: "0.1", 0.25: "0.25", 0.5: "0.5", 1.0: "1"},
    "log": {1e-4: "≤ 0.0001", 1e-3: "0.001", 1e-2: "0.01", 1e-1: "0.1", 1.0: "1"},
}
"""Tick labels of the colour bar, by value."""
FLOOR = 1e-4
"""Weight at or below which all weights have the same colour on the logarithmic scale."""
MASKED = (226, 226, 226, 255)
"""RGBA colour of masked cells, a grey that is not in the colour map."""


def block_for(length: int, max_cells: int) -> int:
    """Return the smallest block size with which `length` tokens fit into `max_cells` cells.

    >>> block_for(256, 256), block_for(257, 256), block_for(1024, 256)
    (1, 2, 4)
    """
    return -(-length // max_cells)


def pooled(weights: Floats, block: int) -> Floats:
    """Return the largest weight of each block; NaN only if the whole block is masked.

    A mean would hide narrow patterns: in blocks of 4 x 4, the stripe of a previous-token head falls from 1 to 3/16.

    Args:
        weights: attention weights, (T, S), NaN where masked.
        block: number of rows and columns of a block; the last blocks may be smaller.

    Returns:
        Pooled weights, (ceil(T / block), ceil(S / block)).
    """
    if block == 1:
        return weights
    rows, columns = (block_for(length, block) for length in weights.shape)
    filled = np.full((rows * block, columns * block), np.nan, dtype=weights.dtype)
    filled[: weights.shape[0], : weights.shape[1]] = weights
    cells: Floats = np.fmax.reduce(filled.reshape(rows, block, columns, block), axis=(1, 3))
    return cells


def positions(weights: Floats, scale: Scale) -> Floats:
    """Return the position of each weight on the colour bar, 0 to 1; weights outside 0 to 1 are clipped."""
    clipped = np.clip(weights, 0.0, 1.0)
    match scale:
        case "linear":
            return clipped
        case "sqrt":
            return np.asarray(np.sqrt(clipped))
        case "log":
            return np.asarray(1 - np.log10(np.maximum(clipped, FLOOR)) / np.log10(FLOOR))


def painted(weights: Floats, scale: Scale) -> Pixels:
    """Convert weights to colours.

    Args:
        weights: weights from 0 to 1, (rows, columns), NaN where masked.
        scale: scale of the colours.

    Returns:
        RGBA pixels, (rows, columns, 4).
    """
    from matplotlib import colormaps

    pixels: Pixels = colormaps["viridis"](np.nan_to_num(positions(weights, scale)), bytes=True)
    pixels[np.isnan(weights)] = MASKED
    return pixels


def is_dark(weight: float, scale: Scale) -> bool:
    """Return whether the colour of a weight is so dark that text on it must be white."""
    return bool(positions(np.array(weight), scale) < 0.6)
