"""Terminal text of a walk: plain lines for a terminal of `width` columns, readable without colour."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator

from glassformer.base.wording import Level, visible_text
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

ROWS = 12  # maximum number of rows to print of a matrix; tables have twice as many
LABEL = 12  # maximum number of terminal columns for a row label of a matrix
ShowInFull = Callable[[Section], bool]


def text_lines(walk: Walk, level: Level, width: int, in_full: ShowInFull) -> Iterator[str]:
    """Yield the lines of a walk.

    Args:
        walk: the walk to print.
        level: level of the explanations; each explanation is printed once.
        width: number of columns of the terminal.
        in_full: function that returns whether to print a section inside a layer, such as a head, in full; other
            sections inside layers get at most one line.
    """
    yield walk.title
    yield "═" * min(width, display_width(walk.title))
    text = walk.text if walk.text.strip() else visible_text(walk.text)  # make a text of only spaces visible
    yield from _wrapped(f"{'text' if walk.target is None else 'source'}: {text}", width, "")
    if walk.target is not None:
        yield from _wrapped(f"target: {walk.target}", width, "")
    yield from _wrapped(", ".join(f"{name} {value}" for name, value in walk.facts.items()), width, "")
    texts = wordings()
    explained: set[str] = set()
    for section in walk.sections:
        yield from _section(
            section,
            0,
            in_full,
            width,
            lambda key: () if key in explained else _explanation(key, explained, texts, level),
        )


def _explanation(key: str, explained: set[str], texts: dict[str, dict[Level, str]], level: Level) -> tuple[str, ...]:
    explained.add(key)
    return (texts[key][level],)


def _section(
    section: Section, depth: int, in_full: ShowInFull, width: int, explain: Callable[[str], tuple[str, ...]]
) -> Iterator[str]:
    if section.key not in ("layer", "cross") and section.layer is not None and not in_full(section):
        yield from _summary_line(section, width)
        return
    yield ""
    rule = "━" if depth == 0 or section.key == "layer" else "─"
    title = section.title
    if section.layer is not None and section.key != "layer":
        title += f"  (layer {section.layer}" + ("" if section.head is None else f", head {section.head}") + ")"
    yield f"{rule * 2} {title} {rule * max(2, width - display_width(title) - 4)}"
    for text in explain(section.key):
        yield from _wrapped(text, width, "   ")
    for note in section.notes:
        yield from _wrapped(f"→ {note}", width, "   ")
    for matrix in section.matrices:
        yield from _matrix(matrix, width)
    for table in section.tables:
        yield from _table(table, width)
    for child in section.children:
        yield from _section(child, depth + 1, in_full, width, explain)


def _summary_line(section: Section, width: int) -> Iterator[str]:
    """Yield one line for a head (its attention) or a residual stream (its statistics), and nothing for other steps."""
    if section.key == "head":
        yield truncate(f"   {section.title}: {section.notes[0]}", width)
    elif section.key == "residual":
        matrix = section.matrices[0]
        yield truncate(
            f"   {matrix.name} = {matrix.formula}: {statistics_line(matrix.statistics(), matrix.shape)}", width
        )


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    """Wrap text to at most min(100, `width`) columns; unlike `textwrap`, count wide characters as two columns."""
    limit = min(width, 100) - len(indent)
    lines = [""]
    for word in text.split():
        for part in _split_word(word, limit):
            longer = f"{lines[-1]} {part}" if lines[-1] else part
            if display_width(longer) > limit:
                lines.append(part)
            else:
                lines[-1] = longer
    return [indent + line for line in lines]


def _split_word(word: str, limit: int) -> list[str]:
    """Split a word into parts that each fit on a line."""
    parts = [""]
    for letter in word:
        if display_width(parts[-1] + letter) > limit:
            parts.append("")
        parts[-1] += letter
    return parts


def _matrix(matrix: Matrix, width: int) -> Iterator[str]:
    """Yield the lines of a matrix.

    If not all cells fit, yield the statistics and, except for parameters, the cells at the corners.
    """
    number_format = matrix.format()
    rows, columns = matrix.shape
    name = f"{matrix.name} = {matrix.formula}" if matrix.formula else matrix.name
    column_labels = [truncate(matrix.column_name(column), 8) for column in range(columns)]
    finite = [format(value, number_format) for value in matrix.statistics().values()]
    column_width = max(*map(len, finite), 4, max(map(display_width, column_labels)) if matrix.columns else 0) + 2
    label_width = max(display_width(truncate(matrix.row_name(row), LABEL)) for row in range(rows))
    row_indices = edges(rows, ROWS)
    column_indices = edges(columns, (width - 4 - label_width) // column_width)
    shortened = None in row_indices or None in column_indices
    yield ""
    if shortened and matrix.role == "parameters":
        yield f"   {name}: {statistics_line(matrix.statistics(), matrix.shape)}"
        return
    yield f"   {name}" + ("" if shortened else f"   ({rows} × {columns})")
    yield (
        "   "
        + " " * label_width
        + "".join(pad_left("…" if column is None else column_labels[column], column_width) for column in column_indices)
    )
    for row in row_indices:
        values = [
            "…" if row is None or column is None else format(matrix.values[row, column], number_format)
            for column in column_indices
        ]
        label = "…" if row is None else truncate(matrix.row_name(row), LABEL)
        yield "   " + pad_right(label, label_width) + "".join(pad_left(value, column_width) for value in values)
    if shortened:
        yield f"   {statistics_line(matrix.statistics(), matrix.shape)}"


def _table(table: SectionTable, width: int) -> Iterator[str]:
    rows = [None if index is None else table.rows[index] for index in edges(len(table.rows), 2 * ROWS)]
    texts = [["…"] * len(table.header) if row is None else [write_number(value) for value in row] for row in rows]
    max_width = max(8, width // len(table.header) - 3)
    columns = list(zip(table.header, *texts, strict=True))
    widths = [min(max_width, max(map(display_width, column))) for column in columns]
    yield ""
    yield f"   {table.name}"
    for row in [list(table.header), *texts]:
        yield "   " + "  ".join(pad_left(truncate(value, size), size) for value, size in zip(row, widths, strict=True))


def display_width(text: str) -> int:
    """Return the width of text in columns: 0 for combining and format characters, 2 for wide ones, 1 for others."""
    if text.isascii():
        return len(text)
    return sum(map(_letter_width, text))


def _letter_width(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def truncate(text: str, size: int) -> str:
    """Cut text to at most `size` columns, with "…" at the end if it was longer."""
    if display_width(text) <= size:
        return text
    while display_width(text) >= size:
        text = text[:-1]
    return text + "…"


def pad_right(text: str, size: int) -> str:
    """Pad text with spaces on the right to `size` columns."""
    return text + " " * (size - display_width(text))


def pad_left(text: str, size: int) -> str:
    """Pad text with spaces on the left to `size` columns."""
    return " " * (size - display_width(text)) + text
