"""Detect the dialect of CSV and TSV text, and read its records with their line numbers, with Python's module csv."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Literal

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError
from glassformer.base.wording import quoted, span
from glassformer.text.column_names import LABEL_NAMES, SOURCE_NAMES, TARGET_NAMES, usual_names

FIELD_LIMIT = 64_000_000  # maximum characters in a cell or a line; a longer cell must have an unclosed quote
SAMPLE_LINES = 200
SAMPLE_TEXT = 1_000_000  # characters
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
LEAST_ROWS = 3  # with fewer lines, unequal numbers of cells do not rule out the usual delimiter
MOST_ABOVE = 10  # maximum number of lines above row 1 that may have as many cells as a row
LEAST_LAST = 10  # minimum number of lines in the second half of a sample, to find the delimiter there
SWALLOWED = 3  # minimum number of lines of quoted cells that look like rows, to refuse a record
QUOTED = r'"([^"]*+(?:""[^"]*+)*+)"'
NUMBER = re.compile(r"[+-]?\d*[.,]?\d*(?:[eE][+-]?\d+)?|NA")
STRAY = (
    'Write a quote inside a quoted cell as "", or set data.quoting to line (a stray quote is a character), none (every '
    "quote is a character) or standard (a quoted cell may have any lines)."
)
Record = tuple[int, list[str], list[str]]
"""The number of the first line of a record, its cells, and its lines."""


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
    csv.field_size_limit(FIELD_LIMIT)
    record_lines: list[str] = []

    def collect_lines() -> Iterator[str]:
        for line in islice(lines, dialect.skipped, None):
            record_lines.append(line)
            yield line

    rows: Iterator[list[str]]
    if dialect.quoting in ("standard", "none"):
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if dialect.quoting == "standard" else csv.QUOTE_NONE
        rows = csv.reader(collect_lines(), delimiter=dialect.delimiter, quoting=quoting, strict=True)
    else:
        rows = _split_records(collect_lines(), dialect.delimiter, dialect.quoting == "spaced")
    first = dialect.skipped + 1
    top: list[str] = []
    try:
        for cells in rows:
            if cells:
                top = top or cells
                if len(record_lines) > 1 and dialect.refuse_embedded_rows:
                    _refuse_swallowed_rows(cells, dialect.delimiter, top, first, len(record_lines), name)
                yield first, cells, record_lines
            first += len(record_lines)
            record_lines = []
    except csv.Error as error:
        raise _invalid_record(str(error), first, first + len(record_lines) - 1, name) from None


def _split_records(lines: Iterator[str], delimiter: str, spaced: bool) -> Iterator[list[str]]:
    """Yield the cells of each record of the two kinds of quoting that the module csv cannot read exactly.

    With `spaced`, spaces around cells are removed, and a quoted cell may have several lines. Otherwise, each line is a
    record, and a quote that does not belong to a cell in quotes is a character.
    """
    end = re.escape(delimiter)
    space, unquoted = ("[ ]*+", rf'(?:[^{end}"][^{end}]*)?') if spaced else ("", f"[^{end}]*")
    cell_pattern = re.compile(rf"{space}(?:{QUOTED}{space}|({unquoted}))(?:({end})|\r?\n?\Z)")
    record = ""
    for line in chain(lines, [""] if spaced else []):  # the empty line ends the last record
        record += line
        if spaced and line and record.count('"') % 2:
            continue
        plain = record.rstrip("\r\n")
        cells = [] if spaced or '"' in plain or not plain else plain.split(delimiter)
        position = 0
        separator = delimiter if plain and not cells else None
        while separator:
            match = cell_pattern.match(record, position)
            if match is None:
                raise csv.Error("unexpected end of data" if record.count('"') % 2 else "expected after a quote")
            quoted_text, unquoted_text, separator = match.groups()
            cell = unquoted_text.rstrip("\r\n") if quoted_text is None else quoted_text.replace('""', '"')
            cells.append(cell.strip() if spaced and quoted_text is None else cell)
            position = match.end()
        if record:
            yield cells
        record = ""


def _refuse_swallowed_rows(
    cells: Sequence[str], delimiter: str, top: Sequence[str], first: int, line_count: int, name: str
) -> None:
    """Raise a `GlassError` if most lines of quoted cells look like rows.

    Such a line has as many cells as row 1 (`top`), and at least two are not empty. No later cell begins with a space,
    as after most delimiters in prose, unless all later cells of row 1 do so.
    """
    inner_lines = [line.rstrip("\r").split(delimiter) for cell in cells for line in cell.split("\n")[1:]]
    spaced = all(cell[:1].isspace() for cell in top[1:])
    row_count = sum(
        len(parts) == len(top)
        and sum(map(bool, parts)) > 1
        and (spaced or not any(part[:1].isspace() for part in parts[1:]))
        for parts in inner_lines
    )
    if row_count >= SWALLOWED and 2 * row_count >= len(inner_lines):
        raise GlassError(
            f"lines {span(first, first + line_count - 1)} of {name} are one quoted cell, and {row_count:,} of its "
            "lines look like rows",
            STRAY,
        )


def _invalid_record(error: str, first: int, last: int, name: str) -> GlassError:
    """Return the error for a record on the lines `first` to `last` that the module csv refuses."""
    where = f"line {first}" if first >= last else f"lines {span(first, last)}"
    if "new-line" in error:
        return GlassError(
            f"line {last} of {name} has a carriage return in a cell without quotes",
            "Put that cell in quotes, or remove the character.",
        )
    if "end of data" in error:
        return GlassError(f"line {first} of {name}: a quote is never closed", STRAY)
    if "expected after" in error:
        return GlassError(f"{where} of {name}: text follows the quote that closes a cell", STRAY)
    return GlassError(f"{where} of {name}: {error}", "Correct the line (check for an unclosed quote).")


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
    sample: list[str] = []
    for line in islice(text_lines(open_text(), name), SAMPLE_LINES):
        sample.append(line)
        if sum(map(len, sample)) > SAMPLE_TEXT:
            break
    refuse_old_line_ends(sample[:1], name)
    delimiter, skipped, notes = _detect_delimiter(sample, format, name, data)
    if data.quoting != "auto":
        return Dialect(delimiter, data.quoting, skipped, False), notes
    standard = Dialect(delimiter, "standard", skipped, True)
    if delimiter != "\t":
        return replace(
            standard, quoting="spaced" if _is_spaced(sample[skipped:], standard, name) else "standard"
        ), notes
    first_quote = next(
        (
            number
            for number, line in enumerate(text_lines(open_text(), name), start=1)
            if number > skipped and re.search('(?:^|\t)"', line)
        ),
        None,
    )
    if first_quote is not None and _is_machine_quoted(text_lines(open_text(), name), standard, name):
        return standard, [*notes, f"{name}: the quotes around cells are removed; data.quoting = none keeps them"]
    if first_quote is not None:
        notes.append(
            f"a cell in line {first_quote} of {name} begins with a quote, which is not removed; "
            "data.quoting = standard removes the quotes around cells"
        )
    return Dialect(delimiter, "none", skipped, False), notes


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


def _detect_delimiter(
    sample: Sequence[str], format: Literal["csv", "tsv"], name: str, data: DataConfig
) -> tuple[str, int, list[str]]:
    """Return the delimiter, the number of lines above row 1, and notes on both.

    Lines above row 1 are a line such as `sep=;`, all lines above the first line of several usual column names (if it is
    near the top), lines that begin with # and do not have as many fields as most lines, and lines with a single field
    that is not a column name, such as a title.
    """
    declaration = re.fullmatch(r"sep=(.)\r?\n?", sample[0]) if sample else None
    skipped = 1 if declaration else 0
    lines = [line for line in sample[skipped:] if line.strip() and not line.startswith("#")] or list(sample)
    if data.delimiter != "auto":
        delimiter = DELIMITERS[data.delimiter]
    else:
        delimiter = declaration[1] if declaration else _likeliest_delimiter(lines, format)
    notes: list[str] = []
    if delimiter != {"csv": ",", "tsv": "\t"}[format]:
        names = {sign: word for word, sign in DELIMITERS.items()}
        notes.append(f"{name}: the delimiter is a {names.get(delimiter, repr(delimiter))}")
    usual_width = Counter(len(cells) for cells in _split_lines(lines, delimiter)).most_common(1)[0][0] if lines else 0
    above: list[str] = []
    rows = _split_lines(sample[skipped:], delimiter)
    named = next((number for number, cells in enumerate(rows[:MOST_ABOVE]) if _are_column_names(cells)), 0)
    for number, (line, cells) in enumerate(zip(sample[skipped:], rows, strict=True)):
        title = len(cells) == 1 < usual_width and not usual_names(cells) and line.count('"') % 2 == 0
        if number >= named and cells and not title and not (line.startswith("#") and len(cells) != usual_width):
            break
        above.append(line)
    if above and len(above) < len(sample) - skipped and any(map(str.strip, above)):
        begin = all(line.startswith("#") for line in above)
        one = len(above) == 1
        lines_above = f"line {skipped + 1}" if one else f"lines {span(skipped + 1, skipped + len(above))}"
        verb = ("begins with #" if one else "begin with #") if begin else ("is" if one else "are") + " above the table"
        notes.append(f"{name}: {lines_above} {verb} and {'is' if one else 'are'} left out")
        skipped += len(above)
    return delimiter, skipped, notes


def _are_column_names(cells: Sequence[str]) -> bool:
    """Return whether a line has several different usual column names, not all of them language codes."""
    roles = SOURCE_NAMES | TARGET_NAMES | LABEL_NAMES
    return len(set(cells)) > 1 and usual_names(cells) and any(cell.strip().lower() in roles for cell in cells)


def _split_lines(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """Return the cells of each line; a quoted cell that does not end on its line is cut at each delimiter."""
    return list(_split_records(iter(lines), delimiter, False))


def _likeliest_delimiter(lines: Sequence[str], format: Literal["csv", "tsv"]) -> str:
    """Return the most likely delimiter of the lines.

    The usual delimiter is a tab for TSV; for CSV, a semicolon if the first line has more semicolons than commas, else a
    comma. Return the usual delimiter in three cases: the format is TSV and a line contains a tab; there are fewer than
    `LEAST_ROWS` lines, and it occurs in them but does not split them into equally many cells; or no delimiter splits
    all lines into the same number of cells (two or more), or all of the lines joined at line breaks in quotes, or all
    of the last lines (`LEAST_LAST` or more) into cells of which some do not begin with a space. Otherwise, of the
    delimiters that do so, return the one with the smallest fraction of cells that begin with a space, as after a comma
    in prose; if several are equally good, prefer the usual one.
    """
    first = lines[0] if lines else ""
    usual = "\t" if format == "tsv" else ";" if first.count(";") > first.count(",") else ","
    if format == "tsv" and any("\t" in line for line in lines):
        return usual
    joined_lines = _join_quoted(lines)
    last_lines = lines[len(lines) // 2 :]
    for part in (
        lines,
        joined_lines if len(joined_lines) >= LEAST_ROWS else [],
        last_lines if len(last_lines) >= LEAST_LAST else [],
    ):
        prose_fractions: dict[str, float] = {}
        for sign in (usual, *DELIMITERS.values()):
            rows = _split_lines(part, sign)
            later_cells = [cell for row in rows for cell in row[1:]]
            prose = sum(cell.startswith(" ") for cell in later_cells)
            if len(set(map(len, rows))) == 1 and later_cells and (part is lines or prose < len(later_cells)):
                prose_fractions[sign] = prose / len(later_cells)
        if usual not in prose_fractions and len(lines) < LEAST_ROWS and any(usual in line for line in lines):
            return usual
        if prose_fractions:
            return min(prose_fractions, key=lambda sign: prose_fractions[sign])
    return usual


def _join_quoted(lines: Sequence[str]) -> list[str]:
    """Return the lines, with lines joined as long as a quote is open; a last quote that stays open is left out."""
    joined: list[str] = []
    open_lines = ""
    for line in lines:
        open_lines += line
        if open_lines.count('"') % 2 == 0:
            joined.append(open_lines)
            open_lines = ""
    return joined


def _is_spaced(sample: Sequence[str], standard: Dialect, name: str) -> bool:
    """Return whether there are spaces between quotes and delimiters, and all rows of the sample are equally wide.

    If row 1 has such spaces, the rows below a row that is not valid do not matter. Rows of a single cell do not count
    as equally wide.
    """
    end = re.escape(standard.delimiter)
    near_quotes = re.compile(f'" +{end}|{end} +"')
    if not any(map(near_quotes.search, sample)):
        return False
    spaces = False
    try:
        for _, cells, lines in records(iter(sample), replace(standard, skipped=0, refuse_embedded_rows=False), name):
            doubled = 2 * sum(
                cell.count('"') + 1 for cell in cells if '"' in cell
            )  # quotes as the module csv writes them
            spaces = spaces or (
                sum(line.count('"') for line in lines) < doubled and any(re.match(' +"', cell) for cell in cells)
            )
    except GlassError as error:
        spaces = spaces or "text follows" in error.problem
    widths: set[int] = set()
    try:
        whole = len(sample) if len(sample) < SAMPLE_LINES else len(sample) // 2  # the last record may be cut
        spaced = records(iter(sample), replace(standard, quoting="spaced", skipped=0), name)
        widths.update(len(cells) for _, cells, _ in islice(spaced, whole))
    except GlassError:
        spaces = spaces and near_quotes.search(sample[0]) is not None
    return spaces and len(widths) == 1 and widths != {1}


def _is_machine_quoted(lines: Iterator[str], standard: Dialect, name: str) -> bool:
    """Return whether a program put the quotes around the cells of a tab-separated table.

    A program quotes either exactly the cells that need it (pandas: cells with a quote, tab or line break; Excel: also
    cells with a comma), or all cells, or all cells except numbers. If no single habit gives the number of quotes in
    every record, the quotes are part of the text.
    """
    habits: dict[str, Callable[[str], object]] = {
        "minimal": re.compile('["\t\r\n]').search,
        "commas": re.compile('["\t\r\n,]').search,
        "strings": lambda cell: not NUMBER.fullmatch(cell),
        "all": lambda cell: True,
    }
    try:
        for _, cells, record_lines in records(lines, standard, name):
            quotes = sum(line.count('"') for line in record_lines) - 2 * sum(cell.count('"') for cell in cells)
            for habit, quotes_cell in list(habits.items()):
                if quotes != 2 * sum(map(bool, map(quotes_cell, cells))):
                    del habits[habit]
            if not habits:
                return False
    except GlassError:
        return False
    return True
