"""Read Parquet and Arrow files as JSON lines, so that their columns and rows are handled as in a .jsonl file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Literal

from glassformer.base.errors import GlassError
from glassformer.base.packages import require_packages

UNREPRESENTABLE = (ValueError, OverflowError, NotImplementedError, LookupError)
"""Errors for values without a Python type; those of pyarrow are among them."""
Columnar = Literal["parquet", "arrow"]
COLUMNAR_SUFFIXES: dict[str, Columnar] = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}
ROWS = 1024
"""Number of rows of a Parquet file that are converted at once; an Arrow file is already divided into batches."""


def columnar_of(name: str) -> Columnar | None:
    """Return the format that the suffix of a file name indicates; None if it is neither Parquet nor Arrow."""
    return COLUMNAR_SUFFIXES.get(Path(name.lower()).suffix)


def json_lines(path: Path, name: str) -> Iterator[str]:
    """Yield a line of JSON for each row.

    Values without a JSON type, such as dates, become strings. Bytes that are not UTF-8 and values that Python cannot
    represent become null.

    Raises:
        GlassError: pyarrow is not installed, the file is damaged or cannot be read, or two columns have the same name.
    """
    kind = columnar_of(name)
    require_packages("reading Parquet and Arrow files", "pyarrow", extra="parquet")
    import pyarrow

    try:
        batches = _parquet_batches(path) if kind == "parquet" else _arrow_batches(path)
        for batch in batches:
            names = batch.schema.names
            for repeated in (column for column in names if names.count(column) > 1):
                raise GlassError(f"{name} has several columns {repeated}", "Give each column another name.")
            for values in zip(*map(_values, batch.columns), strict=True):
                row = dict(zip(names, values, strict=True))
                yield json.dumps(row, ensure_ascii=False, default=_as_text) + "\n"
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        problem = " ".join(str(error).split())[:200]
        raise GlassError(f"{name} cannot be read as {kind}: {problem}", "Write or download the file again.") from None


def _values(column: Any) -> list[object]:
    """Return the values of a column; a value that Python cannot represent becomes text, or None without a text form."""
    try:
        return list(column.to_pylist())
    except UNREPRESENTABLE:
        return list(map(_value, column))


def _value(scalar: Any) -> object:
    """Return the value of a column in a row, as `_values` describes it."""
    try:
        return scalar.as_py()
    except UNREPRESENTABLE:  # such as a date after the year 9999, or nanoseconds without pandas
        with suppress(*UNREPRESENTABLE):
            return scalar.cast("string").as_py()
    return None


def _as_text(value: object) -> str | None:
    """Return a value without a JSON type as text. Bytes are decoded as UTF-8; invalid UTF-8 becomes None."""
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _parquet_batches(path: Path) -> Iterator[Any]:
    import pyarrow
    from pyarrow import parquet

    # An opened file, because pyarrow takes names such as s3:data for addresses.
    with pyarrow.OSFile(str(path)) as source, closing(parquet.ParquetFile(source, pre_buffer=False)) as file:
        yield from file.iter_batches(batch_size=ROWS, use_threads=False)


def _arrow_batches(path: Path) -> Iterator[Any]:
    """Yield the record batches of an Arrow file, or of the streaming format that the library `datasets` writes."""
    import pyarrow

    options = pyarrow.ipc.IpcReadOptions(use_threads=False)
    with pyarrow.memory_map(str(path)) as source:
        try:
            reader = pyarrow.ipc.open_file(source, options=options)
        except pyarrow.ArrowInvalid:
            source.seek(0)
            with pyarrow.ipc.open_stream(source, options=options) as stream:
                yield from stream
            return
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
