"""Tables as input of commands: each row gives one text, from the column that the model was trained on."""

from __future__ import annotations

import gzip
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.journey.commands import here
from tests.journey.task_runs import refused

WIN = "win a 7 pound prize now"
LUNCH = "lunch at 3 with the team, today"
SENTENCES = ["the old dog sleeps .", "the young cat, sings ."]
pytestmark = pytest.mark.thorough
FORMATS = ("csv", "tsv", "jsonl", "parquet", "arrow", "csv.gz")


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    """Write rows in the format of the suffix, and return the name of the file."""
    names = list(rows[0])
    if path.name.endswith((".csv", ".csv.gz")):
        cells = [[f'"{value}"' for value in row.values()] for row in rows]
        content = "".join(",".join(line) + "\n" for line in [names, *cells]).encode()
        path.write_bytes(gzip.compress(content) if path.name.endswith(".gz") else content)
    elif path.suffix == ".tsv":
        path.write_text(
            "".join("\t".join(map(str, cells)) + "\n" for cells in [names, *(row.values() for row in rows)])
        )
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        pyarrow = pytest.importorskip("pyarrow")
        written = pyarrow.Table.from_pylist(rows)
        if path.suffix == ".parquet":
            pytest.importorskip("pyarrow.parquet").write_table(written, path)
        else:
            with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_file(sink, written.schema) as writer:
                writer.write_table(written)
    return path.name


def texts_of(command: str, home: Path, *arguments: str) -> tuple[list[str], str]:
    """Return the texts that a command used, and its messages."""
    done = here(command, *arguments, "--json", folder=home)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    if command == "classify":
        return [text["text"] for text in facts["texts"]], done.stderr
    return [sample["prompt"] for sample in facts["samples"]], done.stderr


@pytest.mark.parametrize("format", FORMATS)
def test_classify_reads_the_texts_of_a_table(format: str, task_home: Path) -> None:
    for rows in (
        [{"label": "spam", "text": WIN}, {"label": "work", "text": LUNCH}],
        [{"text": WIN}, {"text": LUNCH}],
        [{"id": 1, "text": WIN}, {"id": 2, "text": LUNCH}],
    ):
        name = write(task_home / f"input.{format}", rows)
        texts, said = texts_of("classify", task_home, "runs/classify", "--input", name)
        assert texts == [WIN, LUNCH]
        assert "text" in said
    lines = here("classify", "runs/classify", "--input", name, folder=task_home).stdout.splitlines()
    assert [line.rpartition("\t")[2] for line in lines] == [WIN, LUNCH]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("run", "names"), [("two", ("english", "german")), ("summarize", ("article", "summary"))])
def test_generate_reads_the_sources_of_a_table(run: str, names: tuple[str, str], format: str, task_home: Path) -> None:
    for rows in (
        [dict(zip(names, (sentence, "x y z w"), strict=True)) for sentence in SENTENCES],
        [{names[0]: sentence} for sentence in SENTENCES],
        [{"id": n, "text": sentence} for n, sentence in enumerate(SENTENCES)],
    ):
        name = write(task_home / f"input.{format}", rows)
        texts, _ = texts_of("generate", task_home, f"runs/{run}", "--input", name, "--tokens=2")
        assert texts == SENTENCES


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("run", ["lm", "chat"])
def test_generate_continues_the_texts_of_a_table(run: str, format: str, task_home: Path) -> None:
    rows = [{"id": n, "text": text} for n, text in enumerate(SENTENCES)]
    name = write(task_home / f"input.{format}", rows)
    texts, said = texts_of("generate", task_home, f"runs/{run}", "--input", name, "--tokens=2")
    assert texts == SENTENCES
    assert "'text' is read" in said or "column text read" in said


def test_a_column_can_be_named(task_home: Path) -> None:
    rows = [{"title": "report 3", "body": LUNCH, "more": WIN}, {"title": "prize 4", "body": WIN, "more": LUNCH}]
    name = write(task_home / "columns.csv", rows)
    for column, expected in (("body", [LUNCH, WIN]), ("title,more", [f"report 3\n{WIN}", f"prize 4\n{LUNCH}"])):
        texts, _ = texts_of("classify", task_home, "runs/classify", "--input", name, "--data.column", column)
        assert texts == expected
    texts, _ = texts_of("generate", task_home, "runs/two", "--input", name, "--data.column=more", "--tokens=2")
    assert texts == [WIN, LUNCH]
    problem, remedy = refused("generate", "runs/lm", "--input", name, folder=task_home)
    assert "columns body, more all contain text" in problem
    assert "data.column" in remedy
    problem, _ = refused("classify", "runs/classify", "--input", name, "--data.column=text", folder=task_home)
    assert "has no column 'text'" in problem


def test_numbers_line_breaks_and_empty_cells_stay_aligned(task_home: Path) -> None:
    rows = [{"text": 42, "n": 0}, {"text": None, "n": 1}, {"text": f"{WIN}\nand more", "n": 2}, {"text": "", "n": 3}]
    name = write(task_home / "odd.jsonl", rows)
    texts, said = texts_of("classify", task_home, "runs/classify", "--input", name, "--data.column=text")
    assert texts == ["42", "", f"{WIN}\nand more", ""]
    assert "odd.jsonl: 2 rows without a text, read as an empty text" in said
    lines = here("classify", "runs/classify", "--input", name, "--data.column=text", folder=task_home).stdout
    assert lines.count("\n") == 4
    (task_home / "short.csv").write_text(f"label,text\nspam,{WIN}\nspam\n", encoding="utf-8")
    problem, _ = refused("classify", "runs/classify", "--input", "short.csv", folder=task_home)
    assert problem == "short.csv has 1 row with too few fields, for example line 3 of short.csv"


def test_what_is_not_a_text_is_refused(task_home: Path) -> None:
    write(task_home / "talk.jsonl", [{"messages": [{"role": "user", "content": "hello"}]}] * 2)
    problem, remedy = refused("generate", "runs/chat", "--input", "talk.jsonl", folder=task_home)
    assert "line 1 of talk.jsonl has a list or an object instead of a text" in problem
    assert "--data.column" in remedy
    (task_home / "array.json").write_text(json.dumps([{"text": WIN}]), encoding="utf-8")
    problem, remedy = refused("classify", "runs/classify", "--input", "array.json", folder=task_home)
    assert "array.json contains JSON" in problem
    (task_home / "broken.csv").write_text(f'label,text\nspam,"{WIN}\n', encoding="utf-8")
    problem, _ = refused("classify", "runs/classify", "--input", "broken.csv", folder=task_home)
    assert "line 2 of broken.csv: a quote is never closed" in problem
    for arguments in (["classify", "runs/classify", WIN], ["generate", "runs/two", WIN], ["heads", "runs/lm"]):
        problem, _ = refused(*arguments, "--data.header=yes", folder=task_home)
        assert "without --" in problem
    (task_home / "lines.txt").write_text(f"{WIN}\n", encoding="utf-8")
    problem, _ = refused("classify", "runs/classify", "--input", "lines.txt", "--data.column=1", folder=task_home)
    assert "lines.txt is not a table" in problem


def test_heads_reads_the_texts_of_a_table(task_home: Path) -> None:
    name = write(task_home / "heads.csv", [{"english": SENTENCES[0], "german": "der alte Hund schläft ."}])
    (task_home / "heads.txt").write_text(f"{SENTENCES[0]}\tder alte Hund schläft .\n", encoding="utf-8")
    outputs = [
        json.loads(here("heads", "runs/two", "--text", file, "--json", folder=task_home).stdout)["heads"]
        for file in (name, "heads.txt")
    ]
    assert outputs[0] == outputs[1]


def test_a_table_without_its_suffix_is_read_as_in_training(task_home: Path) -> None:
    (task_home / "labelled.txt").write_text(f"spam\t{WIN}\nwork\t{LUNCH}\n", encoding="utf-8")
    assert texts_of("classify", task_home, "runs/classify", "--input", "labelled.txt")[0] == [WIN, LUNCH]
    (task_home / "pairs.txt").write_text("".join(f"{text}\tx y z w\n" for text in SENTENCES), encoding="utf-8")
    assert texts_of("generate", task_home, "runs/two", "--input", "pairs.txt", "--tokens=2")[0] == SENTENCES
    texts, _ = texts_of("generate", task_home, "runs/lm", "--input", "pairs.txt", "--tokens=2")
    assert texts == [f"{text}\tx y z w" for text in SENTENCES]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_a_piped_table_is_read_as_a_table(task_home: Path) -> None:
    for content, options, expected in (
        (f'id,text\n0,{WIN}\n1,"{LUNCH}"\n', [], [WIN, LUNCH]),
        (f'n,what\n0,{WIN}\n1,"{LUNCH}"\n', ["--data.column=what"], [WIN, LUNCH]),
        (f"spam\t{WIN}\nwork\t{LUNCH}\n", [], [WIN, LUNCH]),
        ("".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate((WIN, LUNCH))), [], [WIN, LUNCH]),
        (f"{WIN}\n{LUNCH}\n", [], [WIN, LUNCH]),
    ):
        pipe = task_home / "pipe"
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_text, args=(content,), daemon=True)
        writer.start()
        texts, said = texts_of("classify", task_home, "runs/classify", "--input", "pipe", *options)
        writer.join()
        assert texts == expected
        assert ("each line is read as a text" in said) == (content[0] == "w")


def test_names_of_files_are_literal(task_home: Path) -> None:
    for name in (
        "a*.csv",
        "[ab].csv",
        "{a}.csv",
        "a?.csv",
        "http:a.csv",
        "s3:a.jsonl",
        "a b'.csv",
        "s3:a.parquet",
        "file:a.arrow",
    ):
        write(task_home / name, [{"label": "ab"[n % 2], "text": f"text number {n}"} for n in range(9)])
        assert texts_of("classify", task_home, "runs/classify", "--input", name)[0][8] == "text number 8"
        done = here("data", "look", name, "--task=classify", "--tokenizer.kind=bytes", folder=task_home)
        assert "9 labelled texts" in done.stdout + done.stderr
