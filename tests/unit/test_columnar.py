"""Parquet and Arrow files give the same records as the same rows in a .jsonl file."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from glassformer.base import packages
from glassformer.base.config import DataConfig, Task, TokenizerConfig
from glassformer.base.errors import GlassError
from glassformer.base.packages import install_command
from glassformer.text.columnar import json_lines
from glassformer.text.prepare import Prepared, prepare
from glassformer.text.records import RECORD_KINDS

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ROWS: list[dict[str, Any]] = [
    {
        "label": ["spam", "ham"][n % 2],
        "text": f"message number {n} of many, in বাংলা too",
        "summary": f"the short form of message {n}",
        "when": datetime.date(2026, 1, 1 + n % 28),
        "messages": [{"role": "user", "content": f"What is {n}?"}, {"role": "assistant", "content": f"It is {n}."}],
    }
    for n in range(60)
]
CHOICES: dict[Task, dict[str, str]] = {
    "lm": {"column": "text"},
    "classify": {"column": "text", "label_column": "label"},
    "summarize": {"column": "text", "target_column": "summary"},
    "chat": {},
}


def written(folder: Path, suffix: str, rows: list[dict[str, Any]]) -> Path:
    """Write rows as a file of this kind."""
    if suffix != ".jsonl":
        return written_table(folder, suffix, pyarrow.Table.from_pylist(rows))
    path = folder / f"rows{suffix}"
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows), encoding="utf-8")
    return path


def written_table(folder: Path, suffix: str, table: Any) -> Path:
    """Write a table as a file of this kind."""
    path = folder / f"rows{suffix}"
    if suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=7)
    else:
        make = pyarrow.ipc.new_file if suffix == ".feather" else pyarrow.ipc.new_stream
        with pyarrow.OSFile(str(path), "wb") as sink, make(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=9)
    return path


def prepared(task: Task, path: Path, **data: Any) -> Prepared:
    settings = DataConfig(source=str(path), split="random", validation_fraction=0.2, **data)
    tokenizer = TokenizerConfig(kind="bpe", vocab_size=400)
    return prepare(RECORD_KINDS[task], settings, tokenizer, path.parent / ".tokens")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather"])
@pytest.mark.parametrize("task", list(CHOICES))
def test_columnar_files_give_the_tokens_of_json_lines(tmp_path: Path, task: Task, suffix: str) -> None:
    columns = prepared(task, written(tmp_path, suffix, ROWS), **CHOICES[task])
    lines = prepared(task, written(tmp_path, ".jsonl", ROWS), **CHOICES[task])
    for one, other in ((columns.train, lines.train), (columns.validation, lines.validation)):
        for role in one.tokens:
            assert one.tokens[role].tokens.tolist() == other.tokens[role].tokens.tolist()
    assert columns.tokenizer.digest == lines.tokenizer.digest
    assert any(suffix.strip(".").replace("feather", "arrow") in note for note in columns.notes)


def test_a_folder_of_columnar_files_is_read_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    for number in range(3):
        written(folder, ".parquet", ROWS[20 * number : 20 * number + 20]).rename(folder / f"{number}.parquet")
    found = prepared("lm", folder, column="text")
    assert found.train.source.documents + found.validation.source.documents == 60


def test_a_nested_column_is_not_text(tmp_path: Path) -> None:
    path = written(tmp_path, ".parquet", [{"nested": {"text": "a text in a struct"}, "other": 1} for _ in range(5)])
    with pytest.raises(GlassError, match="left out 5 rows with a list or an object instead of a text"):
        prepared("lm", path, column="nested")
    with pytest.raises(GlassError, match="no column 'txt'"):
        prepared("lm", path, column="txt")
    assert not (tmp_path / ".tokens").exists()


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_values_that_python_cannot_represent_do_not_refuse_the_file(tmp_path: Path, suffix: str) -> None:
    columns = {
        "text": pyarrow.array([row["text"] for row in ROWS]),
        "late": pyarrow.array([3_000_000] * 60, pyarrow.date32()),
        "later": pyarrow.array([10**12] * 60, pyarrow.timestamp("s")),
        "precise": pyarrow.array([1_000_000_001] * 60, pyarrow.timestamp("ns")),
        "long": pyarrow.array([1_000_000_001] * 60, pyarrow.duration("ns")),
        "short": pyarrow.array([1_000_001] * 60, pyarrow.time64("ns")),
        "zoned": pyarrow.array([1] * 60, pyarrow.timestamp("s", tz="Moon/Base")),
    }
    path = written_table(tmp_path, suffix, pyarrow.table(columns))
    lines = "".join(json_lines(path, path.name)).splitlines()
    assert [json.loads(line)["text"] for line in lines] == [row["text"] for row in ROWS]
    found = prepared("lm", path, column="text")
    assert found.train.source.documents + found.validation.source.documents == 60


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, suffix: str) -> None:
    texts = [row["text"] for row in ROWS]
    path = written_table(tmp_path, suffix, pyarrow.table([texts, texts[::-1]], names=["text", "text"]))
    with pytest.raises(GlassError, match=rf"rows\{suffix} has several columns text"):
        prepared("lm", path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    for suffix in (".parquet", ".arrow", ".feather"):
        path = written(tmp_path, suffix, ROWS)
        path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(GlassError, match=f"rows{suffix} cannot be read as") as refused:
            prepared("lm", path, column="text")
        assert refused.value.remedy == "Write or download the file again."


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    from dataclasses import replace

    from glassformer.text.reading import SourceFile, columnar_scan

    path = written(tmp_path, ".parquet", ROWS)
    file = SourceFile(path, path.name, "jsonl")
    scanned = replace(file, scan=columnar_scan(file))
    assert len("".join(scanned.text()).splitlines()) == 60
    written(tmp_path, ".parquet", ROWS[:-1])
    with pytest.raises(GlassError, match=r"rows\.parquet changed while it was read"):
        list(scanned.text())


def test_without_the_package_the_installation_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, ".parquet", ROWS)
    monkeypatch.setattr(packages, "installed", lambda name: name != "pyarrow")
    with pytest.raises(GlassError, match="needs the package pyarrow") as refused:
        list(json_lines(path, path.name))
    assert refused.value.remedy == install_command("parquet")
