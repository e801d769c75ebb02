"""Rows of CSV, TSV and JSONL text, and what the first of them tell of the table.

CSV follows RFC 4180 (with `,` or `;`); TSV is read without quoting, as most TSV files are written; JSONL has one object
in each line. Which columns are wanted is for `columns` to decide.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from glassformer.errors import GlassError

Format = Literal["csv", "tsv", "jsonl"]
FIELD_LIMIT = 64_000_000  # characters in one field; more means a quote that is never closed
SAMPLE_ROWS = 200
SAMPLE_CHARACTERS = 400  # of one cell: enough to tell a text from a name
HEADER_CELL = re.compile(r"[\w][\w \-./()#:]{0,39}")


@dataclass(frozen=True)
class Table:
    """What the first rows of a table tell.

    Attributes:
        delimiter: between cells; none in JSONL.
        header: row 1 holds the names of the columns.
        names: the columns: those names, or the keys of JSON objects, or numbers from 1.
        first: the cells of row 1 (CSV, TSV).
        columns: the values of each column in the first rows, long ones cut; None where a row has none.
    """

    name: str
    format: Format
    delimiter: str
    header: bool
    names: tuple[str, ...]
    first: tuple[str, ...]
    columns: tuple[tuple[object, ...], ...]


def describe(
    chunks: Iterable[str],
    format: Format,
    wanted: Sequence[str],
    name: str,
    rows: int = SAMPLE_ROWS,
    holds_names: Callable[[list[list[str]]], bool] = lambda rows: True,
    usual: Callable[[list[str]], bool] = lambda cells: False,
) -> Table:
    """Look at the first rows.

    Args:
        wanted: columns asked for; one that stands in row 1 makes that a header.
        rows: how many to look at.
        holds_names: asked about these rows, where the first looks like a header: whether it is one.
        usual: asked about the cells of row 1: whether all are usual names, which make it one whatever their length.

    Raises:
        GlassError: there are no rows, or they are no table.
    """
    lines = text_lines(chunks, name)
    if format == "jsonl":
        objects = [{k: _cut(v) for k, v in row.items()} for _, row in islice(_json_rows(lines, name), rows)]
        keys = tuple(dict.fromkeys(key for row in objects for key in row))
        if not keys:
            raise GlassError(f"{name} has no rows", "Give a file with at least one JSON object.")
        values = tuple(tuple(row.get(key) for row in objects) for key in keys)
        return Table(name, format, "", False, keys, (), values)
    first = next(lines, "")
    delimiter = "\t" if format == "tsv" else (";" if first.count(";") > first.count(",") else ",")
    found = [
        [cell[:SAMPLE_CHARACTERS] for cell in row] for row in islice(_rows(_again(first, lines), delimiter, name), rows)
    ]
    if not found:
        raise GlassError(f"{name} has no rows", "Give a table with at least one row of text.")
    cells = [cell.strip() for cell in found[0]]
    named = any(one in cells and not one.isdecimal() for one in wanted)  # a number may be a value of row 1
    header = named or (_is_header(found, usual(cells)) and holds_names(found))
    names = cells if header else [str(number + 1) for number in range(len(cells))]
    columns = tuple(
        tuple(row[index] if index < len(row) else None for row in found[header:] if row) for index in range(len(names))
    )
    return Table(name, format, delimiter, header, tuple(names), tuple(cells), columns)


def read_cells(chunks: Iterable[str], table: Table, indices: Sequence[int]) -> Iterator[list[object]]:
    """The values of these columns in each row, None where a row has none; text in CSV and TSV, anything in JSONL.

    Raises:
        GlassError: a row that is no row of such a table.
    """
    lines = text_lines(chunks, table.name)
    if table.format == "jsonl":
        keys = [table.names[index] for index in indices]
        for number, row in _json_rows(lines, table.name):
            values = [row.get(key) for key in keys]
            for value in values:
                if isinstance(value, str) and not value.isascii():
                    _refuse_lone_surrogates(value, number, table.name)
            yield values
        return
    for number, cells in enumerate(_rows(lines, table.delimiter, table.name)):
        if cells and not (number == 0 and table.header):
            yield [cells[index] if index < len(cells) else None for index in indices]


def text_lines(chunks: Iterable[str], name: str) -> Iterator[str]:
    """Lines with their ends kept; only `\\n` ends a line here, so `\\r\\n` inside quotes stays."""
    carry = ""
    for chunk in chunks:
        *whole, carry = (carry + chunk).split("\n")
        for line in whole:
            yield line + "\n"
        if len(carry) > FIELD_LIMIT:
            raise GlassError(
                f"a line of {name} is longer than {FIELD_LIMIT:,} characters", "Is it a table? Give plain text as .txt."
            )
    if carry:
        yield carry


def _again(first: str, rest: Iterator[str]) -> Iterator[str]:
    if first:
        yield first
    yield from rest


def _cut(value: object) -> object:
    if isinstance(value, list | dict):
        return None
    return value[:SAMPLE_CHARACTERS] if isinstance(value, str) else value


def _rows(lines: Iterator[str], delimiter: str, name: str) -> Iterator[list[str]]:
    csv.field_size_limit(FIELD_LIMIT)
    unquoted = delimiter == "\t"
    reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE if unquoted else csv.QUOTE_MINIMAL)
    try:
        yield from reader
    except csv.Error as error:
        raise GlassError(
            f"{name} is not a valid table near line {reader.line_num}: {error}",
            "Correct that line (a quote that is never closed?), or save the text as a .txt file.",
        ) from None


def _is_header(rows: list[list[str]], usual: bool) -> bool:
    """A header's cells are distinct names, shorter than what follows unless `usual`; a single row is data."""
    cells = [cell.strip() for cell in rows[0]]
    named = all(HEADER_CELL.fullmatch(c) and not c.replace(".", "").isdecimal() and c[-1] not in ".:" for c in cells)
    longest = max((len(cell) for row in rows[1:] for cell in row), default=0)
    return named and len(set(cells)) == len(cells) and len(rows) > 1 and (usual or longest > max(map(len, cells)))


def _json_rows(lines: Iterable[str], name: str) -> Iterator[tuple[int, dict[str, object]]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            why = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else str(error)
            raise GlassError(
                f"line {number} of {name} is not JSON: {why}",
                "JSONL has one JSON object in each line: correct that line.",
            ) from None
        if not isinstance(value, dict):
            raise GlassError(
                f"line {number} of {name} holds a {type(value).__name__}, not an object",
                'Write each line as {"text": "..."}.',
            )
        yield number, value


def _refuse_lone_surrogates(value: str, number: int, name: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise GlassError(
            f"line {number} of {name} holds half a character (\\u{ord(value[error.start]):04x}) in its text",
            "Write the character whole: characters beyond U+FFFF need both \\u escapes.",
        ) from None
