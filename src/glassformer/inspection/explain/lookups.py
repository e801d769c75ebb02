"""Operations that need more than the named matrices of a walk, such as table rows, rotations, biases and pooling."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from glassformer.inspection.explain.operations import CellDerivation, FormulaContext, Numbers
from glassformer.inspection.explain.sections import numbers
from glassformer.model.positions import (
    AlibiPositions,
    LearnedPositions,
    RelativePositions,
    SinusoidalPositions,
    alibi_slopes,
)
from glassformer.model.transformer import Block

Lines = tuple[tuple[str, float], ...]
Describe = Callable[[int, int], tuple[Lines, str]]
"""Function (row, column) -> the named values from which the cell is computed, and the name of the result."""


@dataclass(frozen=True)
class Lookup(ABC):
    """Operation that computes a whole matrix and describes each cell. Subclasses implement `look_up`."""

    @property
    @abstractmethod
    def formula(self) -> str:
        """Formula to print beside the matrix."""

    @abstractmethod
    def look_up(self, context: FormulaContext) -> tuple[Numbers, Describe]:
        """Return the matrix, and a function that describes its cells."""

    def compute_matrix(self, context: FormulaContext) -> Numbers:
        values, _ = self.look_up(context)
        return values

    def derive_cell(self, context: FormulaContext, row: int, column: int) -> CellDerivation:
        values, describe = self.look_up(context)
        lines, result_name = describe(row, column)
        return CellDerivation((*lines, (result_name, float(values[row, column]))))


@dataclass(frozen=True)
class EmbeddingRows(Lookup):
    """Rows of the embedding matrix, one per token, times the embedding scale."""

    scale: float

    @property
    def formula(self) -> str:
        rows = "rows of the embedding matrix"
        return rows if self.scale == 1 else f"{rows}, times {self.scale:.4f}"

    def look_up(self, context: FormulaContext) -> tuple[Numbers, Describe]:
        ids = context.ids
        rows = numbers(context.embedding.tokens.weight[list(ids)])  # (T, D)

        def describe(row: int, column: int) -> tuple[Lines, str]:
            label = f"row {ids[row]} (the token's id) of the embedding matrix, channel {column}"
            if self.scale == 1:
                return (), label
            return ((label, float(rows[row, column])),), f"times {self.scale:.4f}"

        return rows * self.scale, describe


@dataclass(frozen=True)
class PositionVectors(Lookup):
    """Vectors of the positions: rows of a learned table, sinusoids, or vectors of another position method."""

    @property
    def formula(self) -> str:
        return "position vectors"

    def look_up(self, context: FormulaContext) -> tuple[Numbers, Describe]:
        T = len(context.ids)
        positions = context.embedding.positions
        assert positions is not None
        if isinstance(positions, LearnedPositions):
            rows = numbers(positions.table.weight[:T])  # (T, D)
            return rows, lambda row, column: ((), f"row {row} of the position table, channel {column}")
        if not isinstance(positions, SinusoidalPositions):
            with torch.no_grad():
                rows = numbers(positions(torch.arange(T)[None])[0])  # (T, D)
            return rows, lambda row, column: ((), f"the vector of position {row}, channel {column}")
        width = positions.width
        frequency = 10_000.0 ** (-(np.arange(width) // 2 * 2) / width)  # (D)
        angles = np.arange(T)[:, None] * frequency  # (T, D)

        def describe(row: int, column: int) -> tuple[Lines, str]:
            function = "cos" if column % 2 else "sin"
            lines = (("position", float(row)), (f"frequency of channel {column}", float(frequency[column])))
            return lines, f"{function}(position · frequency)"

        return np.where(np.arange(width) % 2, np.cos(angles), np.sin(angles)), describe


@dataclass(frozen=True)
class Rotated(Lookup):
    """Queries or keys rotated by their positions (Su et al. 2021); channel i is paired with channel i + K/2."""

    name: str

    @property
    def formula(self) -> str:
        return f"{self.name} rotated"

    def look_up(self, context: FormulaContext) -> tuple[Numbers, Describe]:
        unrotated = context[self.name]
        rotary = context.stack.rotary
        assert rotary is not None
        half = unrotated.shape[1] // 2
        angles = np.arange(len(unrotated))[:, None] * rotary.base ** (
            -2 * np.arange(half) / unrotated.shape[1]
        )  # (T, K/2)
        cos = np.cos(angles)  # (T, K/2)
        sin = np.sin(angles)  # (T, K/2)
        first = unrotated[:, :half]  # (T, K/2)
        second = unrotated[:, half:]  # (T, K/2)

        def describe(row: int, column: int) -> tuple[Lines, str]:
            pair = column % half
            lines = (
                (f"first of the pair, {self.name}[{row}, {pair}]", float(first[row, pair])),
                (f"second of the pair, {self.name}[{row}, {pair + half}]", float(second[row, pair])),
                (f"angle: position {row} times the pair's frequency", float(angles[row, pair])),
            )
            return lines, "first · cos - second · sin" if column < half else "second · cos + first · sin"

        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=1), describe


@dataclass(frozen=True)
class DistanceBias(Lookup):
    """Bias added to each score, by the distance of query and key; -inf where the key is masked.

    Args:
        positions: value of `model.positions`.
    """

    positions: str

    @property
    def formula(self) -> str:
        names = {"alibi": "-slope · distance (ALiBi)", "relative": "learned, by distance (relative)"}
        return names.get(self.positions, f"by distance ({self.positions})")

    def look_up(self, context: FormulaContext) -> tuple[Numbers, Describe]:
        positions = context.stack.score_positions
        head = context.head
        assert positions is not None
        assert head is not None
        indices = np.arange(len(context.ids))
        relative_positions = indices[:, None] - indices  # (T, T)
        if isinstance(positions, AlibiPositions):
            slope = alibi_slopes(positions.heads)[head]

            def by_slope(row: int, column: int) -> tuple[Lines, str]:
                distance = float(abs(relative_positions[row, column]))
                return (("distance", distance), (f"slope of head {head}", slope)), "-slope · distance"

            return context.hide(-slope * np.abs(relative_positions)), by_slope
        if not isinstance(positions, RelativePositions):
            with torch.no_grad():
                bias = numbers(positions.by_distance(torch.from_numpy(relative_positions)[None])[0, head])  # (T, T)

            def by_distance(row: int, column: int) -> tuple[Lines, str]:
                return (
                    (("query position - key position", float(relative_positions[row, column])),),
                    f"the bias of head {head} at that distance",
                )

            return context.hide(bias), by_distance
        buckets = positions.bucket(torch.from_numpy(relative_positions)).numpy()  # (T, T)

        def by_bucket(row: int, column: int) -> tuple[Lines, str]:
            lines = (
                ("query position - key position", float(relative_positions[row, column])),
                ("its bucket", float(buckets[row, column])),
            )
            return lines, f"the learned bias of head {head} for the bucket"

        return context.hide(numbers(positions.table.weight)[buckets, head]), by_bucket


@dataclass(frozen=True)
class SizeOfAllHeads(Lookup):
    """Root mean square of the concatenated queries (or keys) of all heads; the walk shows only one head at a time.

    Args:
        which: "Q" or "K".
        x: name of the matrix that queries (or keys) are projected from.
        eps: number added to the mean square.
    """

    which: Literal["Q", "K"]
    x: str
    eps: float

    @property
    def formula(self) -> str:
        return f"√(mean square of all heads' {self.which} + {self.eps:g})"

    def look_up(self, context: FormulaContext) -> tuple[Numbers, Describe]:
        assert context.layer is not None
        block = context.stack.blocks[context.layer]
        assert isinstance(block, Block)
        layer = block.cross if context.cross else block.attention
        assert layer is not None
        linear = layer.query if self.which == "Q" else layer.key
        projected = context[self.x] @ numbers(linear.weight.T)  # (T, heads K)
        if linear.bias is not None:
            projected = projected + numbers(linear.bias)
        squares = (projected**2).mean(axis=1, keepdims=True)  # (T, 1)
        name = f"mean square of the {projected.shape[1]:,} numbers of all heads' {self.which}"
        size: Numbers = np.sqrt(squares + self.eps)
        return size, lambda row, column: (((name, float(squares[row, 0])),), f"√(mean square + {self.eps:g})")


@dataclass(frozen=True)
class Pooled(Lookup):
    """Vector that a classifier's head reads: the mean of all final vectors, or the final vector of the first token.

    Args:
        pooling: value of `model.pooling`.
    """

    pooling: str

    @property
    def formula(self) -> str:
        return "the mean of all rows above" if self.pooling == "mean" else "the first row above"

    def look_up(self, context: FormulaContext) -> tuple[Numbers, Describe]:
        rows = context["above"]  # (T, D)
        if self.pooling != "mean":
            return rows[:1], lambda row, column: ((), f"row 0 above, channel {column}")

        def mean(row: int, column: int) -> tuple[Lines, str]:
            return ((f"sum of channel {column}", math.fsum(rows[:, column])),), f"divided by {len(rows)} rows"

        return rows.mean(axis=0, keepdims=True), mean


@dataclass(frozen=True)
class NoHeads(Lookup):
    """Output of an attention layer that has neither heads, because all were removed, nor an output bias."""

    @property
    def formula(self) -> str:
        return "zeros: no head is left"

    def look_up(self, context: FormulaContext) -> tuple[Numbers, Describe]:
        zeros = np.zeros((len(context.ids), context.subject.model.config.width))  # (T, D)
        return zeros, lambda row, column: ((), "no head")
