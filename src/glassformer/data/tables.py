"""Rows of CSV, TSV and JSONL text: find the column that holds the text, then give it row by row.

CSV follows RFC 4180 (with `,` or `;`); TSV is read without quoting, as most TSV files are written; JSONL has one object
in each line.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from glassformer.errors import GlassError, nearest

Format = Literal["csv", "tsv", "jsonl"]
FIELD_LIMIT = 64_000_000  # characters in one field; more means a quote that is never closed
SAMPLE_ROWS = 200
HEADER_CELL = re.compile(r"[\w][\w \-./()#:]{0,39}")


@dataclass(frozen=True)
class Column:
    """Where the text is: the key (JSONL) or the index from 0 (CSV, TSV), and whether row 1 is a header."""

    key: str | int
    header: bool
    delimiter: str
    note: str


def choose_column(chunks: Iterable[str], format: Format, wanted: str | None, name: str) -> Column:
    """Find the column called `wanted` (or number `wanted`, from 1), or the only one that reads like text.

    Raises:
        GlassError: there is no such column, or several could be meant; it names those there are.
    """
    lines = _lines(chunks, name)
    if format == "jsonl":
        return _json_column(lines, wanted, name)
    first = next(lines, "")
    delimiter = "\t" if format == "tsv" else (";" if first.count(";") > first.count(",") else ",")
    rows = list(islice(_rows(_again(first, lines), delimiter, name), SAMPLE_ROWS))
    if not rows:
        raise GlassError(f"{name} has no rows", "Give a table with at least one row of text.")
    names = [cell.strip() for cell in rows[0]]
    named = wanted is not None and wanted in names and not wanted.isdecimal()  # a number may be a value of row 1
    header = named or _is_header(rows)
    shown = names if header else [str(number + 1) for number in range(len(names))]
    if wanted is None:
        index = _only_text_column(list(map(list, zip(*_padded(rows[header:]), strict=True))), shown, name)
        return Column(index, header, delimiter, f"{name}: column {shown[index]!r} is read, the only one with text")
    if wanted in shown:
        return Column(shown.index(wanted), header, delimiter, f"{name}: column {wanted!r} is read")
    if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        return Column(int(wanted) - 1, header, delimiter, f"{name}: column number {wanted} is read")
    raise _no_column(wanted, shown, names, header, name)


def read_column(
    chunks: Iterable[str], format: Format, column: Column, name: str, left_out: Counter[str]
) -> Iterator[str]:
    """The text of each row; rows without it are counted in `left_out`."""
    if format == "jsonl":
        yield from _json_column_values(chunks, str(column.key), name, left_out)
        return
    index = int(column.key)
    for number, row in enumerate(_rows(_lines(chunks, name), column.delimiter, name)):
        if number == 0 and column.header:
            continue
        if len(row) > index:
            yield row[index]
        elif row:
            left_out["rows without that column"] += 1


def _lines(chunks: Iterable[str], name: str) -> Iterator[str]:
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


def _padded(rows: list[list[str]]) -> list[list[str]]:
    width = max((len(row) for row in rows), default=0)
    return [row + [""] * (width - len(row)) for row in rows if row]


def _is_header(rows: list[list[str]]) -> bool:
    """A header's cells are short, distinct names; with one row only, that row is data."""
    cells = [cell.strip() for cell in rows[0]]
    named = all(HEADER_CELL.fullmatch(c) and not c.replace(".", "").isdecimal() and c[-1] not in ".:" for c in cells)
    longest = max((len(cell) for row in rows[1:] for cell in row), default=0)
    return named and len(set(cells)) == len(cells) and len(rows) > 1 and longest > max(map(len, cells))


def _only_text_column(columns: list[list[str]], shown: list[str], name: str) -> int:
    """The index of the one column whose values are mostly several words or long; a single column is always it."""
    if len(columns) == 1:
        return 0

    def reads_like_text(cell: str) -> bool:
        return len(cell.split()) >= 3 or (len(cell) >= 20 and any(c.isalpha() for c in cell) and " " in cell)

    filled = [[cell for cell in column if cell.strip()] for column in columns]
    shares = [sum(map(reads_like_text, cells)) / len(cells) if cells else 0.0 for cells in filled]
    plausible = [index for index, share in enumerate(shares) if share >= 0.5]
    if len(plausible) == 1:
        return plausible[0]
    listed = ", ".join(shown)
    some = (
        f"columns {', '.join(shown[i] for i in plausible)} all hold text" if plausible else "no column reads like text"
    )
    raise GlassError(
        f"{name} has several columns ({listed}) and {some}", "Say which to read: set data.column to its name."
    )


def _no_column(wanted: str, shown: list[str], cells: list[str], header: bool, name: str) -> GlassError:
    if header:
        return GlassError(f"{name} has no column {wanted!r}; it has {', '.join(shown)}", nearest(wanted, shown))
    first = ", ".join(f"{number + 1}: {cell[:20]!r}" for number, cell in enumerate(cells))
    return GlassError(
        f"{name} has no column {wanted!r}; its first row does not look like names ({first})",
        f"Give a column number from 1 to {len(cells)}.",
    )


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


def _json_column(lines: Iterable[str], wanted: str | None, name: str) -> Column:
    rows = [row for _, row in islice(_json_rows(lines, name), SAMPLE_ROWS)]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    if not keys:
        raise GlassError(f"{name} has no rows", "Give a file with at least one JSON object.")
    if wanted is None:
        columns = [[v if isinstance(v := row.get(key), str) else "" for row in rows] for key in keys]
        key = keys[_only_text_column(columns, keys, name)]
        return Column(key, False, "", f"{name}: column {key!r} is read, the only one with text")
    if wanted not in keys:
        raise GlassError(f"{name} has no column {wanted!r}; it has {', '.join(keys)}", nearest(wanted, keys))
    return Column(wanted, False, "", f"{name}: column {wanted!r} is read")


def _json_column_values(chunks: Iterable[str], key: str, name: str, left_out: Counter[str]) -> Iterator[str]:
    for number, row in _json_rows(_lines(chunks, name), name):
        value = row.get(key)
        if not isinstance(value, str):
            left_out["rows without text in that column"] += 1
            continue
        if not value.isascii():
            _refuse_lone_surrogates(value, number, name)
        yield value


def _refuse_lone_surrogates(value: str, number: int, name: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise GlassError(
            f"line {number} of {name} holds half a character (\\u{ord(value[error.start]):04x}) in its text",
            "Write the character whole: characters beyond U+FFFF need both \\u escapes.",
        ) from None
