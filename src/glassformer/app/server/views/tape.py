"""Forward tape: the matrices of one forward pass, step by step, and the computation of each cell.

Without `matrix`, the steps of one part of the model::

    {"parts": [{"title": "Layer 0", "matrices": 40}], "part": 3, "pass": "observed",
     "facts": {"family": …}, "words": {key: {level: …}},
     "steps": [{"key": "projections", "title": …, "depth": 1, "layer": 0, "head": 0, "notes": […],
                "tables": [{"name": …, "header": […], "rows": [[…]]}],
                "matrices": [{"number": 17, "name": "Q", "formula": "N1 W_Q", "role": "values", "shape": [9, 16],
                              "first": [0.1, …]}]}]}

With `matrix`, a window of that matrix: binary, float32 row by row, -inf for masked scores, with the header::

    {"number": 17, "name": …, "formula": …, "role": …, "shape": [9, 16], "start": [0, 0], "window": [9, 16],
     "rows": [names] | null, "columns": [names] | null, "statistics": {"mean", "sd", "min", "max"},
     "difference": 2e-7 | null}

`difference` is the largest absolute difference between the matrix and its formula, evaluated in float64 on the matrices
before it; null for a parameter, which has no formula. With `matrix` and `cell`, the computation of that cell, with the
value in the matrix (`shown`) and the recomputed value (`again`; null for a parameter)::

    {"matrix": 17, "cell": [2, 5], "shown": 0.12, "again": 0.12 | null, "lines": [["sum of 64 products", 0.12]],
     "products": {"left": "N1[2, :]", "right": "W_Q[:, 5]", "factors": [[0.3, -0.1]]} | null}
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import Binary, PageView, TextQuestion, script
from glassformer.app.server.views.text_case import longest_input
from glassformer.base.errors import GlassError
from glassformer.inspection.explain import Matrix, Section, Subject, Tape, make_tape, tape_bytes
from glassformer.inspection.explain.wording import wordings

MOST_BYTES = 512 * 2**20
"""Maximum size of a tape in bytes."""
CELLS = 1 << 17
"""Maximum number of cells of a window."""
SIDE = 2_048
"""Maximum number of rows, and of columns, of a window."""
FIRST = 5
"""Maximum number of values of each matrix in the list of steps: the first values of its first row."""
Index = Annotated[int, Field(ge=0, le=10_000_000)]


class TapeQuestion(TextQuestion):
    """Request for a part of the tape of a text.

    Attributes:
        part: number of the part of the model whose steps are listed, from 0.
        matrix: number of a matrix on the tape; None: return the list of steps.
        row, column: first row and column of the window; reduced if the window would extend beyond the matrix.
        cell: row and column of a cell whose computation is returned; None: return the window.
    """

    part: Index = 0
    matrix: Index | None = None
    row: Index = 0
    column: Index = 0
    cell: tuple[Index, Index] | None = None


def answer(opened: ServedModel, question: TapeQuestion) -> dict[str, Any] | Binary:
    """Return the steps of one part of the model, a window of one matrix, or the computation of one cell."""
    tape = _tape(opened, question)
    if question.matrix is None:
        return _contents(tape, question.part)
    if question.cell is None:
        return _window(tape, question.matrix, question.row, question.column)
    return _cell_result(tape, question.matrix, *question.cell)


def _tape(opened: ServedModel, question: TapeQuestion) -> Tape:
    subject = opened.subject(question.text, question.target)
    _refuse_long(subject)
    key = "tape", question.text, question.target
    return opened.cached(key, lambda: make_tape(subject), lambda tape: _nbytes(subject))


def _nbytes(subject: Subject) -> int:
    target = None if subject.target_ids is None else len(subject.target_ids)
    return tape_bytes(subject.model, len(subject.ids), target)


def _refuse_long(subject: Subject) -> None:
    size = _nbytes(subject)
    tokens = max(len(subject.ids), len(subject.target_ids or ()))
    if size <= MOST_BYTES:
        return
    other = None if subject.target_ids is None else 1
    max_tokens = next(
        n for n in range(tokens, 0, -1) if tape_bytes(subject.model, n, other and n) <= MOST_BYTES or n == 1
    )
    raise GlassError(
        f"{longest_input(subject)}: all numbers of the forward pass would take {size / 2**20:,.0f} MiB, "
        f"but at most {MOST_BYTES / 2**20:,.0f} MiB are allowed",
        f"Give inputs of at most {max_tokens:,} tokens, or use the attention map of one head.",
    )


def _contents(tape: Tape, part: int) -> dict[str, Any]:
    if part >= len(tape.parts):
        raise GlassError(f"there is no part {part} on this tape", f"Give a part from 0 to {len(tape.parts) - 1}.")
    counts = [0] * len(tape.parts)
    for step in tape.steps:
        counts[step.part] += len(step.section.matrices)
    steps = [step for step in tape.steps if step.part == part]
    texts = wordings()
    return {
        "parts": [{"title": title, "matrices": count} for title, count in zip(tape.parts, counts, strict=True)],
        "part": part,
        "pass": "observed",
        "facts": tape.walk.facts,
        "words": {key: texts[key] for key in dict.fromkeys(step.section.key for step in steps)},
        "steps": [_step(step.section, step.depth, step.first) for step in steps],
    }


def _step(section: Section, depth: int, first: int) -> dict[str, Any]:
    return {
        "key": section.key,
        "title": section.title,
        "depth": depth,
        "layer": section.layer,
        "head": section.head,
        "notes": list(section.notes),
        "tables": [
            {"name": t.name, "header": list(t.header), "rows": [list(row) for row in t.rows]} for t in section.tables
        ],
        "matrices": [
            {"number": number, **_name(matrix), "first": matrix.values[0, :FIRST].astype(float).tolist()}
            for number, matrix in enumerate(section.matrices, start=first)
        ],
    }


def _name(matrix: Matrix) -> dict[str, Any]:
    return {"name": matrix.name, "formula": matrix.formula, "role": matrix.role, "shape": list(matrix.shape)}


def _window(tape: Tape, number: int, row: int, column: int) -> Binary:
    matrix = tape.matrix(number)
    height, width = _window_shape(*matrix.shape)
    row = max(0, min(row, matrix.shape[0] - height))
    column = max(0, min(column, matrix.shape[1] - width))
    row_range = range(row, row + height)
    column_range = range(column, column + width)
    header = {
        "number": number,
        **_name(matrix),
        "start": [row, column],
        "window": [height, width],
        "rows": [matrix.row_name(n) for n in row_range] if matrix.rows else None,
        "columns": [matrix.column_name(n) for n in column_range] if matrix.columns else None,
        "statistics": matrix.statistics(),
        "difference": tape.difference(number),
    }
    values = np.ascontiguousarray(matrix.values[row : row + height, column : column + width], dtype="<f4")
    return Binary(header, values.tobytes())


def _window_shape(rows: int, columns: int) -> tuple[int, int]:
    """Return the height and width of the window; for a large matrix, the longer side is reduced first."""
    height = min(rows, SIDE)
    width = min(columns, SIDE)
    if height * width <= CELLS:
        return height, width
    short = min(height, width, math.isqrt(CELLS))
    long = min(max(height, width), CELLS // short)
    return (short, long) if height <= width else (long, short)


def _cell_result(tape: Tape, number: int, row: int, column: int) -> dict[str, Any]:
    derivation = tape.derive_cell(number, row, column)
    value = float(tape.matrix(number).values[row, column])
    location = {"matrix": number, "cell": [row, column]}
    if derivation is None:
        return {**location, "shown": value, "again": None, "lines": [], "products": None}
    derived_products = derivation.products
    products = (
        None
        if derived_products is None
        else {"left": derived_products.left, "right": derived_products.right, "factors": derived_products.factors}
    )
    return {**location, "shown": value, "again": derivation.value, "lines": derivation.lines, "products": products}


def python(opened: ServedModel, question: TapeQuestion) -> str:
    """Return a script that prints the matrix and its difference, the computation of the cell, or the list of steps."""
    target = "" if question.target is None else f", {question.target!r}"
    lines = [
        "from glassformer.inspection.explain import make_tape, unshortened_subject_of",
        "",
        f"tape = make_tape(unshortened_subject_of(model, {question.text!r}{target}))",
    ]
    if question.matrix is None:
        lines += [
            "for number, matrix in enumerate(tape.matrices):",
            f"    first = matrix.values[0, :{FIRST}].tolist()",
            "    print(number, matrix.name, matrix.formula, matrix.shape, first)",
        ]
    elif question.cell is None:
        lines += [
            f"print(tape.matrix({question.matrix}).values.tolist())",
            f"print(tape.difference({question.matrix}))",
        ]
    else:
        row, column = question.cell
        lines += [
            f"print(tape.matrix({question.matrix}).values[{row}, {column}])",
            f"print(tape.derive_cell({question.matrix}, {row}, {column}))",
        ]
    return script(opened, *lines)


VIEW = PageView(TapeQuestion, answer, python)
