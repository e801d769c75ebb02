"""Values of a walk that are not computed from shown matrices.

They are embedding rows, sinusoidal and rotary positions, and position biases.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from glassformer.inspection.explain.arithmetic import FormulaContext, Working
from glassformer.inspection.explain.sections import Numbers, numbers
from glassformer.model.positions import (
    AlibiPositions,
    LearnedPositions,
    RelativePositions,
    SinusoidalPositions,
    alibi_slopes,
)
from glassformer.model.transformer import Block

Lines = tuple[tuple[str, float], ...]


@dataclass(frozen=True, eq=False)
class LookedUp:
    """Matrix with a description of how each cell is obtained.

    Attributes:
        values: the matrix.
        how: function of row and column that returns the inputs of the cell and a description of the last step.
    """

    values: Numbers
    how: Callable[[int, int], tuple[Lines, str]]

    def whole(self) -> Numbers:
        """Return the matrix."""
        return self.values

    def at(self, row: int, column: int) -> Working:
        """Return the derivation of one cell."""
        before, last = self.how(row, column)
        return Working((*before, (last, float(self.values[row, column]))))


def embedding_rows(context: FormulaContext, times: str | None) -> LookedUp:
    """Return the rows of the embedding matrix for the tokens, (T, D), multiplied by the embedding scale."""
    table = context.embedding.tokens.weight
    scale = context.embedding.scale
    ids = context.ids
    rows = numbers(table[list(ids)])  # (T, D)

    def how(row: int, column: int) -> tuple[Lines, str]:
        entry = f"row {ids[row]} of the embedding matrix, the token's id, channel {column}"
        return ((), entry) if times is None else (((entry, float(rows[row, column])),), f"times {scale:.4f}")

    return LookedUp(rows * scale, how)


def position_vectors(context: FormulaContext) -> LookedUp:
    """Return the position vectors (T, D): rows of a learned table, sinusoids, or the output of another module."""
    T = len(context.ids)
    positions = context.embedding.positions
    assert positions is not None
    if isinstance(positions, LearnedPositions):
        rows = numbers(positions.table.weight[:T])  # (T, D)
        return LookedUp(rows, lambda row, column: ((), f"row {row} of the position table, channel {column}"))
    if not isinstance(positions, SinusoidalPositions):
        with torch.no_grad():
            rows = numbers(positions(torch.arange(T)[None])[0])  # (T, D)
        return LookedUp(rows, lambda row, column: ((), f"the vector of position {row}, channel {column}"))
    width = positions.width
    frequency = 10_000.0 ** (-(np.arange(width) // 2 * 2) / width)  # (D)
    angles = np.arange(T)[:, None] * frequency  # (T, D)

    def how(row: int, column: int) -> tuple[Lines, str]:
        wave = "cos" if column % 2 else "sin"
        before = (("position", float(row)), (f"frequency of channel {column}", float(frequency[column])))
        return before, f"{wave}(position · frequency)"

    return LookedUp(np.where(np.arange(width) % 2, np.cos(angles), np.sin(angles)), how)


def rotated(context: FormulaContext, name: str) -> LookedUp:
    """Return queries or keys rotated by their positions, in pairs of channels i and i + K/2."""
    before = context[name]
    rotary = context.stack.rotary
    assert rotary is not None
    half = before.shape[1] // 2
    angles = np.arange(len(before))[:, None] * rotary.base ** (-2 * np.arange(half) / before.shape[1])  # (T, K/2)
    cos = np.cos(angles)  # (T, K/2)
    sin = np.sin(angles)  # (T, K/2)
    first = before[:, :half]  # (T, K/2)
    second = before[:, half:]  # (T, K/2)

    def how(row: int, column: int) -> tuple[Lines, str]:
        pair = column % half
        lines = (
            (f"first of the pair, {name}[{row}, {pair}]", float(first[row, pair])),
            (f"second of the pair, {name}[{row}, {pair + half}]", float(second[row, pair])),
            (f"angle: position {row} times the pair's frequency", float(angles[row, pair])),
        )
        return lines, "first · cos - second · sin" if column < half else "second · cos + first · sin"

    return LookedUp(np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=1), how)


def distance_bias(context: FormulaContext) -> LookedUp:
    """Return the biases that distances add to the scores, (T, T); -inf where a key is masked."""
    positions = context.stack.score_positions
    head = context.head
    assert head is not None
    rows = np.arange(len(context.ids))  # (T)
    back = rows[:, None] - rows  # (T, T)
    if isinstance(positions, AlibiPositions):
        slope = alibi_slopes(positions.heads)[head]

        def how(row: int, column: int) -> tuple[Lines, str]:
            return (("distance", float(abs(back[row, column]))), (f"slope of head {head}", slope)), "-slope · distance"

        return LookedUp(context.hide(-slope * np.abs(back)), how)
    assert positions is not None
    if not isinstance(positions, RelativePositions):
        with torch.no_grad():
            bias = numbers(positions.by_distance(torch.from_numpy(back)[None])[0, head])  # (T, T)

        def computed(row: int, column: int) -> tuple[Lines, str]:
            return (("distance back", float(back[row, column])),), f"the bias of head {head} at that distance"

        return LookedUp(context.hide(bias), computed)
    buckets = positions.bucket(torch.from_numpy(back)).numpy()  # (T, T)

    def learnt(row: int, column: int) -> tuple[Lines, str]:
        lines = (("distance back", float(back[row, column])), ("bucket of the distance", float(buckets[row, column])))
        return lines, f"learned bias of head {head} for the bucket"

    return LookedUp(context.hide(numbers(positions.table.weight)[buckets, head]), learnt)


def root_mean_square(context: FormulaContext, which: str, eps: str) -> LookedUp:
    """Return the root mean square of the queries, or keys, of all heads together, (T, 1)."""
    assert context.layer is not None
    block = context.stack.blocks[context.layer]
    assert isinstance(block, Block)
    layer = block.cross if context.cross else block.attention
    assert layer is not None
    linear = layer.query if which == "Q" else layer.key
    made = context[f"read for {which}"] @ numbers(linear.weight.T)  # (T, heads K)
    if linear.bias is not None:
        made = made + numbers(linear.bias)
    squares = (made**2).mean(axis=1, keepdims=True)  # (T, 1)
    what = f"mean square of the {made.shape[1]:,} numbers of all heads' {which}"
    return LookedUp(
        np.sqrt(squares + float(eps)),
        lambda row, column: (((what, float(squares[row, 0])),), f"√(mean square + {eps})"),
    )


def pooled(context: FormulaContext, how: str) -> LookedUp:
    """Return the pooled vector that a classifier's head reads, (1, D)."""
    rows = context["above"]  # (T, D)
    if how == "first row":
        return LookedUp(rows[:1], lambda row, column: ((), f"row 0 above, channel {column}"))

    def mean(row: int, column: int) -> tuple[Lines, str]:
        return ((f"sum of channel {column}", math.fsum(rows[:, column])),), f"divided by {len(rows)} rows"

    return LookedUp(rows.mean(axis=0, keepdims=True), mean)


def no_heads(context: FormulaContext) -> LookedUp:
    """Return the output of an attention layer without heads: zeros (T, D)."""
    return LookedUp(
        np.zeros((len(context.ids), context.subject.model.config.width)), lambda row, column: ((), "no head")
    )
