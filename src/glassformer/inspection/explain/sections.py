"""Sections of a walk: the matrices, tables and notes from which the terminal text, the page and the JSON are made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from glassformer.inspection.explain.operations import Numbers, Operation

Role = Literal["values", "weights", "parameters"]
Cell = str | int | float


@dataclass(frozen=True, eq=False)
class Matrix:
    """Matrix of a forward pass: computed values or parameters.

    Attributes:
        name: name of the matrix in formulas.
        operation: operation that computes the matrix from earlier ones; None for parameters.
        values: (rows, columns), -inf where a score is masked.
        rows, columns: labels of the rows and of the columns; if empty, rows or columns are numbered from 0.
        role: kind of content; attention weights are drawn as a heat map, and of large parameters only statistics
            are shown.
    """

    name: str
    operation: Operation | None
    values: Numbers
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    role: Role = "values"

    @property
    def formula(self) -> str:
        """Formula of the operation; an empty string for parameters."""
        return "" if self.operation is None else self.operation.formula

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and number of columns."""
        return self.values.shape[0], self.values.shape[1]

    def statistics(self) -> dict[str, float]:
        """Return the mean, population standard deviation, minimum and maximum of the finite values."""
        finite = self.values[np.isfinite(self.values)].astype(np.float64)
        return {
            "mean": float(finite.mean()),
            "sd": float(finite.std()),
            "min": float(finite.min()),
            "max": float(finite.max()),
        }

    def format(self) -> str:
        """Return the number format: four decimals, or scientific notation for a matrix of very large or small values.

        Scientific notation is used if the largest absolute value is at least 10,000, or below 0.01 but not 0.
        """
        finite = np.abs(self.values[np.isfinite(self.values)])
        largest = float(finite.max(initial=0.0))
        return ".4f" if largest == 0 or 0.01 <= largest < 10_000 else ".2e"

    def row_name(self, index: int) -> str:
        """Return the label of a row."""
        return self.rows[index] if self.rows else str(index)

    def column_name(self, index: int) -> str:
        """Return the label of a column."""
        return self.columns[index] if self.columns else str(index)


@dataclass(frozen=True)
class SectionTable:
    """Table of a section: a name, a header, and rows of words and numbers."""

    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, eq=False)
class Section:
    """One step of a walk.

    Attributes:
        key: key of the explanations in `wording.toml`.
        title: displayed title.
        matrices, tables: results of this step.
        notes: sentences about these results.
        children: steps that this step consists of.
        layer, head: numbers, from 0, of the layer and head that this step belongs to; None if it belongs to none.
        output: for a layer, name of the matrix that the next layer reads.
    """

    key: str
    title: str
    matrices: tuple[Matrix, ...] = ()
    tables: tuple[SectionTable, ...] = ()
    notes: tuple[str, ...] = ()
    children: tuple[Section, ...] = ()
    layer: int | None = None
    head: int | None = None
    output: str = ""

    def iter_sections(self) -> Iterator[Section]:
        """Yield this section and all its descendants, in order."""
        yield self
        for child in self.children:
            yield from child.iter_sections()


@dataclass(frozen=True, eq=False)
class Walk:
    """Walk through one forward pass, from the text to the prediction.

    Attributes:
        title: displayed title.
        text, target: input text, and target text of an encoder-decoder (otherwise None).
        facts: main settings and sizes of the model, by name.
        sections: the steps.
        predictions: tables of the last step, which the page also shows first.
    """

    title: str
    text: str
    target: str | None
    facts: dict[str, str]
    sections: tuple[Section, ...]
    predictions: tuple[SectionTable, ...]

    def iter_sections(self) -> Iterator[Section]:
        """Yield all sections, in order."""
        for section in self.sections:
            yield from section.iter_sections()


def numbers(x: Tensor) -> Numbers:
    """Convert a tensor (rows, columns), or one row (columns,), to a float64 matrix, without changing any value."""
    values = x.detach().to(device="cpu").double().numpy()
    matrix: Numbers = values[None] if values.ndim == 1 else values
    return matrix


def parameters(x: Tensor) -> Numbers:
    """Convert parameters (rows, columns), or one row, to a matrix; float32 parameters on the CPU are not copied."""
    if x.dtype != torch.float32:
        return numbers(x)
    values = x.detach().to(device="cpu").numpy()
    matrix: Numbers = values[None] if values.ndim == 1 else values
    return matrix


def edges(size: int, max_entries: int) -> list[int | None]:
    """Return the indices from 0 to `size` - 1; shorten a list of more than `max_entries` indices.

    A shortened list has the first indices, None for the gap, and the last two indices: `max_entries` entries in all,
    but at least four. A list of up to three indices is never shortened.

    >>> edges(3, 5), edges(9, 6), edges(3, 1)
    ([0, 1, 2], [0, 1, 2, None, 7, 8], [0, 1, 2])
    """
    if size <= max(max_entries, 3):
        return list(range(size))
    return [*range(max(1, max_entries - 3)), None, size - 2, size - 1]


def write_number(value: Cell) -> str:
    """Format a cell of a table; a float has four decimals, or scientific notation if 0 < |value| < 1e-4.

    >>> write_number(0.25), write_number(0.00001), write_number(3), write_number("cat")
    ('0.2500', '1.0e-05', '3', 'cat')
    """
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4f}" if abs(value) >= 1e-4 or value == 0 else f"{value:.1e}"


def statistics_line(statistics: dict[str, float], shape: Sequence[int]) -> str:
    """Format a matrix's shape and statistics (mean, sd, min, max) as one line."""
    return f"{shape[0]} × {shape[1]}; " + ", ".join(f"{name} {value:.4g}" for name, value in statistics.items())
