"""Unusual training examples are reported with their number; examples that cannot be used are refused in two lines."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.journey.commands import here
from tests.journey.task_files import write_all
from tests.journey.task_runs import TINY, refused, train

LONG = "the old dog sleeps . " * 12 + "the end"
PAIR = ["train.en", "train.de", "--task=translate"]
MAILS = ["mails.csv", "--task=classify"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_all(tmp_path)
    return tmp_path


def append(path: Path, text: str) -> None:
    """Append text to a file."""
    path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8", newline="")


def said(*arguments: str, folder: Path) -> str:
    """Train for two steps, and return the messages."""
    done = here("train", *arguments, *TINY, "--steps=2", "--out=run", folder=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "run" / "tokenizer.json").exists()
    return done.stderr


def test_empty_lines_are_left_out_and_counted(folder: Path) -> None:
    append(folder / "train.en", "the end .\n\n\n")
    append(folder / "train.de", "\ndas Ende .\n \n")
    notes = said(*PAIR, folder=folder)
    for left_out in ("1 pair with an empty target", "1 pair with an empty source", "1 pair with both sides empty"):
        assert f"left out {left_out}" in notes
    assert "280 pairs, " in notes


def test_mails_without_text_or_label_are_left_out_and_counted(folder: Path) -> None:
    append(folder / "mails.csv", "spam,\n,who wrote this\nwork\n")
    notes = said(*MAILS, folder=folder)
    for left_out in ("1 row with an empty text", "1 row without a label", "1 row with too few fields"):
        assert f"left out {left_out}" in notes
    assert "144 labelled texts" in notes


def test_nothing_but_empty_lines_is_refused(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).write_text("\n\n\n", encoding="utf-8", newline="")
    cause, remedy = refused("train", "a", "b", "--task=translate", *TINY, "--out=run", folder=folder)
    assert "left out 3 pairs with both sides empty" in cause
    assert "Give a text, and its target" in remedy
    assert not (folder / "run").exists()


def test_labels_that_look_like_numbers_are_text(folder: Path) -> None:
    text = (folder / "mails.csv").read_text(encoding="utf-8")
    for number, name in enumerate(("spam", "work", "family"), start=1):
        text = text.replace(f"{name},", f"{number},")
    (folder / "mails.csv").write_text(text.replace("3,", "3.0,"), encoding="utf-8", newline="")
    assert "the labels look like numbers, but are used as names" in said(*MAILS, folder=folder)
    shown = here("classify", "run", "win a 7 pound prize now", folder=folder).stdout
    assert sorted(line.split()[-1] for line in shown.splitlines()) == ["1", "2", "3.0"]


def test_a_rare_label_and_a_sorted_file_are_reported(folder: Path) -> None:
    append(folder / "mails.csv", "odd,one of its kind\n")
    assert "1 label occurs only once: odd" in said(*MAILS, folder=folder)
    lines = (folder / "mails.csv").read_text(encoding="utf-8").splitlines()
    (folder / "sorted.csv").write_text("\n".join([lines[0], *sorted(lines[1:])]), encoding="utf-8")
    notes = here("data", "look", "sorted.csv", "--task=classify", "--data.split=end", folder=folder).stdout
    assert "data.split = random puts texts of each label in both splits" not in notes  # work is in both
    (folder / "two.csv").write_text("\n".join(["label,text", *sorted(lines[1:])][:97]), encoding="utf-8")
    notes = here(
        "data",
        "look",
        "two.csv",
        "--task=classify",
        "--data.split=end",
        "--set",
        "data.validation_fraction=0.6",
        folder=folder,
    )
    assert notes.returncode == 2
    assert "the training split of two.csv has only one label: 'family'" in notes.stderr
    assert "Set data.split to random: the file may be sorted by label." in notes.stderr


def test_unknown_labels_are_reported(folder: Path) -> None:
    done = here(*train("classify", "--steps=2", out="run"), folder=folder)
    assert done.returncode == 0, done.stderr
    append(folder / "test.csv", "Spam,win a prize\nSpam,win another prize\nnews,the day in short\n")
    done = here("evaluate", "run", "test.csv", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "left out 3 texts with labels that the training split does not have: Spam (2), news (1)" in done.stderr
    assert "; the known label nearest to Spam is spam" in done.stderr
    assert "36 texts, " in done.stdout
    (folder / "test.csv").write_text("label,text\nhum,who is it\nhum,what is it\nhim,is it\n", encoding="utf-8")
    cause, remedy = refused("evaluate", "run", "test.csv", "--data.label_column=label", folder=folder)
    assert "no label of test.csv is in the training data; its most frequent label is 'hum'" in cause
    assert "family, spam, work" in remedy
    cause, remedy = refused("evaluate", "run", "test.csv", "--data.label_column=lable", folder=folder)
    assert "test.csv has no column 'lable'; it has label, text" in cause
    assert "label" in remedy


def test_evaluation_files_that_do_not_fit_are_refused(folder: Path) -> None:
    assert here(*train("translate", "--steps=2", out="run"), folder=folder).returncode == 0
    cause, remedy = refused("evaluate", "run", "test.en", "test.den", folder=folder)
    assert "test.den does not exist" in cause
    assert remedy.startswith("Did you mean test.")
    append(folder / "test.de", "noch eine .\n")
    cause, remedy = refused("evaluate", "run", "test.en", "test.de", folder=folder)
    assert "test.en has 30 lines and test.de has 31, so they are not parallel" in cause
    assert "'noch eine .'" in remedy
    cause, _ = refused("evaluate", "run", "test.en", folder=folder)
    assert "test.en is plain text and has no targets" in cause
    append(folder / "val.en", LONG + "\n")
    append(folder / "val.de", "das Ende .\n")
    done = here("evaluate", "run", "val.en", "val.de", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "1 of 31 examples is longer than model.context = 40 (the longest has 63 tokens): cut" in done.stderr


@pytest.mark.parametrize(("what", "task"), [(PAIR, "translate"), (MAILS, "classify")])
def test_texts_longer_than_the_context_are_reported(what: list[str], task: str, folder: Path) -> None:
    if task == "classify":
        append(folder / "mails.csv", f"work,{LONG}\n" * 3)
    else:
        append(folder / "train.en", f"{LONG}\n" * 3)
        append(folder / "train.de", "das Ende .\n" * 3)
    own = [*what, "--data.split=end", "--data.validation_fraction=0.01"]  # 3 of 283, 1 of 147: all long
    side, count = ("validation", "3 of 3") if task == "translate" else ("training", "2 of 146")
    problem = f"{side}: {count} examples are longer than model.context = 40"
    assert f"{problem} (the longest has 63 tokens): cut" in said(*own, folder=folder)
    shutil.rmtree(folder / "run")
    cause, remedy = refused("train", *own, *TINY, "--data.too_long=refuse", "--out=run", folder=folder)
    assert cause == problem
    assert remedy == "Set data.too_long = cut, or train a model with model.context = 63."
    assert not (folder / "run").exists()
    again = here(
        "train", *own, *TINY, "--model.context=63", "--data.too_long=refuse", "--steps=2", "--out=run", folder=folder
    )
    assert again.returncode == 0, again.stderr


def test_pairs_in_both_splits_are_reported(folder: Path) -> None:
    for language in ("en", "de"):
        lines = (folder / f"train.{language}").read_text(encoding="utf-8").splitlines()
        append(folder / f"train.{language}", "".join(line + "\n" for line in lines[:20]))
        append(folder / f"val.{language}", "".join(line + "\n" for line in lines[:4]))
    notes = said(*PAIR, "--data.split=end", folder=folder)
    assert "20 pairs are duplicates" in notes
    assert "20 of 30 validation pairs also occur in the training split; data.split = random prevents this" in notes
    shutil.rmtree(folder / "run")
    assert "also occur in the training split" not in said(*PAIR, folder=folder)  # a random split, of its own accord
    shutil.rmtree(folder / "run")
    notes = said(*PAIR, "--data.validation=val.en", "--data.validation_target=val.de", folder=folder)
    assert "4 of 34 validation pairs also occur in the training split" in notes


def test_early_problems_of_training_are_reported(folder: Path) -> None:
    """Sources do not match their targets, and the vocabulary lacks many words."""
    lines = (folder / "train.de").read_text(encoding="utf-8").splitlines()
    (folder / "train.de").write_text("\n".join(lines[7:] + lines[:7]) + "\n", encoding="utf-8")
    notes = said(*PAIR, "--tokenizer.min_count=60", "--train.evaluate_every=1", folder=folder)
    assert "the decoder ignores its source so far: with other sources the loss is " in notes
    assert "of the tokens are unknown: increase tokenizer.vocab_size" in notes
