"""Input texts of the commands, from arguments, standard input or the lines of a file, and warnings about them."""

from __future__ import annotations

import argparse
import gzip
import re
import sys
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from glassformer.base.config import Config, DataConfig
from glassformer.base.errors import GlassError, nearest_file
from glassformer.base.wording import counted
from glassformer.text.tables import ONLY_TABLES

if TYPE_CHECKING:
    from glassformer.tasks import AnyTextModel


def add_table_flags(parser: argparse.ArgumentParser, option: str) -> None:
    """Add `--data.column` and the settings of CSV and TSV tables, for a table that the option `option` names."""
    parser.add_argument(
        "--data.column", dest="column", metavar="NAME", help=f"with {option}: column to read, if the file is a table"
    )
    for name in ONLY_TABLES:
        allowed = get_args(DataConfig.model_fields[name].annotation)
        parser.add_argument(
            f"--data.{name}", dest=name, choices=allowed, help=f"with {option}: the same option as in glass train"
        )


def table_flags(arguments: argparse.Namespace, option: str, given: bool) -> dict[str, str]:
    """Return the values of the flags that `add_table_flags` added.

    Raises:
        GlassError: a flag was given, but the option that names a table was not (`given`).
    """
    names = ("column", *ONLY_TABLES)
    reading = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    for name, value in reading.items() if not given else ():
        raise GlassError(
            f"--data.{name} {value} was given without {option}: there is no table to read", f"Add {option} FILE."
        )
    return reading


def texts_of(
    path: Path, config: Config, reading: Mapping[str, str], what: str = "prompt", targets: bool = False
) -> list[str]:
    """Return the texts of a file: the rows of a table (CSV, TSV, JSONL, Parquet, Arrow), or the lines of another file.

    Without a table's suffix, a file is a table as in training: if its first line has a tab, except for running text. A
    pipe is also a table if its first line is a JSON object or column names, or with settings for tables in `reading`.

    The file may be gzipped, and in any encoding that training reads. Each line or row gives one text, so that output
    lines stay aligned with the input. A line ends with `\\n` or `\\r\\n`, as in parallel files and for `wc -l`.

    Args:
        path: the file.
        config: settings of the run; a table is read as the table that it was trained on.
        reading: settings of `data` that override them: `column`, and those in `ONLY_TABLES`.
        what: what each text is, for messages.
        targets: for pairs in a table, whether to append each row's target after a tab.

    Raises:
        GlassError: the file cannot be read, is empty, is a damaged gzip file, or has an unknown encoding; or a table
            cannot be read.
    """
    from glassformer.text.columnar import columnar_of, json_lines
    from glassformer.text.input_texts import texts_of_table
    from glassformer.text.locating import Located
    from glassformer.text.reading import SourceFile, format_by_first_line, format_of, refuse_plain_json
    from glassformer.text.records import RECORD_KINDS

    advice = f"Give a file with one {what} per line, or a table (.csv, .tsv, .jsonl, .parquet)."
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise GlassError(f"{path} does not exist", nearest_file(path, advice)) from None
    except OSError as error:
        raise GlassError(f"{path} cannot be read: {error.strerror}", advice) from None
    if not content:
        raise GlassError(f"{path} is empty", advice)
    format = format_of(path.name)
    columnar = columnar_of(path.name) is not None
    text = "" if columnar else _decode_file(content, str(path), config.data.encoding)
    kind = RECORD_KINDS[config.train.task]
    piped = not path.is_file() or path.is_relative_to("/dev")
    if format == "text" and not targets and ((piped and reading) or not kind.running_text):
        found = format_by_first_line(text)
        if found == "tsv" or (piped and (reading or found == "jsonl" or _has_names(text, config.data.column))):
            format = found
    if format == "text":
        for name in reading:
            raise GlassError(
                f"--data.{name} was given, but {path} is not a table", f"Leave --data.{name} out, or give a table."
            )
        refuse_plain_json([SourceFile(path, path.name, "text")], Located())
        if piped and not kind.running_text:
            print(f"{path}: each line is read as a text; --data.column NAME reads a table", file=sys.stderr)
        return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    texts, notes = texts_of_table(
        (lambda: json_lines(path, path.name)) if columnar else (lambda: iter([text])),
        format,
        path.name,
        kind,
        config.data.model_copy(update={name: value for name, value in reading.items() if name != "column"}),
        reading.get("column"),
        targets,
    )
    for note in notes:
        print(note, file=sys.stderr)
    return texts


def _has_names(text: str, column: str | None) -> bool:
    """Return whether the first line of a text has several column names: usual ones, or the column of the training."""
    from glassformer.text.column_names import usual_names

    cells = [cell.strip(' "\r') for cell in re.split("[,;|]", text.lstrip().partition("\n")[0])]
    return len(cells) > 1 and (usual_names(cells) or column in cells)


def _decode_file(data: bytes, name: str, encoding: str) -> str:
    """Return the bytes of a file as text, decompressed and decoded as in training; print any note on the encoding.

    A file whose encoding is not detected is read in the encoding of the training data.

    Raises:
        GlassError: the bytes are a damaged gzip file, or have an unknown encoding.
    """
    from glassformer.text.encodings import decode, scan
    from glassformer.text.reading import GZIP

    try:
        unpacked = gzip.decompress(data) if data.startswith(GZIP) else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise GlassError(f"{name} is a damaged gzip file: {error}", "Compress or download the file again.") from None
    try:
        scanned = scan(lambda: iter([unpacked]), "auto", name)
        if scanned.encoding.codec == "cp1252":  # a guess
            scanned = scan(lambda: iter([unpacked]), encoding, name)
    except GlassError as error:
        if encoding == "auto":
            raise GlassError(error.problem, "Save the file as UTF-8, then try again.") from None
        scanned = scan(lambda: iter([unpacked]), encoding, name)
    if scanned.remark:
        print(scanned.remark, file=sys.stderr)
    return "".join(decode(iter([unpacked]), scanned.encoding))


def standard_input(keep_line_end: bool = False) -> str:
    """Return standard input as one text, without the final line end unless `keep_line_end` is True."""
    text = as_utf8(sys.stdin.buffer.read(), "standard input")
    return text if keep_line_end else text.removesuffix("\n").removesuffix("\r")


def as_utf8(data: bytes, name: str) -> str:
    """Decode UTF-8 bytes; a byte order mark at the beginning is removed.

    Raises:
        GlassError: the bytes are not UTF-8; `name` is the name of the input in the error.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GlassError(f"{name} is not UTF-8 at byte {error.start}", "Convert it to UTF-8.") from None


def warn_unknown(model: AnyTextModel, texts: Iterable[str], targets: Iterable[str | None] = ()) -> None:
    """Print the notes of `glassformer.tasks.text_notes`: symbols in another Unicode form, and unknown symbols."""
    from glassformer.tasks import text_notes

    for note in text_notes(model, texts, targets):
        print(note, file=sys.stderr)


def note_still_training(folder: Path, checkpoint: str) -> None:
    """Print a note if the run is still training, because results are then those of an unfinished run."""
    from glassformer.base.locks import is_held

    if is_held(folder):
        print(f"{folder} is still training: this is its {checkpoint} checkpoint so far", file=sys.stderr)


def warn_truncated(unread: list[int], what: str, context: int) -> None:
    """Print a warning if texts were truncated: the number of these texts, and the largest number of omitted tokens."""
    truncated = [count for count in unread if count]
    if truncated:
        of = f"of {len(unread):,} {what}"
        subject = counted(len(truncated), f"{of} are", f"{of} is")
        extent = f"the ends were left out, up to {counted(max(truncated), 'tokens')}"
        if len(unread) == 1:
            subject = f"the {what.removesuffix('s')} is"
            extent = f"its last {counted(truncated[0], 'tokens were left out', 'token was left out')}"
        print(
            f"{subject} longer than the context (model.context = {context}): {extent}",
            file=sys.stderr,
        )
