"""Values of tables that are not strings, and labels that look alike: read as in a CSV file, or named in a note."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import glassformer as gf
from glassformer.app.cli.main import main
from glassformer.base.config import DataConfig, Task
from glassformer.base.errors import GlassError
from glassformer.interop.sklearn import TransformerClassifier
from glassformer.text.data_notes import alike_notes
from glassformer.text.left_out import Tally
from glassformer.text.records import RECORD_KINDS
from glassformer.text.source import open_source
from glassformer.text.survey import kept_records, survey
from tests.unit.example_files import Write, encoded, jsonl, lines, made, notes, writer

NUMBERS = (42, -7, 3.5, True, 10**20)
TEXTS = ("42", "-7", "3.5", "true", "100000000000000000000")
SUFFIXES = (".jsonl", ".parquet", ".arrow")
TINY = {"model.layers": 1, "model.width": 8, "model.heads": 2, "model.context": 32, "train.batch": 4}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return writer(tmp_path)


def table(folder: Path, suffix: str, columns: dict[str, list[Any]]) -> str:
    """Write columns as a file of this kind, and return its path."""
    path = folder / f"table{suffix}"
    if suffix == ".jsonl":
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        path.write_text(jsonl(rows), encoding="utf-8")
        return str(path)
    pyarrow = pytest.importorskip("pyarrow")
    written = pyarrow.table(columns)
    if suffix == ".parquet":
        pytest.importorskip("pyarrow.parquet").write_table(written, path)
    else:
        with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_stream(sink, written.schema) as writer:
            writer.write_table(written)
    return str(path)


def records(task: Task, source: str, folder: Path, **settings: Any) -> tuple[list[tuple[str, ...]], str]:
    """Return the texts and labels of each record, and all notes on rows."""
    with open_source(RECORD_KINDS[task], DataConfig(source=source, **settings), folder) as opened:
        found = survey(opened)
        kept = kept_records(opened) if not opened.kind.running_text else opened.records(Tally())
        return [piece.texts + piece.labels for piece in kept], "\n".join(found.tally.notes())


def offline(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse every use of the network from Python: an audit hook."""
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        raise RuntimeError(f"{event} {arguments}")


@pytest.mark.thorough
@pytest.mark.parametrize("suffix", [".csv", *SUFFIXES])
def test_reading_a_table_uses_no_network(suffix: str, tmp_path: Path) -> None:
    """In a network namespace of its own, if the machine allows one; Python's sockets are refused in any case."""
    columns = {"text": ["http://example.org/a", "s3://bucket/b", "plain"], "label": ["a", "b", "a"]}
    if suffix == ".csv":
        (tmp_path / "table.csv").write_text("text,label\nhttp://example.org/a,a\ns3://bucket/b,b\nplain,a\n", "utf-8")
    else:
        table(tmp_path, suffix, columns)
    code = (
        "import sys; from tests.unit.test_table_values import offline; sys.addaudithook(offline)\n"
        "from glassformer.app.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    alone = ["unshare", "--user", "--map-root-user", "--net"]
    allowed = shutil.which("unshare") and subprocess.run([*alone, "true"], capture_output=True).returncode == 0
    words = ["data", "look", f"table{suffix}", "--task", "classify", "--tokenizer.kind", "bytes"]
    done = subprocess.run(
        [*(alone if allowed else []), sys.executable, "-c", code, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "3 labelled texts" in done.stdout + done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("column", range(len(NUMBERS)))
def test_numbers_are_texts(column: int, suffix: str, tmp_path: Path) -> None:
    value, text = NUMBERS[column], TEXTS[column]
    if suffix != ".jsonl" and value == 10**20:
        value, text = 2.5, "2.5"
    source = table(tmp_path, suffix, {"question": [f"what is number {n}" for n in range(4)], "answer": [value] * 4})
    rows = [(f"what is number {n}", text) for n in range(4)]
    assert records("translate", source, tmp_path)[0] == rows
    assert records("lm", source, tmp_path, column="answer")[0] == [(text,)] * 4
    assert records("classify", source, tmp_path, column="answer", label_column="question")[0] == [
        (answer, question) for question, answer in rows
    ]
    conversations, said = records("chat", source, tmp_path)
    expected = [f"user\ufdd0{question}\ufdd0assistant\ufdd0{answer}" for question, answer in rows]
    assert [text for (text,) in conversations] == expected
    assert "4 rows with a number, true or false that is read as text" in said


def test_a_column_of_numbers_is_the_target_only_if_no_text_is(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {"id": [1, 2, 3], "source": ["one two", "two", "three"], "target": ["a", "b", "c"]}
    expected = list(zip(columns["source"], columns["target"], strict=True))
    assert records("translate", table(tmp_path, ".jsonl", columns), tmp_path)[0] == expected
    columns["target"] = [7, 8, 9]
    expected = list(zip(columns["source"], "789", strict=True))
    assert records("translate", table(tmp_path, ".jsonl", columns), tmp_path)[0] == expected
    columns["score"] = columns.pop("target")
    with pytest.raises(GlassError, match="the source and target are not clear"):
        records("translate", table(tmp_path, ".jsonl", columns), tmp_path)


def test_some_numbers_among_texts_are_read_and_counted(write: Write, tmp_path: Path) -> None:
    source = write(
        "t.jsonl", jsonl({"text": text} for text in ("a b c", 42, None, ["d"], {"e": "f"}, float("nan"), "g"))
    )
    rows, said = records("lm", source, tmp_path, column="text")
    assert rows == [("a b c",), ("42",), ("g",)]
    assert "1 row with a number, true or false that is read as text" in said
    assert "left out 2 rows with a list or an object instead of a text" in said
    assert "instead of a text: for example line 4 of t.jsonl" in said
    assert "left out 2 rows without text in that column" in said


@pytest.mark.parametrize("label", [["spam"], ["spam", "ham"], {"name": "spam"}])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_list_or_an_object_is_not_a_missing_label(label: Any, suffix: str, tmp_path: Path) -> None:
    source = table(tmp_path, suffix, {"label": [label] * 5, "text": [f"text number {n}" for n in range(5)]})
    with pytest.raises(GlassError) as caught:
        records("classify", source, tmp_path)
    assert "left out 5 rows with a list or an object as label" in caught.value.problem
    assert caught.value.remedy == "Write each label as text."


def test_a_list_of_words_is_not_an_empty_text(write: Write, tmp_path: Path) -> None:
    rows = [{"label": label, "text": ["some", "words"]} for label in "ab"] + [{"label": "a", "text": "a text of it"}]
    source = write("t.jsonl", jsonl(rows))
    found, said = records("classify", source, tmp_path, column="text", label_column="label")
    assert found == [("a text of it", "a")]
    assert "left out 2 rows with a list or an object instead of a text" in said


ALIKE = {
    "compositions": ("caf\u00e9", "cafe\u0301"),
    "a zero-width space": ("spam", "spam\u200b"),
    "case": ("spam", "Spam"),
    "a no-break space": ("real estate", "real\u00a0estate"),
    "width": ("spam", "ｓｐａｍ"),
    "a byte order mark": ("spam", "\ufeffspam"),
    "a variation selector": ("\u2764", "\u2764\ufe0f"),
    "a grapheme joiner": ("spam", "sp\u034fam"),
    "a filler": ("spam", "spam\u3164"),
    "a control character": ("spam", "spam\x07"),
    "a hyphen": ("e-mail", "e\u2010mail"),
    "a no-break hyphen": ("e-mail", "e\u2011mail"),
    "an apostrophe": ("don't", "don\u2019t"),
}


@pytest.mark.parametrize("kind", ALIKE)
def test_labels_that_look_alike_have_a_note(kind: str) -> None:
    assert alike_notes(dict.fromkeys((*ALIKE[kind], "other"), 1)) != []


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ALIKE)
def test_labels_that_look_alike_are_named(kind: str, write: Write, tmp_path: Path) -> None:
    first, second = sorted(ALIKE[kind])
    rows = [(label, f"text number {n} of it") for n in range(12) for label in (first, second, "other")]
    said = f"labels that look alike are different labels: {first!a} (12) and {second!a} (12)"
    for source in (
        write("t.csv", "label,text\n" + lines(f"{label},{text}" for label, text in rows)),
        write("t.jsonl", jsonl({"label": label, "text": text} for label, text in rows)),
    ):
        assert said in notes(made(tmp_path, "classify", source=source))


@pytest.mark.thorough
def test_a_label_with_a_line_break_is_printed_in_one_line(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(label, f"text number {n} of it") for n in range(12) for label in ('"a\nb"', '"c\nd"')]
    source = write("t.csv", "label,text\n" + lines(f"{label},{text}" for label, text in rows))
    gf.fit(source, task="classify", steps=1, out=tmp_path / "run", settings=TINY)
    capsys.readouterr()
    assert main(["classify", str(tmp_path / "run"), "--input", write("u.txt", "a text\nanother\n")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[0] in ("a b", "c d") for line in printed] == [True, True]


@pytest.mark.thorough
def test_python_warns_of_labels_that_look_alike(write: Write, tmp_path: Path) -> None:
    rows = [(label, f"text number {n} of it") for n in range(12) for label in ("spam", "Spam", "other")]
    source = write("t.csv", "label,text\n" + lines(f"{label},{text}" for label, text in rows))
    with pytest.warns(UserWarning, match="look alike"):
        gf.fit(source, task="classify", steps=1, out=tmp_path / "run", settings=TINY)
    with pytest.warns(UserWarning, match="look alike"):
        TransformerClassifier(steps=1, layers=1, width=8, heads=2).fit(
            [text for _, text in rows], [label for label, _ in rows]
        )


def test_different_labels_are_not_alike(write: Write, tmp_path: Path) -> None:
    rows = [(label, f"text {n} of it") for n in range(9) for label in ("ham", "spam", "1", "01", "কি", "কী")]
    source = write("t.csv", "label,text\n" + lines(f"{label},{text}" for label, text in rows))
    assert "look alike" not in notes(made(tmp_path, "classify", source=source))


def test_a_label_that_looks_like_a_known_one_is_named_in_an_evaluation(write: Write, tmp_path: Path) -> None:
    rows = [{"label": label, "text": f"text {n} of it"} for n in range(9) for label in ("caf\u00e9", "bar")]
    tokenizer = made(tmp_path, "classify", source=write("t.jsonl", jsonl(rows))).tokenizer
    rows[0]["label"] = "cafe\u0301"
    data = DataConfig(source=write("u.jsonl", jsonl(rows)))
    _, said = encoded("classify", data, (tokenizer, tokenizer), ("bar", "caf\u00e9"), tmp_path)
    assert r"'cafe\u0301' looks like the known label 'caf\xe9', but has other characters" in "\n".join(said)
    assert json.dumps(said)


@pytest.mark.parametrize("task", ["classify", "translate"])
def test_an_error_names_the_rows_that_were_left_out(task: Task, write: Write, tmp_path: Path) -> None:
    value, other = {"classify": ("label", "text"), "translate": ("source", "target")}[task]
    rows = [{value: each, other: "some words of text"} for _ in range(20) for each in (["a"], "b")]
    with pytest.raises(GlassError, match="20 ") as caught:
        made(tmp_path, task, source=write("t.jsonl", jsonl(rows)), split="random")
    assert ": left out 20 " in caught.value.problem


def test_a_context_is_not_an_answer(write: Write, tmp_path: Path) -> None:
    rows = [{"question": f"why {n}", "context": "some words", "answers": {"text": ["a"]}} for n in range(30)]
    with pytest.raises(GlassError, match="the answer is not clear: column context belongs to the question"):
        made(tmp_path, "chat", source=write("t.jsonl", jsonl(rows)))


def test_columns_beside_the_text_are_named(write: Write, tmp_path: Path) -> None:
    rows = [{"text": f"some words of number {n}", "system": "zz", "weight": 0} for n in range(30)]
    said = "\n".join(made(tmp_path, "lm", source=write("t.jsonl", jsonl(rows))).notes)
    assert "column 'text' is read, the only one that reads like text; columns that are not read: system, weight" in said
