"""Conversion of a walk to JSON."""

from __future__ import annotations

import math
from typing import Any

from glassformer.base.wording import Level
from glassformer.inspection.explain.sections import Matrix, Section, Walk, edges
from glassformer.inspection.explain.wording import wordings

VALUES = 4096  # maximum number of entries of a matrix that is given in full
CORNER = 16  # maximum number of rows, and of columns, that are given of a larger matrix; a gap counts as one


def walk_facts(walk: Walk, level: Level) -> dict[str, Any]:
    """Return a walk as a JSON-serializable dict; masked scores (-inf) become None.

    Matrices of more than `VALUES` entries are shortened to their corners.
    """
    texts = wordings()
    return {
        "title": walk.title,
        "text": walk.text,
        "target": walk.target,
        "level": level,
        "model": walk.facts,
        "sections": [_section(section, texts, level) for section in walk.sections],
    }


def _section(section: Section, texts: dict[str, dict[Level, str]], level: Level) -> dict[str, Any]:
    return {
        "step": section.key,
        "title": section.title,
        "layer": section.layer,
        "head": section.head,
        "words": texts[section.key][level],
        "notes": list(section.notes),
        "matrices": [_matrix(matrix) for matrix in section.matrices],
        "tables": [
            {"name": table.name, "header": list(table.header), "rows": [list(row) for row in table.rows]}
            for table in section.tables
        ],
        "sections": [_section(child, texts, level) for child in section.children],
    }


def _matrix(matrix: Matrix) -> dict[str, Any]:
    rows, columns = matrix.shape
    max_shape = (rows, columns) if rows * columns <= VALUES else (CORNER, CORNER)
    row_indices = [row for row in edges(rows, max_shape[0]) if row is not None]
    column_indices = [column for column in edges(columns, max_shape[1]) if column is not None]
    values = matrix.values[row_indices][:, column_indices]
    return {
        "name": matrix.name,
        "formula": matrix.formula,
        "role": matrix.role,
        "shape": [rows, columns],
        **matrix.statistics(),
        "whole": len(row_indices) == rows and len(column_indices) == columns,
        "rows": row_indices,
        "columns": column_indices,
        "values": [[value if math.isfinite(value) else None for value in row] for row in values.tolist()],
    }
