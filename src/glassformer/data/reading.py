"""Open a source: every file located, unpacked, its encoding known, its column found; read as often as needed."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Literal

from glassformer.config import DataConfig
from glassformer.data import columns, tables
from glassformer.data.encodings import BinaryError, Encoding, Scan, UndecodableError, decode, scan
from glassformer.data.locating import BLOCK, Located, located
from glassformer.errors import GlassError
from glassformer.files import clear_disk_errors

GZIP = b"\x1f\x8b"
TABLE_SUFFIXES: dict[str, tables.Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
SHOWN_NAMES = 5


@dataclass(frozen=True)
class SourceFile:
    """One input file: where it is, how its bytes are to be read, and which column if it is a table."""

    path: Path
    name: str
    format: Literal["text", "csv", "tsv", "jsonl"]
    scan: Scan = field(default_factory=lambda: Scan(Encoding("utf-8"), 0, ""))
    table: tables.Table | None = None
    chosen: columns.Chosen | None = None

    def blocks(self) -> Iterator[bytes]:
        """The bytes, unpacked where the file is gzip (told by its first bytes, whatever its name)."""
        with clear_disk_errors(self.path), self.path.open("rb") as raw:
            packed = raw.read(2) == GZIP
            raw.seek(0)
            if not packed and self.path.name.endswith(".gz"):
                raise GlassError(f"{self.name} is not gzip, though its name says so", "Pack it again, or rename it.")
            stream = gzip.GzipFile(fileobj=raw) if packed else raw
            try:
                while block := stream.read(BLOCK):
                    yield block
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise GlassError(f"{self.name} is a damaged gzip file: {error}", "Pack or download it again.") from None

    def text(self) -> Iterator[str]:
        """The decoded text in pieces of about a million characters.

        Raises:
            GlassError: at the end, where the file is no longer the one that was scanned.
        """
        digest = hashlib.sha256()

        def hashed() -> Iterator[bytes]:
            for block in self.blocks():
                digest.update(block)
                yield block

        changed = GlassError(f"{self.name} changed while it was read", "Run the same command again.")
        try:
            yield from decode(hashed(), self.scan.encoding)
        except UndecodableError:
            raise changed from None
        if digest.hexdigest() != self.scan.digest:
            raise changed

    def cells(self) -> Iterator[list[object]]:
        """The values of the chosen columns, row by row (see `tables.read_cells`)."""
        assert self.table is not None
        assert self.chosen is not None
        return tables.read_cells(self.text(), self.table, self.chosen.indices)

    def rows(self, left_out: Counter[str]) -> Iterator[str]:
        """A table's text, row by row; rows without it are counted in `left_out`."""
        what = "text in " if self.format == "jsonl" else ""
        for (value,) in self.cells():
            if isinstance(value, str):
                yield value
            else:
                left_out[f"rows without {what}that column"] += 1


@dataclass(frozen=True)
class Source:
    """What is to be read: files, or a generated corpus; `digest` is a hash of all its content."""

    name: str
    files: tuple[SourceFile, ...]
    corpus: str | None
    digest: str
    notes: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of all files, unpacked (0 for a generated corpus)."""
        return sum(file.scan.size for file in self.files)


@contextmanager
def open_source(data: DataConfig, cache: Path) -> Iterator[Source]:
    """Locate, check and describe the source of `data`; every byte is read once here.

    `cache` is the folder in which standard input is kept until the block ends.

    Raises:
        GlassError: missing, empty, binary, in an unknown encoding, a table whose column is not clear, or a setting for
            pairs or labelled texts.
    """
    for name in ("target", "target_column", "label_column"):
        if getattr(data, name) is not None:
            raise GlassError(
                f"data.{name} was given, and running text is to be read",
                "Say what to learn: set train.task to translate, summarize or classify; or leave it out.",
            )
    with located(data.source, cache) as found:
        if found.corpus:
            yield _generated(data, found)
        else:
            source = scan_files(data.source, data.encoding, found, tables_wanted=data.column is not None)
            ready = tuple(_with_column(file, data) for file in source.files)
            notes = [file.chosen.note for file in ready[:SHOWN_NAMES] if file.chosen]
            yield replace(source, files=ready, notes=(*source.notes, *notes))


def _generated(data: DataConfig, found: Located) -> Source:
    from glassformer.data.corpora import find_text_corpus

    name = found.corpus
    assert name is not None
    if data.column is not None:
        raise GlassError(f"the generated corpus {name} has no columns", "Leave data.column unset.")
    # The first documents stand for the generator itself: a change in it changes them.
    documents = islice(find_text_corpus(name).documents(data.size, data.seed), 50)
    digest = hashlib.sha256("\0".join([name, str(data.size), str(data.seed), *documents]).encode("utf-8"))
    notes = [*found.notes, f"{name}: generated corpus, {data.size:,} documents, seed {data.seed}"]
    return Source(name, (), name, digest.hexdigest(), tuple(notes))


def scan_files(what: str, encoding: str, found: Located, tables_wanted: bool) -> Source:
    """The files that were found as a source: their encodings known, every byte read once, no column chosen yet.

    Args:
        what: what the person called them.
        encoding: `data.encoding`.
        tables_wanted: of a folder, its tables are read; standard input is one.

    Raises:
        GlassError: empty, binary, in an unknown encoding, or nothing of the kind that is wanted.
    """
    files = [SourceFile(path, name, format_of(name)) for path, name in found.files]
    if found.temporary and tables_wanted:
        files = [_sniffed(file, encoding) for file in files]
    left_out: list[str] = []
    if found.folder:
        files = _one_kind(files, tables_wanted, left_out)
    scanned: list[SourceFile] = []
    for file in files:
        try:
            scanned.append(replace(file, scan=scan(file.blocks, encoding, file.name)))
        except BinaryError as error:
            if not found.folder:
                raise
            left_out.append(f"{file.name} ({_reason(error)})")
    if not sum(file.scan.size - file.scan.encoding.skip for file in scanned):
        shown = f"; left out: {_listed(left_out)}" if left_out else ""
        named = found.files[0][1] if found.temporary else what
        raise GlassError(f"{named} holds no text (0 bytes){shown}", "Give a source with some text in it.")
    digest = hashlib.sha256("".join(f"{file.format} {file.scan.digest}\n" for file in scanned).encode("utf-8"))
    notes = [*found.notes, _description(scanned)]
    if left_out:
        notes.append(f"left out {len(left_out)} of {len(found.files)} files: {_listed(left_out)}")
    return Source(what, tuple(scanned), None, digest.hexdigest(), tuple(notes))


def format_of(name: str) -> Literal["text", "csv", "tsv", "jsonl"]:
    """What a file of this name is; anything that is no table is plain text."""
    return TABLE_SUFFIXES.get(Path(name.lower().removesuffix(".gz")).suffix, "text")


def _sniffed(file: SourceFile, encoding: str) -> SourceFile:
    """Standard input has no name to go by: with a column asked for, its first line tells which table it is."""
    head = next(replace(file, scan=scan(file.blocks, encoding, file.name)).text(), "").lstrip()
    first = head.partition("\n")[0]
    return replace(file, format="jsonl" if first.startswith("{") else "tsv" if "\t" in first else "csv")


def _one_kind(files: list[SourceFile], column_named: bool, left_out: list[str]) -> list[SourceFile]:
    """A folder is read as tables when a column is named or it holds nothing else, as plain text otherwise."""
    tables_wanted = column_named or all(file.format != "text" for file in files)
    wanted = [file for file in files if (file.format != "text") == tables_wanted]
    if not wanted:
        raise GlassError(
            f"data.column is set, but none of the {len(files)} files is a table", "Leave it unset to read plain text."
        )
    why = "not a table" if tables_wanted else "a table; set data.column to read tables"
    left_out += [f"{file.name} ({why})" for file in files if file not in wanted]
    return wanted


def _with_column(file: SourceFile, data: DataConfig) -> SourceFile:
    if file.format == "text":
        if data.column is not None:
            raise GlassError(
                f"data.column is {data.column!r}, but {file.name} is plain text",
                "Leave it unset, or give a file that ends in .csv, .tsv or .jsonl (.gz too).",
            )
        return file
    wanted = [data.column] if data.column is not None else []
    table = tables.describe(file.text(), file.format, wanted, file.name)
    return replace(file, table=table, chosen=columns.choose_text(table, data.column))


def _reason(error: GlassError) -> str:
    return error.problem.partition(" is ")[2].replace("a binary file, not text", "binary")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more


def _description(files: list[SourceFile]) -> str:
    size = sum(file.scan.size for file in files)
    kinds = Counter(file.scan.encoding.label for file in files if file.scan.size)
    encodings = ", ".join(label if len(kinds) == 1 else f"{label} ({count})" for label, count in sorted(kinds.items()))
    what = files[0].name if len(files) == 1 else f"{len(files)} files"
    return f"{what}: {size:,} bytes, {encodings}"
