"""Messy tables through the command line: each is read as intended, with a note, or is refused in two lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.journey.commands import here

TINY = ["--tokenizer.kind=bytes"]
ROWS = [("spam" if n % 3 == 0 else "ham", f"message number {n} of many") for n in range(60)]
PLAIN = "".join(f"{label},{text}\n" for label, text in ROWS)
TABS = PLAIN.replace(",", "\t")
JSON = "".join(json.dumps({"label": label, "text": text}) + "\n" for label, text in ROWS)
LM = ["--task=lm", "--data.column=2"]
CLASSIFY = ["--task=classify"]
PAIRS = ["--task=translate"]
REFUSED = {
    # what is wrong: (file, content, arguments, words of the problem, words of the remedy)
    "a quote never closed": (
        "t.csv",
        PLAIN + 'ham,"so what\n' + PLAIN,
        LM,
        "line 61 of t.csv: a quote is never closed",
        "data.quoting",
    ),
    "two stray quotes": (
        "t.csv",
        PLAIN + 'ham,"so what\n' + PLAIN + 'ham,a 17"\n',
        CLASSIFY,
        "lines 61 to 122 of t.csv",
        "data.quoting",
    ),
    "a stray quote inside": (
        "t.csv",
        PLAIN + 'ham,"so" what\n',
        PAIRS,
        "line 61 of t.csv: text follows",
        "data.quoting",
    ),
    "an unquoted comma": (
        "t.csv",
        "label,text\n" + PLAIN + "ham,so, what\n",
        LM,
        "line 62 of t.csv",
        "data.extra_fields",
    ),
    "an unquoted comma in pairs": ("t.csv", PLAIN + "ham,so, what\n", PAIRS, "line 61 of t.csv", "data.extra_fields"),
    "no name for the first column": (
        "t.tsv",
        "label\ttext\n" + TABS.replace("\tmess", "\tx\tmess"),
        CLASSIFY,
        "have more fields than its 2 columns",
        "name",
    ),
    "a header alone": ("t.csv", "label,text\n", CLASSIFY, "no rows below the names label, text", "data.header = no"),
    "carriage returns alone": ("t.csv", PLAIN.replace("\n", "\r"), CLASSIFY, "carriage returns alone", "tr '\\r'"),
    "an array of JSON": (
        "t.json",
        json.dumps([{"text": "a b c"}] * 9),
        ["--task=lm"],
        "t.json contains JSON",
        ".jsonl",
    ),
    "a setting for tables": (
        "t.txt",
        "a text\n" * 9,
        ["--data.header=no"],
        "data.header = no was given",
        "Leave data.header out",
    ),
}
READ = {
    # what is odd: (file, content, arguments, the first row, words of a note)
    "a header in Bangla": ("t.csv", "লেবেল,পাঠ্য\n" + PLAIN, CLASSIFY, ROWS[0], "row 1 contains the names লেবেল, পাঠ্য"),
    "a header of running text": (
        "t.csv",
        "text\nGo\nRun\nHi\n",
        ["--task=lm"],
        ("Go",),
        "row 1 contains the names text",
    ),
    "no header of running text": (
        "t.csv",
        "good morning\nhow are you today my friend\nand so on\n",
        ["--task=lm"],
        ("good morning",),
        "row 1 (good morning) is read as data; data.header = yes",
    ),
    "names that stand twice": (
        "t.csv",
        "label,text,text\n" + PLAIN.replace(",", ",a title of it,"),
        CLASSIFY,
        ("spam", "a title of it\nmessage number 0 of many"),
        "the second is called text.2",
    ),
    "tabs and quotes of pandas": (
        "t.tsv",
        'label\ttext\nham\t"two\nlines, ""so"""\n' + TABS,
        CLASSIFY,
        ("ham", 'two\nlines, "so"'),
        "the quotes around cells are removed",
    ),
    "quotes of people": (
        "t.tsv",
        '"Go!" he said\tspoken\n' + TABS,
        PAIRS,
        ('"Go!" he said', "spoken"),
        "begins with a quote, which is not removed",
    ),
    "a first line of Excel": (
        "t.csv",
        "sep=;\nlabel;text\n" + PLAIN.replace(",", ";"),
        CLASSIFY,
        ROWS[0],
        "the delimiter is a semicolon",
    ),
    "spaces around the delimiter": (
        "t.csv",
        '"label" , "text"\n' + "".join(f'"{a}" , "{b}"\n' for a, b in ROWS),
        CLASSIFY,
        ROWS[0],
        "row 1 contains the names label, text",
    ),
    "pipes": ("t.csv", PLAIN.replace(",", "|"), CLASSIFY, ROWS[0], "the delimiter is a pipe"),
    "comments": ("t.csv", "# by hand\nlabel,text\n" + PLAIN, CLASSIFY, ROWS[0], "line 1 begins with # and is left out"),
    "a column that is filled late": (
        "t.jsonl",
        '{"id": 1}\n' * 2500 + JSON,
        ["--task=lm", "--data.column=text"],
        ROWS[0][1:],
        "rows without text in that column: for example line 1 of t.jsonl",
    ),
    "no number as a label": (
        "t.jsonl",
        '{"label": NaN, "text": "a b c"}\n' + JSON,
        CLASSIFY,
        ROWS[0],
        "rows without a label: for example line 1",
    ),
    "an unquoted comma, joined": (
        "t.csv",
        "label,text\nham,so, what\n" + PLAIN,
        [*CLASSIFY, "--data.extra_fields=join"],
        ("ham", "so, what"),
        "1 row with more fields than the table has columns (the extra fields are joined to the last column)",
    ),
    "a stray quote, kept": (
        "t.csv",
        'label,text\nham,"so what\n' + PLAIN,
        [*CLASSIFY, "--data.quoting=line"],
        ("ham", '"so what'),
        "61 labelled texts",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_suspicious_tables_are_refused_in_two_lines(name: str, tmp_path: Path) -> None:
    file, content, arguments, problem, remedy = REFUSED[name]
    (tmp_path / file).write_text(content, encoding="utf-8", newline="")
    for command in (["data", "look", file], ["train", file, "--steps=1", "--out=run"]):
        done = here(*command, *arguments, *TINY, folder=tmp_path)
        assert done.returncode == 2
        assert done.stdout == ""
        *progress, cause, advice = done.stderr.splitlines()
        assert progress in ([], ["counting documents"], ["counting examples"])
        assert problem in cause
        assert remedy in advice
    assert [path.name for path in tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("name", READ)
def test_the_first_rows_are_shown_as_they_are_read(name: str, tmp_path: Path) -> None:
    file, content, arguments, first, note = READ[name]
    (tmp_path / file).write_text(content, encoding="utf-8", newline="")
    done = here("data", "look", file, *arguments, *TINY, "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    keys = (
        ("text",) if len(first) == 1 else ("source", "target") if "--task=translate" in arguments else ("label", "text")
    )
    assert facts["first"][0] == dict(zip(keys, first, strict=True))
    assert len(facts["first"]) in (3, 5)
    shown = here("data", "look", file, *arguments, *TINY, folder=tmp_path)
    line = (" => " if "source" in keys else ": ").join(text.replace("\n", "\\n") for text in first)
    assert f"the first rows as they are read:\n  {line}\n" in shown.stdout
    assert note in shown.stdout


def test_the_number_of_cases_is_fixed() -> None:
    assert len(REFUSED) + len(READ) == 24


def test_data_look_reports_how_a_table_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id;label;text\n" + "".join(f"1;{a};{b}\n" for a, b in ROWS), encoding="utf-8")
    done = here("data", "look", "t.csv", *CLASSIFY, *TINY, "--json", folder=tmp_path)
    assert json.loads(done.stdout)["tables"] == [
        {
            "file": "t.csv",
            "columns": ["label", "text"],
            "header": True,
            "delimiter": ";",
            "quoting": "standard",
            "extra_fields": "refuse",
        }
    ]


def test_data_look_shows_the_beginning_of_a_long_text(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("It was a day\n\tand a night. " * 200, encoding="utf-8")
    done = here("data", "look", "book.txt", *TINY, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = ("It was a day\\n\\tand a night. " * 200)[:500]
    last = done.stdout.splitlines()[-1]
    assert last.startswith("  It was a day\\n\\tand a night. It was")
    assert last.removeprefix("  ").removesuffix(" ...") in shown
    done = here("data", "look", "book.txt", "--data.document=line", *TINY, "--json", folder=tmp_path)
    assert json.loads(done.stdout)["first"][:2] == [{"text": "It was a day"}, {"text": "\tand a night. It was a day"}]


def test_a_run_is_evaluated_on_tables_read_in_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("label,text\n" + PLAIN, encoding="utf-8")
    small = ["--model.layers=1", "--model.width=8", "--model.heads=2", "--model.context=32", "--train.batch=4"]
    done = here("train", "t.csv", *CLASSIFY, *TINY, *small, "--steps=2", "--out=run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "(row 1 contains the names label, text)" in done.stderr
    (tmp_path / "u.csv").write_text("label,text\nham,so, what\n" + PLAIN, encoding="utf-8")
    done = here("evaluate", "run", "u.csv", folder=tmp_path)
    assert done.returncode == 2
    assert "line 2 of u.csv has 3 fields" in done.stderr
    done = here("evaluate", "run", "u.csv", "--data.extra_fields=join", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        "1 row with more fields than the table has columns (the extra fields are joined to the last column)"
        in done.stderr
    )
    assert "61 texts" in done.stdout
