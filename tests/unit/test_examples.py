"""Tests of faulty example files, which are refused or whose faulty examples are left out, and of the split."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.base.config import DataConfig, Task
from glassformer.base.errors import GlassError
from glassformer.text.records import RECORD_KINDS
from glassformer.text.source import open_source
from glassformer.text.split import hold_out
from glassformer.text.survey import Survey
from tests.unit.example_files import (
    LABELLED,
    PAIRS,
    SPAM,
    Write,
    jsonl,
    lines,
    made,
    notes,
    texts,
    tsv,
    writer,
)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return writer(tmp_path)


# Errors of two lines


FILES: dict[str, str] = {
    "3.txt": "x\ny\nz\n",
    "1.txt": "x\n",
    "more.txt": "x\nand so on\n\n",
    "empty.txt": "",
    "same.txt": "x\nx\nx\n",
    "gaps.txt": "x\n\n \n",
    "folder/1.txt": "x\n",
    "pairs.tsv": tsv(PAIRS),
    "pairs.csv": "english,french\n" + lines(map(",".join, PAIRS)),
    "two.jsonl": jsonl([{"en": "x", "fr": "y"}]),
    "three.jsonl": jsonl([{"en": "x", "fr": "y", "de": "z"}]),
    "one.csv": "x y z\nx y z\n",
    "bad.jsonl": '{"a": 1}\nno\n',
    "spam.tsv": LABELLED,
    "only.tsv": tsv(("spam", text) for text, _ in SPAM),
    "ids.tsv": tsv((f"id{n}", text) for n, (text, _) in enumerate(SPAM)),
    "two.tsv": tsv((label, label[0], text) for text, label in SPAM),
    "mail.csv": "label,title,body\n" + lines(f"{label},one two three,{text}" for text, label in SPAM),
    "short.csv": "a,x,y\nb,x,y\na,x,y\nb,z,z\na,x,y\n",
    "news.tsv": LABELLED + "news\tof today\n",
    "same.tsv": "x\tone and two\nx\tone and two\ny\tthree and four\ny\tthree and four\n",
}
REFUSED: list[tuple[Task, str, str, str]] = [  # task, settings, words of the problem and of the remedy
    (
        "translate",
        "source=3.txt target=1.txt",
        "3.txt has 3 lines and 1.txt has 1",
        "1.txt ends before line 2 of 3.txt .next text: 'y'.",
    ),
    (
        "translate",
        "source=1.txt target=more.txt",
        "1 line and more.txt has 3",
        "ends before line 2 of more.txt .next text: 'and so",
    ),
    ("translate", "source=1.txt target=empty.txt", "empty.txt contains no text .0 bytes.", "some text"),
    ("translate", "source=1.txt target=4.txt", "4.txt does not exist", "Did you mean .*3.txt"),
    ("translate", "source=3.txt", "3.txt is plain text and has no targets", "data.target to the file"),
    ("classify", "source=3.txt", "3.txt is plain text and has no labels", "a label column"),
    ("translate", "source=pairs.tsv target=1.txt", "pairs.tsv is a table", "Leave data.target out"),
    ("translate", "source=folder target=1.txt", "folder is a folder", "plain text file"),
    ("translate", "source=folder", "the folder .*folder contains no table", "data.target"),
    ("classify", "source=folder", "the folder .*folder contains no table", "one subfolder per label"),
    (
        "translate",
        "source=3.txt target=3.txt column=1",
        "data.column cannot be combined with data.target",
        "Leave data.column out",
    ),
    (
        "translate",
        "source=pairs.tsv label_column=1",
        "label_column cannot be combined with train.task = translate",
        "Leave",
    ),
    (
        "classify",
        "source=spam.tsv target_column=1",
        "target_column cannot be combined with train.task = classify",
        "Leave",
    ),
    (
        "translate",
        "source=reverse column=1",
        "data.column cannot be combined with the generated corpus reverse",
        "Leave data.column out",
    ),
    (
        "translate",
        "source=reverse target_column=1",
        "data.target_column cannot be combined with the generated corpus reverse",
        "Leave data.target_column out",
    ),
    ("translate", "source=stories", "stories has no pairs", "reverse"),
    ("classify", "source=reverse", "reverse has no labels", "Choose a corpus with labels"),
    ("translate", "source=pairs.csv column=englisch", "no column 'englisch'; it has english, french", "mean english"),
    ("translate", "source=pairs.tsv column=3", "no column '3'", "column number: 1 to 2"),
    ("translate", "source=two.jsonl target_column=frr", "no column 'frr'; it has en, fr", "Did you mean fr"),
    ("translate", "source=pairs.tsv column=1 target_column=1", "are the same column", "to two of: 1, 2"),
    ("translate", "source=three.jsonl", "has the columns en, fr, de; the source and target", "data.target_column"),
    ("translate", "source=one.csv", "has only the column 1; the source", "one for the target"),
    ("translate", "source=gaps.txt target=gaps.txt split=end", "1 example is too few", "data.validation"),
    ("translate", "source=same.txt target=3.txt", "all 3 examples have the same source", "split = end"),
    ("classify", "source=only.tsv", "all 40 examples of .*only.tsv have the label 'spam'", "two labels"),
    ("classify", "source=ids.tsv label_column=1", "40 distinct labels in 40 examples", "values repeat"),
    ("classify", "source=ids.tsv", "none has a few short values that repeat", "data.label_column"),
    ("classify", "source=two.tsv", "has the columns 1, 2, 3; columns 1, 2 could be the label", "data.label_column"),
    ("classify", "source=spam.tsv column=2 label_column=2", "column '2' of spam.tsv is both", "different columns"),
    ("classify", "source=spam.tsv column=1,1", "names a column twice", "once"),
    ("classify", "source=mail.csv column=title,boby", "no column 'boby'", "Did you mean body"),
    ("classify", "source=mail.csv label_column=labell", "no column 'labell'", "Did you mean label"),
    ("classify", "source=short.csv label_column=1", "none except the label reads like text", "data.column"),
    ("classify", "source=spam.tsv split=end validation_fraction=0.7", "only one label: 'spam'", "split to random"),
    ("classify", "source=news.tsv split=end validation_fraction=0.01", "no validation example has a label", "random"),
    ("classify", "source=same.tsv label_column=1", "each label has only one distinct text", "Give more texts"),
    ("classify", "source=bad.jsonl", "line 2 of bad.jsonl is not JSON", "Correct that line"),
    ("classify", "source=spam.tsv validation=spam.tv", "spam.tv does not exist", "Did you mean .*spam.tsv"),
]


@pytest.mark.parametrize(("task", "given", "problem", "remedy"), REFUSED)
def test_bad_examples_are_refused_in_two_lines(
    task: Task, given: str, problem: str, remedy: str, tmp_path: Path
) -> None:
    write = writer(tmp_path)
    for name, content in FILES.items():
        write(name, content)
    data: dict[str, Any] = dict(part.split("=") for part in given.split())
    for key in ("source", "target", "validation"):
        if key in data and (key != "source" or "." in data[key] or data[key] == "folder"):
            data[key] = str(tmp_path / data[key])
    with pytest.raises(GlassError) as caught:
        made(tmp_path, task, **data)
    assert re.search(problem, caught.value.problem), caught.value.problem
    assert re.search(remedy, caught.value.remedy), caught.value.remedy
    assert not (tmp_path / "cache").exists()


def test_only_empty_pairs_are_refused_with_their_numbers(write: Write, tmp_path: Path) -> None:
    source = write("a", "x\n\n\n")
    target = write("b", "\ny\n\n")
    with pytest.raises(GlassError) as caught:
        made(tmp_path, "translate", source=source, target=target)
    assert caught.value.problem == (
        "a, b contains no example that can be used: left out 1 pair with an empty source, "
        "1 pair with an empty target, 1 pair with both sides empty"
    )


@pytest.mark.parametrize("setting", ["target", "target_column", "label_column"])
def test_running_text_refuses_settings_of_examples(setting: str, write: Write, tmp_path: Path) -> None:
    data = DataConfig(source=write("a.txt", "some text"), **{setting: "x"})
    with (
        pytest.raises(GlassError, match=rf"data\.{setting} was given"),
        open_source(RECORD_KINDS["lm"], data, tmp_path),
    ):
        pass


# Left-out records and notes are counted


def test_rows_that_cannot_be_used_are_counted(write: Write, tmp_path: Path) -> None:
    rows = [
        "a one\tb one",
        "\tb two",
        "a three\t",
        " \t \r",
        "a five",
        "a six\tb six\tand more",
        "",
        "a seven\tb seven",
    ]
    found = made(tmp_path, "translate", source=write("t.tsv", lines(rows)), split="end")
    assert texts(found) == [("a one", "b one"), ("a six", "b six"), ("a seven", "b seven")]
    for note in (
        "left out 1 pair with an empty source",
        "left out 1 pair with an empty target",
        "left out 1 pair with both sides empty",
        "left out 1 row with too few fields",
        "1 row with more fields than the table has columns (the extra fields are not read)",
    ):
        assert note in found.notes
    english = write("a", "a one\n\na three\n\n")
    french = write("b", "b one\nb two\nb three\n\n")
    found = made(tmp_path, "translate", source=english, target=french, split="end")
    assert texts(found) == [("a one", "b one"), ("a three", "b three")]
    assert "left out 1 pair with both sides empty" in found.notes
    rows = ["ham\tone text", "\ttwo text", "spam\t ", " ham \tfour text", "spam \tfive text", "spam\tsix text", "only"]
    found = made(tmp_path, "classify", source=write("l.tsv", lines(rows)), column="2", label_column="1")
    expected = [("five text", "spam"), ("four text", "ham"), ("one text", "ham"), ("six text", "spam")]
    assert sorted(texts(found)) == expected
    for note in (
        "left out 1 row without a label",
        "left out 1 row with an empty text",
        "left out 1 row with too few fields",
        "2 labels with spaces around them, which are removed",
    ):
        assert note in found.notes


def test_json_rows_without_text_are_counted(write: Write, tmp_path: Path) -> None:
    rows = [{"en": "a one", "fr": "b one"}, {"en": "a two"}, {"en": "a", "fr": [3]}, {"en": "a four", "fr": "b four"}]
    found = made(tmp_path, "translate", source=write("t.jsonl", jsonl(rows)), split="end")
    assert texts(found) == [("a one", "b one"), ("a four", "b four")]
    assert "left out 1 row without text in both columns" in found.notes
    assert "left out 1 row with a list or an object instead of a text" in found.notes


def test_words_of_the_source_are_limited(write: Write, tmp_path: Path) -> None:
    rows = [("one", "b"), *PAIRS[:5], ("one two three four five six", "c")]
    found = made(tmp_path, "translate", source=write("t.tsv", tsv(rows)), min_words=2, max_words=5, split="end")
    assert texts(found) == PAIRS[:5]
    assert "left out 1 example with fewer than 2 words" in found.notes
    assert "left out 1 example with more than 5 words" in found.notes


def test_duplicates_within_and_across_splits_are_counted(write: Write, tmp_path: Path) -> None:
    rows = [*PAIRS[:18], PAIRS[0], (PAIRS[1][0], "une autre")]
    source = write("t.tsv", tsv(rows))
    told = notes(made(tmp_path, "translate", source=source, split="end"))
    assert "1 pair is a duplicate" in told
    assert "1 source has several targets" in told
    assert "1 of 2 validation pairs also occurs in the training split; data.split = random prevents this" in told
    assert "1 validation source occurs in the training split, with other targets; data.split = random" in told
    told = notes(made(tmp_path, "translate", source=source, split="random"))
    assert "1 pair is a duplicate" in told
    assert "training split" not in told
    both = [(text, "ham") for text, _ in SPAM[:2]]
    labelled = write("l.tsv", tsv((label, text) for text, label in [*SPAM, *both, SPAM[3]]))
    told = notes(made(tmp_path, "classify", source=labelled))
    assert "1 example is a duplicate" in told
    assert "2 texts have several labels" in told


def test_labels_that_occur_once_are_learnt_and_named(write: Write, tmp_path: Path) -> None:
    twice = [("twice", "text number one"), ("twice", "text number two")]
    rows = [("rare", "a text of its own"), ("odd", "and one more text"), *twice, *((b, a) for a, b in SPAM)]
    found = made(tmp_path, "classify", source=write("t.tsv", tsv(rows)), validation_fraction=0.5)
    assert found.labels == ("ham", "odd", "rare", "spam", "twice")
    assert "2 labels occur only once: odd, rare" in found.notes
    assert {"odd", "rare"} <= {label for _, label in found.train.texts()}


# A separate validation split


def test_separate_validation_data_is_used(write: Write, tmp_path: Path) -> None:
    source = write("t.tsv", tsv(PAIRS[:30]))
    own = write("v.tsv", tsv([*PAIRS[30:], PAIRS[0], (PAIRS[1][0], "autre")]))
    found = made(tmp_path, "translate", source=source, validation=own)
    assert list(found.train.texts()) == PAIRS[:30]
    assert list(found.validation.texts())[:10] == PAIRS[30:]
    told = notes(found)
    assert "1 of 12 validation pairs also occurs in the training split\n" in told
    assert "1 validation source occurs in the training split, with other targets\n" in told
    assert "12 pairs) and" not in told
    assert "(12 pairs); training: all of" in told
    same = notes(made(tmp_path, "translate", source=source, validation=source))
    assert "30 of 30 validation pairs also occur in the training split" in same


def test_labels_that_occur_only_in_validation_are_reported(write: Write, tmp_path: Path) -> None:
    source = write("t.tsv", LABELLED)
    own = write("v.tsv", tsv([("spam", "win now"), ("Spam", "win more"), ("news", "read this"), ("news", "and that")]))
    found = made(tmp_path, "classify", source=source, validation=own, label_column="1", column="2")
    assert found.labels == ("ham", "spam")
    assert list(found.validation.texts()) == [("win now", "spam")]
    left_out = "left out 3 texts with labels that the training split does not have: news (2), Spam (1)"
    note = f"{left_out}; known labels: ham, spam"
    assert note in found.notes
    rows = [*((b, a) for a, b in SPAM), ("spam", "one more of them"), ("news", "of today")]
    found = made(tmp_path, "classify", source=write("s.tsv", tsv(rows)), split="end", validation_fraction=0.05)
    assert list(found.validation.texts()) == [("one more of them", "spam")]
    assert (
        "left out 1 text with labels that the training split does not have: news (1); known labels: ham, spam"
        in found.notes
    )


# The split


def survey_of(examples: Sequence[tuple[int, object]], characters: int = 10) -> Survey:
    """Return a survey of (source, label) numbers."""
    found = Survey(RECORD_KINDS["classify"], records=len(examples))
    for source, label in examples:
        found.marks.append((source * 0x9E3779B97F4A7C15) % (1 << 64))
        found.lengths.append(characters)
        found.add_labels([str(label)])
    return found


@settings(max_examples=150)
@given(
    examples=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), min_size=2, max_size=80),
    fraction=st.floats(0.01, 0.99),
    limit=st.integers(1, 1000),
    split=st.sampled_from(["end", "random"]),
    labelled=st.booleans(),
)
def test_every_split_keeps_its_promises(
    examples: list[tuple[int, int]], fraction: float, limit: int, split: Any, labelled: bool
) -> None:
    found = survey_of(examples)
    if not labelled:
        found.label_numbers = type(found.label_numbers)("i")
        found.label_names = {}
    data = DataConfig(split=split, validation_fraction=fraction, validation_limit=limit)
    try:
        held = hold_out(found, data)
    except GlassError:
        assert split == "random"
        assert len({source for source, _ in examples}) < 2 or labelled
        return
    assert 0 < held.sum() < len(examples)
    drawn = {source for (source, _), side in zip(examples, held, strict=True) if side}
    assert (
        held.sum() <= limit // 10 or held.sum() == 1 or (split == "random" and len(drawn) == 1)
    )  # sources are not split
    if split == "end":
        assert held.tolist() == sorted(held.tolist())
        return
    sides = [{s for (s, _), side in zip(examples, held, strict=True) if side == which} for which in (True, False)]
    assert not sides[0] & sides[1]
    if labelled:
        learnt = {label for (_, label), side in zip(examples, held, strict=True) if not side}
        assert learnt == {label for _, label in examples}


def test_a_label_whose_texts_were_all_held_out_is_restored() -> None:
    examples = [(3, "c"), (2, "a"), (1, "d"), (2, "b"), (5, "a"), (2, "b")]  # text 2 has two labels
    found = survey_of([(0, label) for _, label in examples])
    found.marks = array("Q", [source for source, _ in examples])
    held = hold_out(found, DataConfig(split="random", validation_fraction=0.7))
    assert held.any()
    assert {label for (_, label), side in zip(examples, held, strict=True) if not side} == set("abcd")


def test_at_least_one_example_is_kept_for_training() -> None:
    held = hold_out(survey_of([(n, 0) for n in range(5)]), DataConfig(split="random", validation_fraction=0.99))
    assert held.sum() == 4


def test_the_held_out_fraction_holds_for_each_label_and_in_total() -> None:
    examples = [(n, n % 10 == 0) for n in range(1000)]
    held = hold_out(survey_of(examples), DataConfig(split="random", validation_fraction=0.25))
    assert held.sum() == 250
    assert sum(side for side, (_, label) in zip(held, examples, strict=True) if label) == 25
    many = survey_of([(n, n // 4) for n in range(400)])  # a tenth of four texts is 0, so labels take turns
    assert hold_out(many, DataConfig(split="random")).sum() == 40
    groups = survey_of([(n // 3, 0) for n in range(300)])
    assert hold_out(groups, DataConfig(split="random", validation_fraction=0.1)).sum() == 30
    limited = hold_out(survey_of([(n, 0) for n in range(100)]), DataConfig(split="random", validation_limit=55))
    assert limited.sum() == 5
    assert hold_out(survey_of([(n, 0) for n in range(100)]), DataConfig(validation_limit=55)).sum() == 5


def test_another_seed_holds_out_another_part(write: Write, tmp_path: Path) -> None:
    source = write("t.tsv", tsv(PAIRS))
    first, second = (set(made(tmp_path, "translate", source=source, seed=n).validation.texts()) for n in (0, 1))
    assert first != second
    again = made(tmp_path / "elsewhere", "translate", source=source, seed=0)
    assert set(again.validation.texts()) == first
