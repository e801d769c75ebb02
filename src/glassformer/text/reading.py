"""Open the files of a source: unpack them, detect their encodings, and read their text or tables repeatedly."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Literal

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError
from glassformer.base.files import convert_os_errors
from glassformer.base.wording import listed
from glassformer.text import tables
from glassformer.text.columnar import columnar_of, json_lines
from glassformer.text.columns import ChosenColumns
from glassformer.text.dataset_folders import is_cached, is_dataset, is_json_lines
from glassformer.text.encodings import BinaryError, Encoding, Scan, UndecodableError, decode, scan
from glassformer.text.left_out import Tally
from glassformer.text.locating import BLOCK, SHOWN_NAMES, Located

GZIP = b"\x1f\x8b"
TABLE_SUFFIXES: dict[str, tables.Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "jsonl",
    ".arrow": "jsonl",
    ".feather": "jsonl",
}
"""Parquet and Arrow files are read as JSON lines (see `columnar`)."""


@dataclass(frozen=True)
class SourceFile:
    """One input file: its path, format and encoding, and its columns to read if it is a table."""

    path: Path
    name: str
    format: Literal["text", "csv", "tsv", "jsonl"]
    scan: Scan = field(default_factory=lambda: Scan(Encoding("utf-8"), 0, ""))
    table: tables.Table | None = None
    chosen: ChosenColumns | None = None

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes of the file, unpacked if it is gzip (detected by its first bytes, not by its name).

        Raises:
            GlassError: the file is damaged gzip, or its name ends in .gz although it is not gzip.
        """
        with convert_os_errors(self.path), self.path.open("rb") as raw:
            packed = raw.read(2) == GZIP
            raw.seek(0)
            if not packed and self.path.name.endswith(".gz"):
                raise GlassError(
                    f"{self.name} is not a gzip file, although its name ends in .gz", "Compress it again, or rename it."
                )
            stream = gzip.GzipFile(fileobj=raw) if packed else raw
            try:
                while block := stream.read(BLOCK):
                    yield block
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise GlassError(
                    f"{self.name} is a damaged gzip file: {error}", "Compress or download it again."
                ) from None

    def text(self) -> Iterator[str]:
        """Yield the decoded text in pieces of up to 1 MiB; for Parquet and Arrow, one line of JSON per row.

        Raises:
            GlassError: the file changed since it was scanned (raised at the first invalid byte, or after the last
                piece), or it cannot be unpacked or read.
        """
        changed = GlassError(f"{self.name} changed while it was read", "Run the same command again.")
        if columnar_of(self.name) is not None:
            yield from json_lines(self.path, self.name)
            if columnar_scan(self).digest != self.scan.digest:
                raise changed
            return
        digest = hashlib.sha256()

        def hashed() -> Iterator[bytes]:
            for block in self.blocks():
                digest.update(block)
                yield block

        try:
            yield from decode(hashed(), self.scan.encoding)
        except UndecodableError:
            raise changed from None
        if digest.hexdigest() != self.scan.digest:
            raise changed

    def rows(self, tally: Tally) -> Iterator[tuple[int, list[object]]]:
        """Yield the line number of each row of a table, and its values in the chosen columns (`tables.read_rows`)."""
        assert self.table is not None
        assert self.chosen is not None
        return tables.read_rows(self.text(), self.table, self.chosen.indices, tally)


@dataclass(frozen=True)
class ScannedFiles:
    """The files of a source, each with its encoding, and a hash of all their content; no column is chosen yet."""

    files: tuple[SourceFile, ...]
    digest: str
    notes: tuple[str, ...]


def scan_files(source_name: str, encoding: str, location: Located, read_tables: bool) -> ScannedFiles:
    """Read every byte of the files of a source, to detect their encodings.

    Args:
        source_name: the source as the user named it.
        encoding: `data.encoding`.
        location: the located files.
        read_tables: whether to read only the tables of a folder, and standard input or a pipe as a table. If False,
            tables of a folder are read only if its other files only describe the data (`is_dataset`).

    Raises:
        GlassError: a file is binary (in a folder, it is left out instead) or in an unknown encoding, all files are
            empty, or no file has the wanted format.
    """
    files = [
        SourceFile(path, name, format)
        for (path, name), format in zip(location.files, formats_of(location), strict=True)
    ]
    if location.temporary and read_tables:
        files = [_with_sniffed_format(file, encoding) for file in files]
    left_out: list[str] = []
    if location.folder:
        files = _select_tables_or_texts(files, read_tables, left_out)
    scanned: list[SourceFile] = []
    for file in files:
        try:
            is_columnar = columnar_of(file.name) is not None
            file_scan = columnar_scan(file) if is_columnar else scan(file.blocks, encoding, file.name)
            scanned.append(replace(file, scan=file_scan))
        except BinaryError as error:
            if not location.folder:
                raise
            left_out.append(f"{file.name} ({error.kind})")
    if not sum(file.scan.size - file.scan.encoding.skip for file in scanned):
        left_out_note = f"; left out: {listed(left_out, SHOWN_NAMES)}" if left_out else ""
        name = location.files[0][1] if location.temporary else source_name
        raise GlassError(f"{name} contains no text (0 bytes){left_out_note}", "Give a source with some text in it.")
    digest = hashlib.sha256("".join(f"{file.format} {file.scan.digest}\n" for file in scanned).encode("utf-8"))
    notes = [*location.notes, _description(scanned)]
    remarks = [file.scan.remark for file in scanned if file.scan.remark]
    notes += remarks[:SHOWN_NAMES]
    if len(remarks) > SHOWN_NAMES:
        notes.append(f"the same applies to {len(remarks) - SHOWN_NAMES} more files")
    if left_out:
        notes.append(f"left out {len(left_out)} of {len(location.files)} files: {listed(left_out, SHOWN_NAMES)}")
    return ScannedFiles(tuple(scanned), digest.hexdigest(), tuple(notes))


def columnar_scan(file: SourceFile) -> Scan:
    """Return the size and the hash of a Parquet or Arrow file; its text is UTF-8."""
    digest = hashlib.sha256()
    size = 0
    for block in file.blocks():
        digest.update(block)
        size += len(block)
    return Scan(Encoding("utf-8"), size, digest.hexdigest())


def format_of(name: str) -> Literal["text", "csv", "tsv", "jsonl"]:
    """Return the format of a file of this name; a file that is not a table is plain text."""
    return TABLE_SUFFIXES.get(Path(name.lower().removesuffix(".gz")).suffix, "text")


def formats_of(location: Located) -> list[Literal["text", "csv", "tsv", "jsonl"]]:
    """Return the format of each file; in a data set without other tables, .json files have an object in each line."""
    names = [name for _, name in location.files]
    formats = [format_of(name) for name in names]
    rows = set(filter(is_json_lines, names))
    is_data = location.split is not None or (location.folder and is_dataset(names, rows))
    if not is_data or any(format != "text" for format in formats):
        return formats
    return ["jsonl" if name in rows else "text" for name in names]


def _with_sniffed_format(file: SourceFile, encoding: str) -> SourceFile:
    """Return standard input or a pipe with the table format that its first line suggests."""
    head = next(replace(file, scan=scan(file.blocks, encoding, file.name)).text(), "")
    return replace(file, format=format_by_first_line(head))


def format_by_first_line(text: str) -> tables.Format:
    """Return the format of a table whose name does not tell it."""
    first = text.lstrip().partition("\n")[0]
    if first.startswith("{"):
        return "jsonl"
    return "tsv" if "\t" in first else "csv"


def _select_tables_or_texts(files: list[SourceFile], column_named: bool, left_out: list[str]) -> list[SourceFile]:
    """Return the tables of a folder if a column is named or the folder is a data set, and otherwise the text files."""
    tables = [file.name for file in files if file.format != "text"]
    read_tables = column_named or is_dataset([file.name for file in files], tables)
    selected = [file for file in files if (file.format != "text") == read_tables and not is_cached(file.name)]
    if not selected:
        raise GlassError(
            "data.column is set, but no file in the folder is a table",
            "Leave data.column out to read plain text.",
        )
    reason = "not a table" if read_tables else "a table; set data.column to read tables"
    left_out += [f"{file.name} ({reason})" for file in files if file not in selected]
    return selected


def is_table(file: SourceFile) -> bool:
    """Return whether a file is read as a table, by its name or its first line."""
    return file.format != "text"


def with_table(file: SourceFile, data: DataConfig, choose: Callable[[tables.Table], ChosenColumns]) -> SourceFile:
    """Return a CSV, TSV or JSONL file with its table opened and the columns that `choose` selects."""
    assert file.format != "text"
    table = tables.open_table(file.text, file.format, file.name, data)
    return replace(file, table=table, chosen=choose(table))


def tables_of(files: Iterable[SourceFile]) -> list[tables.Table]:
    """Return the opened tables of files."""
    return [file.table for file in files if file.table is not None]


def describe_tables(files: Sequence[SourceFile]) -> list[str]:
    """Return notes on how the first tables are read, including the chosen columns."""
    notes: list[str] = []
    for file in files[:SHOWN_NAMES]:
        notes += file.table.notes if file.table else ()
        notes += [file.chosen.note] if file.chosen else []
    return notes


def readings_of(files: Iterable[SourceFile]) -> list[list[object]]:
    """Return everything that determines how each table is read, as JSON values."""
    readings: list[list[object]] = []
    for file in files:
        if file.table is not None and file.chosen is not None:
            table = file.table
            dialect_values = [] if table.dialect is None else list(astuple(table.dialect))
            readings.append([dialect_values, table.header, len(table.names), table.extra_fields, file.chosen.indices])
    return readings


def refuse_plain_json(files: Sequence[SourceFile], location: Located) -> None:
    """Raise a `GlassError` for a file that contains JSON and would be read as plain text with its braces.

    In a folder of other texts, such a file may be part of a program and is read unchanged.
    """
    for file in () if location.folder else files:
        if file.format == "text" and file.name.lower().removesuffix(".gz").endswith(".json"):
            head = next(file.text(), "").lstrip()
            if head.startswith(("[", "{")):
                raise GlassError(
                    f"{file.name} contains JSON; as plain text, the model would learn its braces and keys too",
                    "Save it as a .jsonl file with one object in each line (from a JSON array: "
                    "jq -c '.[]' a.json > a.jsonl). To train on the JSON itself, copy it to a .txt file.",
                )


def _description(files: list[SourceFile]) -> str:
    size = sum(file.scan.size for file in files)
    kinds = Counter((columnar_of(file.name) or file.scan.encoding.label) for file in files if file.scan.size)
    encodings = ", ".join(label if len(kinds) == 1 else f"{label} ({count})" for label, count in sorted(kinds.items()))
    what = files[0].name if len(files) == 1 else f"{len(files)} files"
    return f"{what}: {size:,} bytes, {encodings}"
