"""Pool a window of an attention pattern into the cells of a map, and encode the cells as numbers or bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.app.server.views.attention.attention_pass import LayerPass
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.inspection.plots import Floats, Scale, block_for
from glassformer.inspection.plots.cells import positions

Bools = npt.NDArray[np.bool_]
Aggregate = Literal["max", "sum"]
Form = Literal["uint8", "float32"]
HIDDEN = 255
"""Byte that represents a masked cell."""
FULL = 254
"""Byte that represents the weight 1; the error of rounding to a byte is at most 1/508 of the scale."""
Span = tuple[int, int] | None
"""Start and stop of a range of positions; None: all positions."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Pooled window of an attention pattern.

    Attributes:
        cells: (R, C) float32, NaN where the whole block is masked.
        row_sums: (R,) float64, sum of the weights of a row over all keys of the text, averaged over the rows of a
            block: 1 up to rounding, or less if some of these rows are fully masked.
        largest: largest weight in the window.
    """

    cells: Floats
    row_sums: Floats
    largest: float


def window(span: Span, length: int, what: str) -> slice:
    """Return a range of positions as a slice.

    Args:
        span: start and stop of the range; None: all positions.
        length: number of tokens.
        what: name of the positions in the error, such as "queries".

    Raises:
        GlassError: the range is empty, or exceeds the tokens.
    """
    start, stop = (0, length) if span is None else span
    if not 0 <= start < stop <= length:
        raise GlassError(
            f"the {what} [{start}, {stop}) are empty, or are not within the {counted(length, 'tokens')}",
            f"Give positions from 0 to {length - 1}; a range [start, stop] needs start < stop <= {length}.",
        )
    return slice(start, stop)


def cells_of(
    layer: LayerPass, rows: slice, keys: slice, block: int, aggregate: Aggregate, weights: Callable[[slice], Tensor]
) -> Cells:
    """Pool a window of an attention pattern.

    Args:
        layer: attention layer of the head.
        rows, keys: rows and keys of the window.
        block: side of the square block of weights that becomes one cell, in tokens.
        aggregate: "max": the largest weight of the block, for display, because a mean would hide a stripe that is one
            token wide. "sum": the sum over the keys of the block, averaged over its rows, so that the cells of a row
            over all keys still sum to 1.
        weights: function that returns some rows of the pattern, (rows, S), 0 where masked.
    """
    cells = []
    sums = []
    largest = 0.0
    for chunk in layer.chunks(rows, block):
        pattern = weights(chunk)  # (rows, S)
        starts = np.arange(0, len(pattern), block)
        sums.append(np.add.reduceat(pattern.double().sum(dim=-1).numpy(), starts) / np.diff([*starts, len(pattern)]))
        part = pattern[:, keys]
        largest = max(largest, float(part.max()))
        pooled_part = pooled(part, block) if aggregate == "max" else summed(part, block)
        cells.append(np.where(hidden(layer, chunk, keys, block), np.nan, pooled_part.numpy()))
    return Cells(np.concatenate(cells), np.concatenate(sums), largest)


def hidden(layer: LayerPass, rows: slice, keys: slice, block: int) -> Bools:
    """Return whether each block is fully masked, (R, C)."""
    allowed = layer.allowed(rows)[:, keys].float().cpu()
    masked: Bools = (pooled(allowed, block) == 0).numpy()
    return masked


def pooled(weights: Tensor, block: int) -> Tensor:
    """Return the largest weight of each block: (…, T, S) -> (…, R, C); masked weights are 0."""
    if block == 1:
        return weights
    images = weights.reshape(1, -1, *weights.shape[-2:])
    return F.max_pool2d(images, block, ceil_mode=True).reshape(*weights.shape[:-2], *_blocks(weights, block))


def summed(weights: Tensor, block: int) -> Tensor:
    """Return the sum over each block's keys, averaged over its rows: (T, S) -> (R, C), float32."""
    starts, keys = (np.arange(0, length, block) for length in weights.shape)
    sizes = np.diff([*starts, len(weights)])
    key_sums = np.add.reduceat(weights.double().numpy(), keys, axis=1)  # (T, C)
    return torch.from_numpy(np.add.reduceat(key_sums, starts, axis=0) / sizes[:, None]).float()


def _blocks(weights: Tensor, block: int) -> tuple[int, int]:
    """Return the shape (R, C) of the pooled map."""
    T, S = weights.shape[-2:]
    return block_for(T, block), block_for(S, block)


def as_bytes(cells: Iterable[Floats], form: Form, scale: Scale) -> bytes:
    """Concatenate maps as float32 (NaN where masked), or as one byte for each cell (`HIDDEN` where masked)."""
    if form == "float32":
        return b"".join(np.ascontiguousarray(each, dtype="<f4").tobytes() for each in cells)
    return b"".join(_bytes(each, scale) for each in cells)


def _bytes(cells: Floats, scale: Scale) -> bytes:
    steps = np.rint(np.nan_to_num(positions(cells, scale)) * FULL)
    return np.where(np.isnan(cells), HIDDEN, steps).astype(np.uint8).tobytes()
