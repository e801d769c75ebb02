"""HTML page of a walk: a single file that needs no network and no other file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from glassformer.base.errors import GlassError
from glassformer.base.files import convert_os_errors, refuse_no_file, write_text
from glassformer.base.pages import render_page
from glassformer.base.wording import Level
from glassformer.inspection.explain.sections import (
    Matrix,
    Section,
    SectionTable,
    Walk,
    edges,
    statistics_line,
    write_number,
)
from glassformer.inspection.explain.wording import wordings

MARK = '<meta name="generator" content="glass explain">'
MAX_FULL_SIZE = 16  # maximum number of rows or columns that are shown in full; a longer side is shortened to CORNER
CORNER = 9
LABELS: dict[Level, str] = {
    "school": "a school child",
    "student": "a student",
    "practitioner": "a practitioner",
    "engineer": "an engineer",
    "researcher": "a researcher",
}


def write_page(walk: Walk, level: Level, path: Path) -> None:
    """Write the HTML page of a walk atomically.

    Raises:
        GlassError: `check_writable` refuses `path`, or the file cannot be written.
    """
    check_writable(path)
    write_text(path, make_page(walk, level))


def check_writable(path: Path) -> None:
    """Check that `path` does not exist, or is a page that `glass explain` wrote.

    Raises:
        GlassError: `refuse_no_file` refuses `path`, or `path` is a file that cannot be read or was not written by
            `glass explain`.
    """
    refuse_no_file(path, "--html")
    if path.exists():
        with convert_os_errors(path), path.open("rb") as file:
            ours = MARK.encode() in file.read(2000)
        if not ours:
            raise GlassError(
                f"{path} exists and is not a page of glass explain", "Choose another name, or delete this file."
            )


@dataclass(frozen=True)
class MatrixCell:
    """Cell of a matrix on the page.

    Attributes:
        text: formatted number, or an ellipsis.
        weight: attention weight above 0, which sets the colour; None for other cells.
        faint: True for a masked score or a weight of 0.
    """

    text: str
    weight: str | None = None
    faint: bool = False


@dataclass(frozen=True)
class MatrixGrid:
    """Matrix on the page; of a large matrix, only the first and last rows and columns are shown.

    Attributes:
        columns: names of the columns.
        rows: name and cells of each row.
        scrolls: True if the matrix has so many columns that it may scroll; it can then have the keyboard focus.
    """

    columns: list[str]
    rows: list[tuple[str, list[MatrixCell]]]
    scrolls: bool


def make_page(walk: Walk, level: Level) -> str:
    """Return the HTML page, with explanations at `level` selected; readers can select another level."""
    firsts: dict[str, Section] = {}
    for section in walk.iter_sections():
        firsts.setdefault(section.key, section)
    return render_page(
        "glassformer.inspection.explain",
        "page.html",
        title=walk.title,
        walk=walk,
        level=level,
        levels=LABELS,
        wordings=wordings(),
        firsts=firsts,
        edge_rows=_edge_rows,
        edge_cells=_edge_cells,
        size_line=_size_line,
    )


def _is_large(matrix: Matrix) -> bool:
    return max(matrix.shape) > MAX_FULL_SIZE


def _size_line(matrix: Matrix) -> str:
    """Return the shape; for a large matrix, also the mean, standard deviation, minimum and maximum."""
    rows, columns = matrix.shape
    return statistics_line(matrix.statistics(), matrix.shape) if _is_large(matrix) else f"{rows} × {columns}"


def _edge_cells(matrix: Matrix) -> MatrixGrid | None:
    """Return the cells to show; None for large parameters, of which only statistics are shown."""
    if _is_large(matrix) and matrix.role == "parameters":
        return None
    row_indices, column_indices = (edges(size, size if size <= MAX_FULL_SIZE else CORNER) for size in matrix.shape)
    number_format = matrix.format()
    rows = [
        (
            "…" if row is None else matrix.row_name(row),
            [_matrix_cell(matrix, row, column, number_format) for column in column_indices],
        )
        for row in row_indices
    ]
    columns = ["…" if column is None else matrix.column_name(column) for column in column_indices]
    return MatrixGrid(columns, rows, len(column_indices) > CORNER)


def _matrix_cell(matrix: Matrix, row: int | None, column: int | None, number_format: str) -> MatrixCell:
    if row is None or column is None:
        return MatrixCell("…")
    value = float(matrix.values[row, column])
    text = f"{value:{number_format}}"
    if matrix.role == "weights" and value:
        return MatrixCell(text, weight=f"{value:.2f}")
    return MatrixCell(text, faint=matrix.role == "weights" or not math.isfinite(value))


def _edge_rows(table: SectionTable) -> list[list[str]]:
    """Return the rows of a table as text; of a long table, only the first and last rows."""
    rows = [None if index is None else table.rows[index] for index in edges(len(table.rows), 40)]
    return [["…"] * len(table.header) if row is None else list(map(write_number, row)) for row in rows]
