"""Unusual text files through the command line: each peculiarity is reported or refused."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import pytest

from tests.journey.commands import here
from tests.journey.task_runs import TINY, refused

BOOK = "".join(f"the old dog {n % 9} sleeps under tree {n % 7} and dreams of bone {n}\n" for n in range(80))
FEW_STEPS = [*TINY, "--train.learning_rate=0.001", "--steps=2"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a text, and a run whose small vocabulary lacks many words of that text."""
    folder = tmp_path_factory.mktemp("messy")
    (folder / "book.txt").write_text(BOOK, encoding="utf-8")
    made = here("train", "book.txt", *FEW_STEPS, "--tokenizer.vocab_size=12", "--out", "run", folder=folder)
    assert made.returncode == 0, made.stderr
    (folder / "train.out").write_text(made.stdout, encoding="utf-8")
    return folder


def test_unknown_tokens_are_reported_instead_of_bits_per_byte(home: Path) -> None:
    said = (home / "train.out").read_text(encoding="utf-8")
    assert "of the tokens are unknown: no bits per byte" in said
    facts = json.loads(here("evaluate", "run", "--json", folder=home).stdout)
    assert facts["bits_per_byte"] is None
    assert facts["unknown_share"] > 0.2
    assert {rung["name"]: rung["bits_per_byte"] for rung in facts["baselines"]} == {
        "uniform": None,
        "unigram": None,
        "5-gram": None,
    }
    table = here("evaluate", "run", folder=home).stdout
    assert f"{facts['unknown_share']:.3%} of the tokens are unknown: no bits per byte" in table
    assert "gzip" not in table
    plan = json.loads(
        here("plan", "book.txt", *FEW_STEPS, "--tokenizer.vocab_size=12", "--probe=0", "--json", folder=home).stdout
    )
    assert "gzip" not in [rung["name"] for rung in plan["baselines"]]


def test_the_training_text_is_recognized_and_omitted_documents_are_reported(home: Path) -> None:
    again = here("evaluate", "run", "book.txt", folder=home)
    assert "book.txt is the training data of run: evaluating on its validation split" in again.stderr
    rows = [{"text": "the old dog sleeps"}] * 50 + [{"text": ""}] * 5
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = here("evaluate", "run", "rows.jsonl", "--data.column=text", "--json", folder=home)
    assert "left out 5 empty documents" in done.stderr
    facts = json.loads(done.stdout)
    assert facts["left_out"] == {"empty documents": 5}
    assert facts["training_overlap"]["training_text"] is False


def test_a_short_last_file_is_not_the_whole_validation_part(home: Path) -> None:
    texts = home / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text(BOOK, encoding="utf-8")
    (texts / "b.txt").write_text("a last file of a few words", encoding="utf-8")
    done = here("train", "texts", *FEW_STEPS, "--out", "two", folder=home)
    assert done.returncode == 0, done.stderr
    assert "validation: the end of the text, with one document cut in two (2 documents, 4" in done.stderr
    assert "10.0%)" in done.stderr


def test_a_bad_byte_is_located_and_a_disguised_encoding_is_refused(home: Path) -> None:
    (home / "bad.txt").write_bytes(BOOK.encode()[:1000] + b"\xe9" + BOOK.encode()[1000:])
    done = here("data", "look", "bad.txt", folder=home)
    assert "bad.txt is read as Windows-1252, because byte 0xE9 at offset 1000 is not UTF-8" in done.stdout + done.stderr
    problem, remedy = refused("data", "look", "bad.txt", "--data.encoding=utf-8", folder=home)
    assert "byte 0xE9 at offset 1000" in problem
    (home / "mail.txt").write_bytes(("吾輩は猫である。名前はまだ無い。\n" * 30).encode("iso-2022-jp"))
    problem, remedy = refused("train", "mail.txt", *FEW_STEPS, "--out", "mail", folder=home)
    assert problem == "mail.txt looks like ISO-2022-JP: read as UTF-8, its text would be garbled"
    assert "data.encoding to utf-8" in remedy
    assert not (home / "mail").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no links or named pipes")
def test_links_and_pipes_in_a_folder_are_reported(home: Path) -> None:
    folder = home / "odd"
    folder.mkdir()
    (folder / "a.txt").write_text(BOOK, encoding="utf-8")
    (folder / "gone.txt").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe")
    done = here("data", "look", "odd", folder=home)
    assert (
        "left out 2 entries of odd that cannot be read as files: gone.txt (a broken link), pipe (a pipe or a device)"
        in (done.stdout + done.stderr)
    )


@pytest.mark.parametrize("form", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "gzip"])
def test_lines_of_an_input_are_counted_as_wc_counts_them(form: str, home: Path) -> None:
    text = "the old\rdog\r\nthe café\n\nand bone"
    data = gzip.compress(text.encode()) if form == "gzip" else text.encode(form)
    (home / "prompts").write_bytes(data)
    done = here("generate", "run", "--input", "prompts", "--tokens=2", "--json", folder=home)
    assert done.returncode == 0, done.stderr
    prompts = [sample["prompt"] for sample in json.loads(done.stdout)["samples"]]
    assert prompts == ["the old\rdog", "the café", "", "and bone"]
    lines = here("generate", "run", "--input", "prompts", "--tokens=2", folder=home).stdout
    assert lines.count("\n") == 4
    assert ("read as Windows-1252" in done.stderr) == (form == "cp1252")


def test_a_one_line_input_is_answered_like_a_longer_one(task_home: Path) -> None:
    for name, text in {"one.txt": "win a 7 pound prize now\n", "two.txt": "win a 7 pound prize now\nlunch\n"}.items():
        (task_home / name).write_text(text, encoding="utf-8")
    one = here("classify", "runs/classify", "--input", "one.txt", folder=task_home).stdout
    two = here("classify", "runs/classify", "--input", "two.txt", folder=task_home).stdout
    assert one.splitlines() == two.splitlines()[:1]


def test_unknown_white_space_is_shown_by_its_number(home: Path) -> None:
    made = here("train", "book.txt", *FEW_STEPS, "--tokenizer.kind=characters", "--out", "characters", folder=home)
    assert made.returncode == 0, made.stderr
    done = here("generate", "characters", "the\u00a0old\u2028dog\té", "--tokens=2", folder=home)
    assert done.stderr.splitlines()[0].endswith("reads each as unknown: U+0009 U+00A0 é U+2028")
