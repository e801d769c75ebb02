"""Errors in pairs and labelled texts end a command with two lines and exit code 2; no incomplete files are left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.journey.commands import here

TINY = [
    "--model.layers=1",
    "--model.width=8",
    "--model.heads=2",
    "--model.context=32",
    "--steps=2",
    "--train.batch=4",
    "--tokenizer.kind=bytes",
    "--out=run",
]
PAIRS = "".join(f"the {n} cats sleep\tles {n} chats dorment\n" for n in range(30))
MAILS = "".join(f"{('ham', 'spam')[n % 3 == 0]}\tmessage number {n} of many\n" for n in range(30))
FILES = {
    "pairs.tsv": PAIRS,
    "mails.tsv": MAILS,
    "a.en": "one\ntwo\nthree\n",
    "a.fr": "un\ndeux\n",
    "only.tsv": MAILS.replace("ham", "spam"),
    "ids.tsv": "".join(f"id{n}\tmessage number {n} of many\n" for n in range(30)),
}
FAULTS = [  # arguments after glass train, words of the first and of the second line
    (
        "a.en a.fr --task translate",
        "a.en has 3 lines and a.fr has 2",
        "a.fr ends before line 3 of a.en (next text: 'three')",
    ),
    ("a.en --task translate", "a.en is plain text and has no targets", "data.target"),
    ("a.en a.fr", "data.target was given", "set train.task to translate or summarize"),
    ("only.tsv --task classify", "have the label 'spam'", "at least two labels"),
    ("ids.tsv --task classify --data.label_column 1", "30 distinct labels in 30 examples", "values repeat"),
    ("mails.tsv --task classify --data.label_column lable", "has no column 'lable'", "column number: 1 to 2"),
    ("pairs.tsv --task summarize --data.column 1 --data.target_column 1", "are the same column", "to two of"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    return tmp_path


@pytest.mark.parametrize(("arguments", "cause", "remedy"), FAULTS)
def test_training_refuses_in_two_lines(arguments: str, cause: str, remedy: str, folder: Path) -> None:
    found = here("train", *arguments.split(), *TINY, folder=folder)
    assert found.returncode == 2
    lines = found.stderr.strip().splitlines()[-2:]  # before them, how far the work was
    assert "Traceback" not in found.stderr
    assert cause in lines[0]
    assert remedy in lines[1]
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)


def test_data_look_describes_pairs_and_labels(folder: Path) -> None:
    shown = here("data", "look", "pairs.tsv", "--task", "translate", "--tokenizer.kind=bytes", folder=folder)
    assert shown.returncode == 0, shown.stderr
    assert "pairs.tsv: source: column 1, target: column 2" in shown.stdout
    assert "validation: 3 of 30 pairs (10.0%), drawn at random" in shown.stdout
    shown = here("data", "look", "mails.tsv", "--task", "classify", "--tokenizer.kind=bytes", "--json", folder=folder)
    facts = json.loads(shown.stdout)
    assert facts["labels"] == ["ham", "spam"]
    assert (facts["training_examples"], facts["validation_examples"]) == (27, 3)
    assert "2 labels: ham (20), spam (10)" in facts["notes"]
    two = here("data", "look", "a.en", "a.en", "--task", "translate", "--tokenizer.kind=bytes", folder=folder)
    assert two.returncode == 0, two.stderr
    refused = here("data", "show", "stories", "--task", "lm", folder=folder)
    assert refused.returncode == 2
    assert "takes no TARGET and no --task" in refused.stderr
