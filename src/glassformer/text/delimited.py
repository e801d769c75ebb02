"""Detect the dialect of CSV and TSV text, and read its records with their line numbers."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Literal

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError
from glassformer.base.wording import quoted, span

FIELD_LIMIT = 64_000_000  # maximum characters in a cell or a line; a longer cell must have an unclosed quote
SAMPLE_LINES = 200
SAMPLE_TEXT = 1_000_000  # characters
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
LEAST_ROWS = 3  # with fewer lines, unequal numbers of cells do not rule out the usual delimiter
SWALLOWED = 3  # minimum number of lines of quoted cells that look like rows, to refuse a record
QUOTED = r'"([^"]*+(?:""[^"]*+)*+)"'
NUMBER = re.compile(r"[+-]?\d*[.,]?\d*(?:[eE][+-]?\d+)?|NA")
STRAY = 'Write a quote inside a quoted cell as "", or set data.quoting to '
Record = tuple[int, int, list[str]]
"""The first and the last line number of a record, and its cells."""


@dataclass(frozen=True)
class Dialect:
    """The dialect of a CSV or TSV file.

    Attributes:
        delimiter: the character between cells.
        quoting: "standard": a quoted cell ends at the next quote that is not doubled (RFC 4180). "spaced": the same,
            with spaces around the delimiter. "line": a quoted cell ends on the line where it begins, and a stray
            quote is an ordinary character. "none": every quote is an ordinary character.
        skipped: number of lines above row 1.
        refuse_embedded_rows: for standard quoting, whether to refuse a quoted cell that seems to contain rows.
    """

    delimiter: str
    quoting: Literal["standard", "spaced", "line", "none"]
    skipped: int
    refuse_embedded_rows: bool


def text_lines(chunks: Iterable[str], name: str) -> Iterator[str]:
    """Yield lines with their line ends. Only `\\n` ends a line; `\\r` is left unchanged.

    Raises:
        GlassError: a line is longer than `FIELD_LIMIT` characters.
    """
    carry = ""
    line_number = 1
    for chunk in chunks:
        *complete_lines, carry = (carry + chunk).split("\n")
        line_number += len(complete_lines)
        for line in complete_lines:
            yield line + "\n"
        if len(carry) > FIELD_LIMIT:
            raise GlassError(
                f"line {line_number:,} of {name} is longer than {FIELD_LIMIT:,} characters",
                "Shorten this line, or, if the file is plain text and not a table, give it a name that ends in .txt.",
            )
    if carry:
        yield carry


def records(lines: Iterator[str], dialect: Dialect, name: str) -> Iterator[Record]:
    """Yield the records of a table; blank lines are skipped.

    Raises:
        GlassError: a quote is not closed or is closed inside a cell, an unquoted cell has a carriage return inside, a
            cell is longer than `FIELD_LIMIT` characters, or a quoted cell seems to contain rows (if
            `dialect.refuse_embedded_rows`).
    """
    table_lines = islice(lines, dialect.skipped, None)
    if dialect.quoting == "standard":
        return _standard_records(table_lines, dialect, name)
    if dialect.quoting == "spaced":
        return _spaced_records(table_lines, dialect, name)
    if dialect.quoting == "line":
        return _line_records(table_lines, dialect)
    return _unquoted_records(table_lines, dialect, name)


def _standard_records(lines: Iterator[str], dialect: Dialect, name: str) -> Iterator[Record]:
    record_lines: list[str] = []  # the lines of the current record

    def collect_lines() -> Iterator[str]:
        for line in lines:
            record_lines.append(line)
            yield line

    csv.field_size_limit(FIELD_LIMIT)
    first = dialect.skipped + 1
    width = 0
    try:
        for cells in csv.reader(collect_lines(), delimiter=dialect.delimiter, strict=True):
            last = first + len(record_lines) - 1
            if cells:
                width = width or len(cells)
                if last > first and dialect.refuse_embedded_rows:
                    _refuse_swallowed_rows(cells, dialect.delimiter, width, (first, last), name)
                yield first, last, cells
            first = last + 1
            record_lines.clear()
    except csv.Error as error:
        raise _csv_error("".join(record_lines), dialect, first, name, str(error)) from None


def _spaced_records(lines: Iterator[str], dialect: Dialect, name: str) -> Iterator[Record]:
    for first, last, cells in _spaced_cells(lines, dialect, name):
        yield first, last, [text for text, _ in cells]


def _spaced_cells(
    lines: Iterator[str], dialect: Dialect, name: str
) -> Iterator[tuple[int, int, list[tuple[str, bool]]]]:
    """Yield records whose cells may be surrounded by spaces, and for each cell whether spaces surround its quotes."""
    end = re.escape(dialect.delimiter)
    cell_pattern = re.compile(rf'([ ]*+)(?:{QUOTED}([ ]*+)|([^{end}"\r\n][^{end}\r\n]*|))(?:({end})|\r?\n|\Z)')
    record_lines: list[str] = []
    quotes = 0
    first = dialect.skipped + 1
    for line in chain(lines, [""]):  # the empty line ends the last record
        record_lines.append(line)
        quotes += line.count('"')
        if line and quotes % 2:
            continue
        record = "".join(record_lines)
        cells: list[tuple[str, bool]] = []
        position = 0
        separator: str | None = dialect.delimiter
        while separator:
            match = cell_pattern.match(record, position)
            if match is None:
                raise _csv_error(record, dialect, first, name, "a quote")
            space_before, quoted_text, space_after, unquoted_text, separator = match.groups()
            text = unquoted_text.strip() if quoted_text is None else quoted_text.replace('""', '"')
            cells.append((text, quoted_text is not None and bool(space_before or space_after)))
            position = match.end()
        if position < len(record):
            raise _csv_error(record, dialect, first, name, "a quote")
        if record.strip():
            yield first, first + len(record_lines) - 1, cells
        first += len(record_lines)
        record_lines.clear()
        quotes = 0


def _line_records(lines: Iterator[str], dialect: Dialect) -> Iterator[Record]:
    split = _line_splitter(dialect.delimiter)
    for number, line in enumerate(lines, start=dialect.skipped + 1):
        if line.strip("\r\n"):
            yield number, number, split(line)


def _line_splitter(delimiter: str) -> Callable[[str], list[str]]:
    """Return a function that splits one line into cells. Quotes around a cell are removed; a stray quote is kept."""
    end = re.escape(delimiter)
    cell_pattern = re.compile(rf"(?:{QUOTED}|([^{end}]*))(?:({end})|\Z)")

    def split(line: str) -> list[str]:
        line = line.rstrip("\r\n")
        if '"' not in line:
            return line.split(delimiter)
        cells: list[str] = []
        position = 0
        separator: str | None = delimiter
        while separator:
            match = cell_pattern.match(line, position)
            assert match is not None  # the second alternative matches anything
            quoted_text, unquoted_text, separator = match.groups()
            cells.append(unquoted_text if quoted_text is None else quoted_text.replace('""', '"'))
            position = match.end()
        return cells

    return split


def _unquoted_records(lines: Iterator[str], dialect: Dialect, name: str) -> Iterator[Record]:
    csv.field_size_limit(FIELD_LIMIT)
    reader = csv.reader(lines, delimiter=dialect.delimiter, quoting=csv.QUOTE_NONE)
    try:
        for cells in reader:
            if cells:
                number = dialect.skipped + reader.line_num
                yield number, number, cells
    except csv.Error as error:
        raise _csv_error("", dialect, dialect.skipped + reader.line_num, name, str(error)) from None


# Errors


def _refuse_swallowed_rows(cells: Sequence[str], delimiter: str, width: int, lines: tuple[int, int], name: str) -> None:
    row_count, line_count = _count_inner_rows(cells, delimiter, width)
    if row_count >= SWALLOWED and 2 * row_count >= line_count:
        raise GlassError(
            f"lines {span(*lines)} of {name} are one quoted cell, and {row_count:,} of its lines look like rows",
            f"{STRAY}line (a stray quote is a character), none (every quote is a character) or standard "
            "(the lines stay one cell).",
        )


def _count_inner_rows(cells: Sequence[str], delimiter: str, width: int) -> tuple[int, int]:
    """Return, over all cells with several lines, the number of lines that look like rows and the number of lines.

    The first line of each cell is not counted.
    """
    inner_lines = [line for cell in cells if "\n" in cell for line in cell.split("\n")[1:]]
    if width < 2:
        return 0, len(inner_lines)
    return sum(_looks_like_a_row(line, delimiter, width) for line in inner_lines), len(inner_lines)


def _looks_like_a_row(line: str, delimiter: str, width: int) -> bool:
    """Return whether a line has as many cells as a row, no cell is empty, and no later cell begins with a space.

    In prose, a space follows most delimiters, such as commas.
    """
    parts = line.rstrip("\r").split(delimiter)
    return len(parts) == width and all(parts) and not any(part[0].isspace() for part in parts[1:])


def _csv_error(record: str, dialect: Dialect, first_line: int, name: str, error: str) -> GlassError:
    """Return the error for a record that begins on line `first_line` and is not valid CSV."""
    unclosed_cell = _find_unclosed_cell(record, dialect)
    if "new-line" in error:
        line = first_line + max(0, record.count("\n") - 1)
        return GlassError(
            f"line {line} of {name} has a carriage return in a cell without quotes",
            "Put that cell in quotes, or remove the character.",
        )
    if unclosed_cell is None or "limit" in error:
        return GlassError(
            f"{name} is not a valid table near line {first_line}: {error}",
            "Correct that line (check for an unclosed quote), or save the text as a .txt file.",
        )
    column, start, end = unclosed_cell
    line, character = _line_and_column(record, start)
    problem = f"line {first_line + line}, column {column} of {name}: the quote at character {character} is "
    if end is None:
        problem += "never closed"
    else:
        last, closing = _line_and_column(record, end - 1)
        where = f"at character {closing}" if last == line else f"in line {first_line + last}"
        problem += f"closed {where}, but text follows"
    return GlassError(problem, f"{STRAY}line (a stray quote is a character) or none (every quote is a character).")


def _line_and_column(text: str, position: int) -> tuple[int, int]:
    """Return the line of a character, from 0, and its column in that line, from 1."""
    return text.count("\n", 0, position), position - text.rfind("\n", 0, position)


def _find_unclosed_cell(record: str, dialect: Dialect) -> tuple[int, int, int | None] | None:
    """Return the column, start and end of the first quoted cell that does not end correctly; None if there is none.

    The column is counted from 1. The end is None if there is no closing quote.
    """
    spaces = re.compile("[ ]*+" if dialect.quoting == "spaced" else "")
    in_quotes = re.compile(rf"{QUOTED}{spaces.pattern}")
    ends = re.compile(rf"[{re.escape(dialect.delimiter)}\n]")
    column = 1
    position = 0
    while position < len(record):
        space = spaces.match(record, position)
        start = position if space is None else space.end()
        if record.startswith('"', start):
            match = in_quotes.match(record, start)
            if match is None:
                return column, start, None
            position = match.end()
            if record[position : position + 1] not in (dialect.delimiter, "\r", "\n", ""):
                return column, start, match.end(1) + 1
        end = ends.search(record, position)
        if end is None:
            return None
        column = column + 1 if end[0] == dialect.delimiter else 1
        position = end.end()
    return None


# Dialect


def find_dialect(
    open_text: Callable[[], Iterable[str]], format: Literal["csv", "tsv"], name: str, data: DataConfig
) -> tuple[Dialect, list[str]]:
    """Return the dialect of a table, detected from its first lines, and notes for the user.

    Args:
        open_text: function that opens the text again. A tab-separated table may be read to its end, to find out whether
            its quotes are ordinary characters.
        format: format that the file's name indicates.
        name: the file's name, for messages.
        data: settings; `delimiter` and `quoting` override the detection, unless they are "auto".

    Raises:
        GlassError: the lines end with carriage returns alone, or a line is longer than `FIELD_LIMIT` characters.
    """
    sample = _sample(text_lines(open_text(), name))
    refuse_old_line_ends(sample[:1], name)
    delimiter, skipped, notes = _detect_delimiter(sample, format, name, data)
    quoting = data.quoting
    if quoting != "auto":
        return Dialect(delimiter, quoting, skipped, False), notes
    if delimiter == "\t":
        machine_quoted, position = _is_machine_quoted(islice(text_lines(open_text(), name), skipped, None), skipped)
        if machine_quoted:
            notes.append(f"{name}: the quotes around cells are removed; data.quoting = none keeps them")
            return Dialect(delimiter, "standard", skipped, True), notes
        if position:
            notes.append(
                f"{position} of {name} begins with a quote, which is not removed; "
                "data.quoting = standard removes the quotes around cells"
            )
        return Dialect(delimiter, "none", skipped, False), notes
    spaced = Dialect(delimiter, "spaced", skipped, True)
    if _is_spaced(sample[skipped:], spaced, name):
        return spaced, notes
    return replace(spaced, quoting="standard"), notes


def refuse_old_line_ends(first: Sequence[str], name: str) -> None:
    """Raise a `GlassError` if the first line has no line feed but has carriage returns before its end, outside quotes.

    Args:
        first: a sequence of only the first line; empty if the text is empty.
        name: the file's name, for messages.
    """
    for line in first:
        if not line.endswith("\n") and "\r" in re.sub(QUOTED, "", line).rstrip("\r\n"):
            raise GlassError(
                f"the lines of {name} end with carriage returns alone, as on old Macs",
                "Turn them into line feeds, in the folder of the file: "
                f"tr '\\r' '\\n' < {quoted(name)} > {quoted(f'new-{name}')}",
            )


def _sample(lines: Iterator[str]) -> list[str]:
    """Return the first `SAMPLE_LINES` lines, or fewer if they exceed `SAMPLE_TEXT` characters in total."""
    sample: list[str] = []
    size = 0
    for line in islice(lines, SAMPLE_LINES):
        sample.append(line)
        size += len(line)
        if size > SAMPLE_TEXT:
            break
    return sample


def _detect_delimiter(
    sample: Sequence[str], format: Literal["csv", "tsv"], name: str, data: DataConfig
) -> tuple[str, int, list[str]]:
    """Return the delimiter, the number of lines above row 1, and notes on both."""
    declaration = re.fullmatch(r"sep=(.)\r?\n?", sample[0]) if sample else None
    skipped = 1 if declaration else 0
    comments = len(sample) - skipped
    for number, line in enumerate(sample[skipped:]):
        if not line.startswith("#"):
            comments = number
            break
    data_lines = [line for line in sample[skipped + comments :] if line.strip()]
    if data.delimiter != "auto":
        delimiter = DELIMITERS[data.delimiter]
    else:
        delimiter = declaration[1] if declaration else _likeliest_delimiter(data_lines or sample, format)
    notes: list[str] = []
    split = _line_splitter(delimiter)
    if comments and data_lines and len(split(data_lines[0])) != len(split(sample[skipped])):
        lines = f"line {skipped + 1} begins" if comments == 1 else f"lines {skipped + 1} to {skipped + comments} begin"
        notes.append(f"{name}: {lines} with # and {'is' if comments == 1 else 'are'} left out")
        skipped += comments
    if delimiter != {"csv": ",", "tsv": "\t"}[format]:
        names = {sign: word for word, sign in DELIMITERS.items()}
        notes.insert(0, f"{name}: the delimiter is a {names.get(delimiter, repr(delimiter))}")
    return delimiter, skipped, notes


def _likeliest_delimiter(lines: Sequence[str], format: Literal["csv", "tsv"]) -> str:
    """Return the most likely delimiter of the lines.

    The usual delimiter is a tab for TSV; for CSV, a semicolon if the first line has more semicolons than commas, else a
    comma. Return the usual delimiter in three cases: the format is TSV and a line contains a tab; there are fewer than
    `LEAST_ROWS` lines, and it occurs in them but does not split them into equally many cells; or no delimiter splits
    all lines into the same number of cells (two or more). Otherwise, of the delimiters that do so, return the one
    with the smallest fraction of cells that begin with a space; if several are equally good, prefer the usual one.
    """
    first = lines[0] if lines else ""
    if format == "tsv":
        usual = "\t"
    elif first.count(";") > first.count(","):
        usual = ";"
    else:
        usual = ","
    if format == "tsv" and any("\t" in line for line in lines):
        return usual
    delimiters = [usual, *(sign for sign in DELIMITERS.values() if sign != usual)]
    prose_fractions = {sign: fraction for sign in delimiters if (fraction := _prose_fraction(lines, sign)) is not None}
    if usual not in prose_fractions and len(lines) < LEAST_ROWS and any(usual in line for line in lines):
        return usual
    return min(prose_fractions, key=lambda sign: prose_fractions[sign], default=usual)


def _prose_fraction(lines: Sequence[str], delimiter: str) -> float | None:
    """Return the fraction of cells that begin with a space, as after a comma in prose; first cells are not counted.

    Return None if the delimiter does not split all lines into the same number of cells, two or more.
    """
    split = _line_splitter(delimiter)
    rows = [split(line) for line in lines]
    widths = set(map(len, rows))
    if len(widths) != 1 or widths == {1}:
        return None
    later_cells = [cell for row in rows for cell in row[1:]]
    return sum(cell.startswith(" ") for cell in later_cells) / len(later_cells)


def _is_spaced(sample: Sequence[str], dialect: Dialect, name: str) -> bool:
    """Return whether spaces separate quotes from delimiters in row 1, or in any row if all rows are equally wide.

    Rows of a single cell do not count as equally wide.
    """
    record_limit = len(sample) if len(sample) < SAMPLE_LINES else len(sample) // 2  # the last record may be cut
    widths: set[int] = set()
    spaced = False
    try:
        for _, _, cells in islice(_spaced_cells(iter(sample), dialect, name), record_limit):
            spaced = spaced or any(around for _, around in cells)
            if spaced and not widths:
                return True
            widths.add(len(cells))
    except GlassError:
        return False
    return spaced and len(widths) == 1 and widths != {1}


def _is_machine_quoted(lines: Iterator[str], skipped: int) -> tuple[bool, str]:
    """Return whether a program put quotes around TSV cells, and the position of the first quote, for messages.

    A program quotes either exactly the cells that need it (pandas: cells with a quote, tab or line break; Excel: also
    cells with a comma), or all cells, or all cells except numbers. If no single habit fits all cells, the quotes are
    part of the text. The position is that of the first cell that begins with a quote; it is empty if there is none.
    """
    habits = {"minimal", "commas", "strings"}
    position = ""
    record_lines: list[str] = []
    quotes = 0
    line_number = skipped
    width = size = 0
    cell_pattern = re.compile(r"(?:" + QUOTED + r"|([^\t\r\n]*))(?:(\t)|\r?\n|\Z)")
    for line in lines:
        line_number += 1
        if not record_lines:
            if '"' not in line:
                if "commas" in habits and "," in line:
                    habits.discard("commas")
                if "strings" in habits and not all(map(NUMBER.fullmatch, line.rstrip("\r\n").split("\t"))):
                    habits.discard("strings")
                continue
            before = line[: line.index('"')]
            if before and before[-1] != "\t":
                return False, position
            position = position or f"line {line_number}, column {before.count(chr(9)) + 1}"
        record_lines.append(line)
        quotes += line.count('"')
        size += len(line)
        if size > FIELD_LIMIT:
            return False, position
        if quotes % 2:
            continue
        cells = _cells_with_quoting("".join(record_lines), cell_pattern)
        if cells is None:
            return False, position
        width = width or len(cells)
        row_count, line_count = _count_inner_rows([text for text, _ in cells], "\t", width)
        if row_count and 2 * row_count >= line_count and "strings" not in habits:
            return False, position
        for text, in_quotes in cells:
            habits &= _quoting_habits(text, in_quotes)
        if not habits:
            return False, position
        record_lines.clear()
        quotes = size = 0
    return bool(position) and not record_lines, position


def _cells_with_quoting(record: str, cell_pattern: re.Pattern[str]) -> list[tuple[str, bool]] | None:
    """Return each cell of a record and whether it is quoted; None if an unquoted cell contains a quote."""
    cells: list[tuple[str, bool]] = []
    position = 0
    while True:
        match = cell_pattern.match(record, position)
        if match is None or '"' in (match[2] or ""):
            return None
        cells.append((match[2], False) if match[1] is None else (match[1].replace('""', '"'), True))
        position = match.end()
        if match[3] is None:
            return cells if position == len(record) else None


def _quoting_habits(text: str, in_quotes: bool) -> set[str]:
    """Return the quoting habits that agree with how a cell is quoted."""
    needs_quotes = any(sign in text for sign in '"\t\r\n')
    habits: set[str] = set()
    if in_quotes == needs_quotes:
        habits.add("minimal")
    if in_quotes == (needs_quotes or "," in text):
        habits.add("commas")
    if in_quotes or NUMBER.fullmatch(text):
        habits.add("strings")
    return habits
