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
            with spaces around the delimiter. "line": a quoted cell ends on its own line, and a stray quote is an
            ordinary character. "none": every quote is an ordinary character.
        skipped: number of lines above row 1.
        wary: for standard quoting, whether to refuse a quoted cell that seems to contain rows.
    """

    delimiter: str
    quoting: Literal["standard", "spaced", "line", "none"]
    skipped: int
    wary: bool


def text_lines(chunks: Iterable[str], name: str) -> Iterator[str]:
    """Yield lines with their line ends. Only `\\n` ends a line; `\\r` is left unchanged.

    Raises:
        GlassError: a line is longer than `FIELD_LIMIT` characters.
    """
    carry = ""
    for chunk in chunks:
        *whole, carry = (carry + chunk).split("\n")
        for line in whole:
            yield line + "\n"
        if len(carry) > FIELD_LIMIT:
            raise GlassError(
                f"a line of {name} is longer than {FIELD_LIMIT:,} characters", "Give plain text as a .txt file."
            )
    if carry:
        yield carry


def records(lines: Iterator[str], dialect: Dialect, name: str) -> Iterator[Record]:
    """Yield the records of a table; blank lines are skipped.

    Raises:
        GlassError: a quote is not closed or is closed inside a cell, an unquoted cell has a carriage return inside, a
            cell is longer than `FIELD_LIMIT` characters, or a quoted cell seems to contain rows (if `dialect.wary`).
    """
    rest = islice(lines, dialect.skipped, None)
    if dialect.quoting == "standard":
        return _standard(rest, dialect, name)
    if dialect.quoting == "spaced":
        return _spaced(rest, dialect, name)
    return _by_line(rest, dialect) if dialect.quoting == "line" else _unquoted(rest, dialect, name)


def _standard(lines: Iterator[str], dialect: Dialect, name: str) -> Iterator[Record]:
    held: list[str] = []  # the lines of the current record

    def holding() -> Iterator[str]:
        for line in lines:
            held.append(line)
            yield line

    csv.field_size_limit(FIELD_LIMIT)
    first = dialect.skipped + 1
    width = 0
    try:
        for cells in csv.reader(holding(), delimiter=dialect.delimiter, strict=True):
            last = first + len(held) - 1
            if cells:
                width = width or len(cells)
                if last > first and dialect.wary:
                    _refuse_swallowed(cells, dialect.delimiter, width, (first, last), name)
                yield first, last, cells
            first = last + 1
            held.clear()
    except csv.Error as error:
        raise _fault("".join(held), dialect, first, name, str(error)) from None


def _spaced(lines: Iterator[str], dialect: Dialect, name: str) -> Iterator[Record]:
    for first, last, cells in _spaced_cells(lines, dialect, name):
        yield first, last, [text for text, _ in cells]


def _spaced_cells(
    lines: Iterator[str], dialect: Dialect, name: str
) -> Iterator[tuple[int, int, list[tuple[str, bool]]]]:
    """Yield records whose cells may be surrounded by spaces, and for each cell whether spaces surround its quotes."""
    end = re.escape(dialect.delimiter)
    cell = re.compile(rf'([ ]*+)(?:{QUOTED}([ ]*+)|([^{end}"\r\n][^{end}\r\n]*|))(?:({end})|\r?\n|\Z)')
    held: list[str] = []
    quotes = 0
    first = dialect.skipped + 1
    for line in chain(lines, [""]):  # the empty line ends the last record
        held.append(line)
        quotes += line.count('"')
        if line and quotes % 2:
            continue
        record = "".join(held)
        cells: list[tuple[str, bool]] = []
        at = 0
        more: str | None = dialect.delimiter
        while more:
            found = cell.match(record, at)
            if found is None:
                raise _fault(record, dialect, first, name, "a quote")
            before, inside, after, unquoted, more = found.groups()
            text = unquoted.strip() if inside is None else inside.replace('""', '"')
            cells.append((text, inside is not None and bool(before or after)))
            at = found.end()
        if at < len(record):
            raise _fault(record, dialect, first, name, "a quote")
        if record.strip():
            yield first, first + len(held) - 1, cells
        first += len(held)
        held.clear()
        quotes = 0


def _by_line(lines: Iterator[str], dialect: Dialect) -> Iterator[Record]:
    split = _line_splitter(dialect.delimiter)
    for number, line in enumerate(lines, start=dialect.skipped + 1):
        if line.strip("\r\n"):
            yield number, number, split(line)


def _line_splitter(delimiter: str) -> Callable[[str], list[str]]:
    """Return a function that splits one line into cells. Quotes around a cell are removed; a stray quote is kept."""
    end = re.escape(delimiter)
    cell = re.compile(rf"(?:{QUOTED}|([^{end}]*))(?:({end})|\Z)")

    def split(line: str) -> list[str]:
        line = line.rstrip("\r\n")
        if '"' not in line:
            return line.split(delimiter)
        cells: list[str] = []
        at = 0
        more: str | None = delimiter
        while more:
            found = cell.match(line, at)
            assert found is not None  # the second alternative matches anything
            inside, unquoted, more = found.groups()
            cells.append(unquoted if inside is None else inside.replace('""', '"'))
            at = found.end()
        return cells

    return split


def _unquoted(lines: Iterator[str], dialect: Dialect, name: str) -> Iterator[Record]:
    csv.field_size_limit(FIELD_LIMIT)
    reader = csv.reader(lines, delimiter=dialect.delimiter, quoting=csv.QUOTE_NONE)
    try:
        for cells in reader:
            if cells:
                number = dialect.skipped + reader.line_num
                yield number, number, cells
    except csv.Error as error:
        raise _fault("", dialect, dialect.skipped + reader.line_num, name, str(error)) from None


# Errors


def _refuse_swallowed(cells: Sequence[str], delimiter: str, width: int, lines: tuple[int, int], name: str) -> None:
    rows, inside = _rows_inside(cells, delimiter, width)
    if rows >= SWALLOWED and 2 * rows >= inside:
        raise GlassError(
            f"lines {span(*lines)} of {name} are one quoted cell, and {rows:,} of its lines look like rows",
            f"{STRAY}line (a stray quote is a character), none (every quote is a character) or standard "
            "(the cell is kept).",
        )


def _rows_inside(cells: Sequence[str], delimiter: str, width: int) -> tuple[int, int]:
    """Return the number of lines that look like rows in cells with several lines, and the number of all their lines.

    The first line of each cell is not counted.
    """
    inside = [line for cell in cells if "\n" in cell for line in cell.split("\n")[1:]]
    if width < 2:
        return 0, len(inside)
    return sum(_looks_like_a_row(line, delimiter, width) for line in inside), len(inside)


def _looks_like_a_row(line: str, delimiter: str, width: int) -> bool:
    """Return whether a line has as many cells as a row, no cell is empty, and no later cell begins with a space.

    In prose, a space follows most delimiters, such as commas.
    """
    parts = line.rstrip("\r").split(delimiter)
    return len(parts) == width and all(parts) and not any(part[0].isspace() for part in parts[1:])


def _fault(record: str, dialect: Dialect, first: int, name: str, error: str) -> GlassError:
    """Return the error for a record that begins on line `first` and is not valid CSV."""
    found = _unclosed(record, dialect)
    if "new-line" in error:
        line = first + max(0, record.count("\n") - 1)
        return GlassError(
            f"line {line} of {name} has a carriage return in a cell without quotes",
            "Put that cell in quotes, or remove the character.",
        )
    if found is None or "limit" in error:
        return GlassError(
            f"{name} is not a valid table near line {first}: {error}",
            "Correct that line (check for an unclosed quote), or save the text as a .txt file.",
        )
    column, start, end = found
    line, character = _line_and_column(record, start)
    problem = f"line {first + line}, column {column} of {name}: the quote at character {character} is "
    if end is None:
        problem += "never closed"
    else:
        last, closing = _line_and_column(record, end - 1)
        where = f"at character {closing}" if last == line else f"in line {first + last}"
        problem += f"closed {where}, but text follows"
    return GlassError(problem, f"{STRAY}line (a stray quote is a character) or none (every quote is a character).")


def _line_and_column(text: str, at: int) -> tuple[int, int]:
    """Return the line of a character, from 0, and its column in that line, from 1."""
    return text.count("\n", 0, at), at - text.rfind("\n", 0, at)


def _unclosed(record: str, dialect: Dialect) -> tuple[int, int, int | None] | None:
    """Return column, start and end (None: no closing quote) of the first quoted cell that does not end correctly.

    Return None if all quoted cells end correctly.
    """
    spaces = re.compile("[ ]*+" if dialect.quoting == "spaced" else "")
    in_quotes = re.compile(rf"{QUOTED}{spaces.pattern}")
    ends = re.compile(rf"[{re.escape(dialect.delimiter)}\n]")
    column = 1
    at = 0
    while at < len(record):
        blank = spaces.match(record, at)
        start = at if blank is None else blank.end()
        if record.startswith('"', start):
            found = in_quotes.match(record, start)
            if found is None:
                return column, start, None
            at = found.end()
            if record[at : at + 1] not in (dialect.delimiter, "\r", "\n", ""):
                return column, start, found.end(1) + 1
        end = ends.search(record, at)
        if end is None:
            return None
        column = column + 1 if end[0] == dialect.delimiter else 1
        at = end.end()
    return None


# Dialect


def find_dialect(
    text: Callable[[], Iterable[str]], format: Literal["csv", "tsv"], name: str, data: DataConfig
) -> tuple[Dialect, list[str]]:
    """Return the dialect of a table, detected from its first lines, and notes for the user.

    Args:
        text: function that opens the text again. A tab-separated table may be read to its end, to find out whether its
            quotes are ordinary characters.
        format: format that the file's name indicates.
        name: the file's name, for messages.
        data: settings; `delimiter` and `quoting` override the detection, unless they are "auto".

    Raises:
        GlassError: the lines end with carriage returns alone, or a line is longer than `FIELD_LIMIT` characters.
    """
    sample = _sample(text_lines(text(), name))
    refuse_old_line_ends(sample[:1], name)
    delimiter, skipped, notes = _delimiter(sample, format, name, data)
    quoting = data.quoting
    if quoting != "auto":
        return Dialect(delimiter, quoting, skipped, False), notes
    if delimiter == "\t":
        machine_quoted, position = _is_machine_quoted(islice(text_lines(text(), name), skipped, None), skipped)
        if machine_quoted:
            notes.append(f"{name}: the quotes around cells are removed; data.quoting = none keeps them")
            return Dialect(delimiter, "standard", skipped, True), notes
        if position:
            notes.append(
                f"{position} of {name} begins with a quote, which is kept; "
                "data.quoting = standard removes the quotes around cells"
            )
        return Dialect(delimiter, "none", skipped, False), notes
    spaced = Dialect(delimiter, "spaced", skipped, True)
    if _is_spaced(sample[skipped:], spaced, name):
        return spaced, notes
    return replace(spaced, quoting="standard"), notes


def refuse_old_line_ends(first: Sequence[str], name: str) -> None:
    """Raise a `GlassError` if the first line does not end with a line feed but has carriage returns outside quotes.

    Args:
        first: the first line, or no line for an empty text.
        name: the file's name, for messages.
    """
    for line in first:
        if not line.endswith("\n") and "\r" in re.sub(QUOTED, "", line).rstrip("\r\n"):
            raise GlassError(
                f"the lines of {name} end with carriage returns alone, as on old Macs",
                f"Turn them into line feeds: tr '\\r' '\\n' < {quoted(name)} > {quoted(f'new-{name}')}",
            )


def _sample(lines: Iterator[str]) -> list[str]:
    """Return the first lines: at most SAMPLE_LINES, and no more once they exceed SAMPLE_TEXT characters."""
    sample: list[str] = []
    size = 0
    for line in islice(lines, SAMPLE_LINES):
        sample.append(line)
        size += len(line)
        if size > SAMPLE_TEXT:
            break
    return sample


def _delimiter(
    sample: Sequence[str], format: Literal["csv", "tsv"], name: str, data: DataConfig
) -> tuple[str, int, list[str]]:
    """Return the delimiter, the number of lines above row 1, and notes on both."""
    said = re.fullmatch(r"sep=(.)\r?\n?", sample[0]) if sample else None
    skipped = 1 if said else 0
    comments = len(sample) - skipped
    for number, line in enumerate(sample[skipped:]):
        if not line.startswith("#"):
            comments = number
            break
    rest = [line for line in sample[skipped + comments :] if line.strip()]
    if data.delimiter != "auto":
        delimiter = DELIMITERS[data.delimiter]
    else:
        delimiter = said[1] if said else _likeliest(rest or sample, format)
    notes: list[str] = []
    split = _line_splitter(delimiter)
    if comments and rest and len(split(rest[0])) != len(split(sample[skipped])):
        lines = f"line {skipped + 1} begins" if comments == 1 else f"lines {skipped + 1} to {skipped + comments} begin"
        notes.append(f"{name}: {lines} with # and {'is' if comments == 1 else 'are'} left out")
        skipped += comments
    if delimiter != {"csv": ",", "tsv": "\t"}[format]:
        names = {sign: word for word, sign in DELIMITERS.items()}
        notes.insert(0, f"{name}: the delimiter is a {names.get(delimiter, repr(delimiter))}")
    return delimiter, skipped, notes


def _likeliest(lines: Sequence[str], format: Literal["csv", "tsv"]) -> str:
    """Return the most likely delimiter of the lines.

    The usual delimiter is a tab for TSV; for CSV, a semicolon if the first line has more semicolons than commas, else a
    comma. It is returned for TSV with a tab in any line, for one or two lines in which it occurs but does not split all
    lines equally, and if no delimiter splits all lines into the same number of cells (two or more). Otherwise, of the
    delimiters that do, the one with the smallest share of cells that begin with a space is returned; in doubt, the
    usual one.
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
    signs = [usual, *(sign for sign in DELIMITERS.values() if sign != usual)]
    shares = {sign: share for sign in signs if (share := _share_of_prose(lines, sign)) is not None}
    if usual not in shares and len(lines) < LEAST_ROWS and any(usual in line for line in lines):
        return usual
    return min(shares, key=lambda sign: shares[sign], default=usual)


def _share_of_prose(lines: Sequence[str], delimiter: str) -> float | None:
    """Return the fraction of cells that begin with a space, as after a comma in prose; first cells are not counted.

    Return None if the delimiter does not split all lines into the same number of cells, two or more.
    """
    split = _line_splitter(delimiter)
    rows = [split(line) for line in lines]
    widths = set(map(len, rows))
    if len(widths) != 1 or widths == {1}:
        return None
    cells = [cell for row in rows for cell in row[1:]]
    return sum(cell.startswith(" ") for cell in cells) / len(cells)


def _is_spaced(sample: Sequence[str], dialect: Dialect, name: str) -> bool:
    """Return whether spaces separate quotes from delimiters in row 1, or in any row if all rows are equally wide.

    Rows of a single cell do not count as equally wide.
    """
    some = len(sample) if len(sample) < SAMPLE_LINES else len(sample) // 2  # the last record may be cut
    widths: set[int] = set()
    spaced = False
    try:
        for _, _, cells in islice(_spaced_cells(iter(sample), dialect, name), some):
            spaced = spaced or any(around for _, around in cells)
            if spaced and not widths:
                return True
            widths.add(len(cells))
    except GlassError:
        return False
    return spaced and len(widths) == 1 and widths != {1}


def _is_machine_quoted(lines: Iterator[str], skipped: int) -> tuple[bool, str]:
    """Return whether a program put quotes around TSV cells, and the position of the first cell that begins with one.

    A program quotes either exactly the cells that need it (pandas: cells with a quote, tab or line break; Excel: also
    cells with a comma), or all cells, or all cells but numbers. If no single habit fits all cells, the quotes are part
    of the text. The position is empty if no cell begins with a quote.
    """
    habits = {"minimal", "commas", "strings"}
    position = ""
    held: list[str] = []
    quotes = 0
    number = skipped
    width = size = 0
    cell = re.compile(r"(?:" + QUOTED + r"|([^\t\r\n]*))(?:(\t)|\r?\n|\Z)")
    for line in lines:
        number += 1
        if not held:
            if '"' not in line:
                if "commas" in habits and "," in line:
                    habits.discard("commas")
                if "strings" in habits and not all(map(NUMBER.fullmatch, line.rstrip("\r\n").split("\t"))):
                    habits.discard("strings")
                continue
            before = line[: line.index('"')]
            if before and before[-1] != "\t":
                return False, position
            position = position or f"line {number}, column {before.count(chr(9)) + 1}"
        held.append(line)
        quotes += line.count('"')
        size += len(line)
        if size > FIELD_LIMIT:
            return False, position
        if quotes % 2:
            continue
        cells = _written_cells("".join(held), cell)
        if cells is None:
            return False, position
        width = width or len(cells)
        rows, inside = _rows_inside([text for text, _ in cells], "\t", width)
        if rows and 2 * rows >= inside and "strings" not in habits:
            return False, position
        for text, in_quotes in cells:
            habits &= _habits(text, in_quotes)
        if not habits:
            return False, position
        held.clear()
        quotes = size = 0
    return bool(position) and not held, position


def _written_cells(record: str, cell: re.Pattern[str]) -> list[tuple[str, bool]] | None:
    """Return the cells of a record, each with whether it is quoted; None if an unquoted cell contains a quote."""
    cells: list[tuple[str, bool]] = []
    at = 0
    while True:
        found = cell.match(record, at)
        if found is None or '"' in (found[2] or ""):
            return None
        cells.append((found[2], False) if found[1] is None else (found[1].replace('""', '"'), True))
        at = found.end()
        if found[3] is None:
            return cells if at == len(record) else None


def _habits(text: str, in_quotes: bool) -> set[str]:
    """Return the quoting habits that agree with how a cell is quoted."""
    needs = any(sign in text for sign in '"\t\r\n')
    habits: set[str] = set()
    if in_quotes == needs:
        habits.add("minimal")
    if in_quotes == (needs or "," in text):
        habits.add("commas")
    if in_quotes or NUMBER.fullmatch(text):
        habits.add("strings")
    return habits
