"""Open a table (CSV, TSV, JSONL) and read its rows, in the same way for every task.

`open_table` detects the dialect and the names of the columns; `columns` chooses columns; `read_rows` yields the chosen
values of each row, and counts the rows that it leaves out or changes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted, listed, span
from glassformer.text.column_names import judge_row_1, usual_names
from glassformer.text.delimited import Dialect, Record, find_dialect, records, refuse_old_line_ends, text_lines
from glassformer.text.left_out import Tally

Format = Literal["csv", "tsv", "jsonl"]
SAMPLE_ROWS = 2000  # rows from which columns are chosen; many, because files are often sorted by label
SAMPLE_CHARACTERS = 400  # of one cell: enough to tell a text from a name
SHOWN_CHARACTERS = 40  # of a cell, in a message
ONLY_TABLES = ("header", "delimiter", "quoting", "extra_fields")
"""Settings of `data` for CSV and TSV tables only."""
BEYOND = {
    "cut": "rows with more fields than the table has columns (the extra fields are not read)",
    "join": "rows with more fields than the table has columns (the extra fields are joined to the last column)",
}
EMPTY = "rows with extra fields that are empty (these fields are dropped)"
LATE = f"rows with keys that do not occur in the first {SAMPLE_ROWS:,} rows and are not read"
SHOWN_KEYS = 10
BREAKS = "rows with line breaks in quotes"


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object; raise a `ValueError` for a key that occurs twice, of which Python would keep the last."""
    values = dict(pairs)
    if len(values) < len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"an object has the key {key!r} twice")
    return values


JSON = json.JSONDecoder(parse_constant=lambda constant: None, object_pairs_hook=_object)
"""Decoder that reads NaN and Infinity as null. They are not JSON, but Python writes them for missing numbers."""


@dataclass(frozen=True)
class Table:
    """Description of a table: how to read it, its columns, and the values in its first rows.

    Attributes:
        name: name of the file.
        format: format of the file.
        dialect: dialect of CSV and TSV; None: JSONL.
        header: whether row 1 contains the names of the columns.
        names: names of the columns, from row 1 or the keys of JSON objects; without names, numbers from 1.
        first: the cells of row 1 (CSV, TSV).
        columns: the values of each column in the first rows; long values are cut. None for a missing value, a list or
            an object.
        extra_fields: how to treat fields beyond the columns: `data.extra_fields`, with "auto" resolved.
        notes: notes for the user.
    """

    name: str
    format: Format
    dialect: Dialect | None
    header: bool
    names: tuple[str, ...]
    first: tuple[str, ...]
    columns: tuple[tuple[object, ...], ...]
    extra_fields: Literal["refuse", "cut", "join"]
    notes: tuple[str, ...]


def open_table(open_text: Callable[[], Iterable[str]], format: Format, name: str, data: DataConfig) -> Table:
    """Open a table, and detect its dialect and columns from its first rows.

    Args:
        open_text: function that opens the decoded text again.
        format: format that the file's name indicates.
        name: the file's name, for messages.
        data: settings; if they name a column by a name in row 1, row 1 is a header, unless `header` is no.

    Raises:
        GlassError: there are no rows of data, a line is not a valid row, or the rows seem to be sentences or to have
            more fields than the table has columns.
    """
    requested_names = wanted_columns(data)
    if format == "jsonl":
        return _open_json_lines(open_text, name, requested_names)
    dialect, notes = find_dialect(open_text, format, name, data)
    numbered_rows = [
        (first, [cell[:SAMPLE_CHARACTERS] for cell in cells])
        for first, cells, _ in islice(records(text_lines(open_text(), name), dialect, name), SAMPLE_ROWS)
    ]
    if not numbered_rows:
        raise GlassError(f"{name} has no rows", "Give a table with at least one row of text.")
    rows = [cells for _, cells in numbered_rows]
    first_row = [cell.strip() for cell in rows[0]]
    header = _has_header(rows, first_row, name, data, requested_names, notes)
    if not header and (data.delimiter, data.extra_fields) == ("auto", "auto"):
        _refuse_sentences(rows, dialect.delimiter, name, any(map(str.isdecimal, requested_names)))
    names = (
        _unique_names(first_row, name, notes) if header else [str(number + 1) for number in range(_usual_width(rows))]
    )
    extra_fields: Literal["refuse", "cut", "join"]
    if data.extra_fields == "auto":
        extra_fields = "cut" if dialect.delimiter == "\t" else "refuse"
        _refuse_wide_rows(rows, len(names), name)
    else:
        extra_fields = data.extra_fields
    columns = tuple(
        tuple(row[index] if index < len(row) else None for row in rows[header:]) for index in range(len(names))
    )
    return Table(name, format, dialect, header, tuple(names), tuple(first_row), columns, extra_fields, tuple(notes))


def wanted_columns(data: DataConfig) -> list[str]:
    """Return the columns that the settings name; `data.column` may be one name, or several separated by commas."""
    texts = [part.strip() for part in data.column.split(",")] if data.column is not None else []
    return [name for name in (data.column, *texts, data.target_column, data.label_column) if name is not None]


def refuse_idle_settings(tables: Iterable[Table], data: DataConfig, name: str) -> None:
    """Raise a `GlassError` if a setting for CSV and TSV tables is given, but the source `name` has no such table."""
    if any(table.dialect is not None for table in tables):
        return
    for setting in ONLY_TABLES:
        value = getattr(data, setting)
        if value != "auto":
            raise GlassError(
                f"data.{setting} = {value} was given, but {name} has no CSV or TSV table",
                f"Leave data.{setting} out, or give a file that ends in .csv or .tsv (.gz too).",
            )


def read_rows(
    chunks: Iterable[str], table: Table, indices: Sequence[int], tally: Tally
) -> Iterator[tuple[int, list[object]]]:
    """Yield the line number of each row, and its values in these columns: text in CSV and TSV, any value in JSONL.

    Rows of CSV and TSV that lack one of the columns are left out and counted; the value of a missing JSON key is None.
    Rows with JSON keys that are no columns of the table are counted.

    Raises:
        GlassError: a row cannot be read or has extra fields that are refused.
    """
    lines = text_lines(chunks, table.name)
    if table.dialect is None:
        return _json_values(lines, table, indices, tally)
    return _delimited_values(records(lines, table.dialect, table.name), table, indices, tally)


def _delimited_values(
    rows: Iterator[Record], table: Table, indices: Sequence[int], tally: Tally
) -> Iterator[tuple[int, list[object]]]:
    width = len(table.names)
    needed = max(indices) + 1
    names = next(rows)[1] if table.header else None
    for first, cells, lines in rows:
        if cells == names:
            tally.leave_out("rows with the names of row 1", f"line {first} of {table.name}")
            continue
        if len(lines) > 1:
            where = f"lines {span(first, first + len(lines) - 1)} of {table.name}"
            tally.remark(BREAKS, where, len(lines) - 1)
        if len(cells) > width:
            cells = _fit_row(cells, table, first, tally)
        if len(cells) < needed:
            tally.leave_out("rows with too few fields", f"line {first} of {table.name}")
        else:
            yield first, [cells[index] for index in indices]


def _fit_row(cells: list[str], table: Table, line: int, tally: Tally) -> list[str]:
    """Return the cells to read from a row that has more fields than the table has columns."""
    assert table.dialect is not None
    width = len(table.names)
    if table.extra_fields != "join" and not any(map(str.strip, cells[width:])):
        tally.remark(EMPTY, f"line {line} of {table.name}")
        return cells
    if table.extra_fields == "refuse":
        raise GlassError(
            f"line {line} of {table.name} has {len(cells)} fields, but the table has {width}: "
            f"the first extra field is {cells[width][:SHOWN_CHARACTERS]!r}",
            "Put text that contains the delimiter in quotes, or set data.extra_fields to join (append the extra "
            "fields to the last column) or cut (drop them).",
        )
    tally.remark(BEYOND[table.extra_fields], f"line {line} of {table.name}")
    if table.extra_fields == "join":
        return [*cells[: width - 1], table.dialect.delimiter.join(cells[width - 1 :])]
    return cells


# Row 1


def _has_header(
    rows: Sequence[Sequence[str]],
    first_row: Sequence[str],
    name: str,
    data: DataConfig,
    requested_names: Sequence[str],
    notes: list[str],
) -> bool:
    """Return whether row 1 has names: by `data.header`, by a column that the settings name, or by its cells."""
    if data.header == "no":
        return False
    # A number may be a value.
    has_names = data.header == "yes" or any(
        column in first_row and not column.isdecimal() for column in requested_names
    )
    if len(rows) == 1 and (has_names or usual_names([cell for cell in first_row if cell])):
        raise GlassError(
            f"{name} has no rows below the names {', '.join(first_row)}",
            "Give rows of text, or set data.header = no if these are not names.",
        )
    if has_names:
        return True
    verdict = judge_row_1(rows)
    if verdict == "doubtful":
        notes.append(
            f"{name}: row 1 ({', '.join(first_row)}) is read as data; data.header = yes reads it as column names"
        )
    return verdict == "names"


def _unique_names(cells: Sequence[str], name: str, notes: list[str]) -> list[str]:
    """Return the names of the columns, all different; a column without a name is named by its number."""
    names: list[str] = []
    for number, cell in enumerate(cells, start=1):
        unique_name = cell or str(number)
        suffix = 2
        while unique_name in names:
            unique_name = f"{cell}.{suffix}"
            suffix += 1
        if cell and unique_name != cell:
            which = {2: "second", 3: "third"}.get(suffix - 1, f"{suffix - 1}th")
            notes.append(f"{name}: row 1 names two columns {cell}; the {which} is called {unique_name}")
        names.append(unique_name)
    return names


def _usual_width(rows: Sequence[Sequence[str]]) -> int:
    """Return the most frequent number of fields, the first if several are equally frequent."""
    return Counter(map(len, rows)).most_common(1)[0][0]


def _refuse_wide_rows(rows: Sequence[Sequence[str]], width: int, name: str) -> None:
    """Raise a `GlassError` if most rows have a non-empty field beyond the first `width`, the number of columns."""
    wide = sum(len(row) > width and any(map(str.strip, row[width:])) for row in rows[1:])
    if 2 * wide > len(rows):
        raise GlassError(
            f"{wide:,} of the first {len(rows) - 1:,} rows of {name} have more fields than its "
            f"{counted(width, 'columns')}",
            "Name every column in row 1 (the first column may lack a name), or set data.extra_fields to join or cut.",
        )


def _refuse_sentences(rows: Sequence[Sequence[str]], delimiter: str, name: str, numbered: bool) -> None:
    """Raise a `GlassError` if the delimiters seem to be punctuation in sentences, which must not be split.

    In rows of several widths, a space follows each delimiter. In rows of one width, a space follows some delimiters in
    every row, but not all; they are read if the settings name a column by its number (`numbered`).
    """
    widths = sorted(set(map(len, rows)))
    spaced = begin_with_spaces([[row[index] for row in rows if len(row) > index] for index in range(1, widths[-1])])
    is_prose = all(spaced) if len(widths) > 1 else any(spaced) and not all(spaced) and not numbered
    if delimiter != "\t" and spaced and is_prose:
        raise sentences(name, widths, delimiter, "each" if all(spaced) else "the same")


def begin_with_spaces(columns: Iterable[Sequence[object]]) -> list[bool]:
    """Return for each column that is not empty whether all its cells begin with a space, as after a comma in prose."""
    texts = [[cell for cell in cells if isinstance(cell, str) and cell] for cells in columns]
    return [all(cell.startswith(" ") for cell in cells) for cells in texts if cells]


def sentences(name: str, widths: Sequence[int], delimiter: str, which: Literal["each", "the same"]) -> GlassError:
    """Return the error for rows that seem to be sentences, from the ascending numbers of their fields."""
    return GlassError(
        f"the rows of {name} have {' to '.join(map(str, dict.fromkeys((widths[0], widths[-1]))))} fields, and a space "
        f"after {which} {delimiter!r}, as sentences do",
        "Put each text in quotes, or rename the file to .txt; to read it as columns, set data.column or "
        "data.delimiter.",
    )


# JSON


def _open_json_lines(open_text: Callable[[], Iterable[str]], name: str, requested_names: Sequence[str]) -> Table:
    first = next(text_lines(open_text(), name), "")
    refuse_old_line_ends([first], name)
    rows = _json_rows(text_lines(open_text(), name), name)
    objects = [{key: _truncate(value) for key, value in row.items()} for _, row in islice(rows, SAMPLE_ROWS)]
    keys = list(dict.fromkeys(key for row in objects for key in row))
    if not keys:
        raise GlassError(f"{name} has no rows", "Give a file with at least one JSON object.")
    for _, row in rows if set(requested_names) - set(keys) else ():  # a key may first appear far below
        keys += [key for key in row if key not in keys]
        if not set(requested_names) - set(keys):
            break
    values = tuple(tuple(row.get(key) for row in objects) for key in keys)
    return Table(name, "jsonl", None, False, tuple(keys), (), values, "cut", ())


def _truncate(value: object) -> object:
    if isinstance(value, list | dict):
        return None
    return value[:SAMPLE_CHARACTERS] if isinstance(value, str) else value


def _json_values(
    lines: Iterable[str], table: Table, indices: Sequence[int], tally: Tally
) -> Iterator[tuple[int, list[object]]]:
    keys = [table.names[index] for index in indices]
    known = frozenset(table.names)
    for number, row in _json_rows(lines, table.name):
        if not known.issuperset(row):
            late = [key[:SHOWN_CHARACTERS] for key in row if key not in known]
            tally.remark(LATE, f"{listed(late, SHOWN_KEYS)} in line {number} of {table.name}", len(late))
        values = [row.get(key) for key in keys]
        for value in values:
            if isinstance(value, str) and not value.isascii():
                _refuse_lone_surrogates(value, number, table.name)
        yield number, values


def _json_rows(lines: Iterable[str], name: str) -> Iterator[tuple[int, dict[str, object]]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = JSON.decode(line)
        except (ValueError, RecursionError) as error:
            reason = (
                f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else str(error)
            )
            raise GlassError(
                f"line {number} of {name} is not JSON: {reason}",
                "Correct that line: JSONL has one JSON object in each line.",
            ) from None
        if not isinstance(value, dict):
            raise GlassError(
                f"line {number} of {name} contains a value of type {type(value).__name__}, not an object",
                'Write one JSON object in each line, such as {"text": "..."}.',
            )
        yield number, value


def _refuse_lone_surrogates(value: str, number: int, name: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise GlassError(
            f"line {number} of {name} has a lone surrogate (\\u{ord(value[error.start]):04x}) in its text",
            "Write both \\u escapes of the character (a surrogate pair), or remove the escape.",
        ) from None
