"""Runs that were moved, with or without their text: they resume and are evaluated as before if their text is found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from glassformer.model.weights import load_tensors
from glassformer.runs.folder import Run
from tests.journey.commands import here
from tests.journey.damage import RUN, train
from tests.property.trainers import change_manifest, record_files, same
from tests.trained import copy_runs

MORE = ["--steps", "6", "--json"]


@pytest.fixture
def old(world: Path, tmp_path: Path) -> Path:
    """Return the folder from which the run is moved: it contains a text, its encoded form, and a run."""
    folder = tmp_path / "old"
    copy_runs(world, folder)
    return folder


def moved(old: Path) -> Path:
    """Move the whole folder, and return the new one."""
    return old.rename(old.with_name("new"))


def resumed(folder: Path, *data: str, run: Path = RUN) -> tuple[dict[str, Any], str]:
    """Resume a run in a folder, and return its report and its messages."""
    done = here("train", "--resume", "--out", run, *MORE, *data, folder=folder)
    assert done.returncode == 0, done.stderr
    return without_times(json.loads(done.stdout)), done.stderr


def measured(folder: Path, *data: str) -> tuple[dict[str, Any], str]:
    """Evaluate a run in a folder, and return its report and its messages."""
    done = here("evaluate", RUN, *data, "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def without_times(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in ("train_seconds", "peak_memory_bytes")}


def refused(*words: str | Path, folder: Path) -> str:
    """Run a command that must exit with code 2, and return its messages."""
    done = here(*words, folder=folder)
    assert done.returncode == 2, done.stderr
    return done.stderr


def copy_of(old: Path, name: str) -> Path:
    """Return a copy of the folder that is not moved, for comparison."""
    folder = old.with_name(name)
    copy_runs(old, folder)
    return folder


def last_weights(folder: Path) -> dict[str, Any]:
    return load_tensors(Run(folder / RUN).checkpoint("last") / "model.safetensors")


def test_a_run_moved_with_its_encoded_text_resumes_without_the_text(old: Path) -> None:
    stayed = copy_of(old, "stayed")
    new = moved(old)
    (new / "proverbs.txt").unlink()
    report, notes = measured(new)
    assert report == measured(stayed)[0]
    assert f"is gone: using {new / 'runs' / '.tokens'}" in notes
    assert "reading" not in notes
    report, notes = resumed(new)
    assert report == resumed(stayed)[0]
    assert f"is gone: using {new / 'runs' / '.tokens'}" in notes
    assert same(last_weights(new), last_weights(stayed))
    facts = here("verify", RUN, "--only", "padding-blind", "--json", folder=new)
    assert "the run's validation text" in facts.stdout


@pytest.mark.parametrize("absolute", [False, True])
def test_a_run_moved_with_its_text_reads_it_at_the_new_location(old: Path, absolute: bool) -> None:
    if absolute:
        settings = old / RUN / "config.toml"
        text = settings.read_text(encoding="utf-8")
        assert 'source = "proverbs.txt"' in text
        path = json.dumps(str(old / "proverbs.txt"))
        settings.write_text(text.replace('source = "proverbs.txt"', f"source = {path}"), encoding="utf-8")
        record_files(old / RUN)
    before, _ = measured(old)
    new = moved(old)
    shutil.rmtree(new / "runs" / ".tokens")
    elsewhere = new.with_name("elsewhere")
    elsewhere.mkdir()
    done = here("evaluate", new / RUN, "--json", folder=elsewhere)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == before
    assert f"reading {new / 'proverbs.txt'} again" in done.stderr
    shutil.rmtree(new / "runs" / ".tokens")
    _, notes = resumed(elsewhere, run=new / RUN)
    assert f"reading {new / 'proverbs.txt'} again" in notes


def test_a_run_moved_without_its_text_accepts_only_that_text(old: Path) -> None:
    stayed = copy_of(old, "stayed")
    new = moved(old)
    shutil.rmtree(new / "runs" / ".tokens")
    text = new.with_name("here.txt")
    (new / "proverbs.txt").rename(text)
    for command in (["evaluate", RUN], ["train", "--resume", "--out", RUN]):
        assert "glass train --resume --out runs/book DATA" in refused(*command, folder=new)
    other = new.with_name("other.txt")
    other.write_text("something else " * 99, encoding="utf-8")
    before = (new / RUN / "config.toml").read_bytes()
    told = refused("train", "--resume", "--out", RUN, *MORE, other, folder=new)
    assert f"{other} is not the text of runs/book: its hash differs" in told
    assert (new / RUN / "config.toml").read_bytes() == before
    assert not (new / "runs" / ".tokens").exists()  # nothing was encoded
    report, notes = measured(new, str(text))
    assert report == measured(stayed)[0]
    assert f"{text} is the training data of runs/book: evaluating on its validation split" in notes
    assert measured(new, str(other))[0]["tokens"] == 99 * 15
    shutil.rmtree(new / "runs" / ".tokens")
    report, notes = resumed(new, str(text))
    assert f"reading {text}, the text of runs/book" in notes
    assert report == resumed(stayed)[0]
    assert same(last_weights(new), last_weights(stayed))


def test_encoded_text_of_another_text_beside_the_run_is_not_used(old: Path) -> None:
    other = old / "other.txt"
    other.write_text("something else " * 99, encoding="utf-8")
    trained = here("train", other, "--out", old / "runs" / "second", "--config", RUN / "config.toml", folder=old)
    assert trained.returncode == 0, trained.stderr
    name, second = (Path(Run(old / run).manifest()["data"]["tokens"]).name for run in (RUN, "runs/second"))
    new = moved(old)
    tokens = new / "runs" / ".tokens"
    shutil.rmtree(tokens / name)
    shutil.copytree(tokens / second, tokens / name)
    (new / "proverbs.txt").unlink()
    told = refused("train", "--resume", "--out", RUN, *MORE, folder=new)
    assert "and the text of runs/book (proverbs.txt) was not found" in told.replace("\\", "/")
    elsewhere = str(tokens / second)  # where it was lies another text now
    change_manifest(new / RUN, lambda manifest: manifest["data"].update(tokens=elsewhere))
    assert "has another text: its hash differs" in refused("train", "--resume", "--out", RUN, *MORE, folder=new)


@pytest.mark.parametrize("validation", [False, True])
def test_moved_parallel_files_are_found_or_named(validation: bool, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    for name, word in (("a.en", "one"), ("a.de", "eins"), ("b.en", "this is one"), ("b.de", "das ist eins")):
        lines = [f"{word} {number} {number * 37 % 101}" for number in range(60)]
        (old / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = ["--data.validation", "b.en", "--data.validation_target", "b.de"] if validation else []
    settings += ["--steps", "2", "--model.layers", "1", "--model.width", "12", "--model.heads", "2"]
    settings += ["--model.context", "16", "--train.batch", "4", "--train.threads", "1", "--sample.tokens", "4"]
    files = ["a.en", "a.de"]
    done = here("train", *files, "--task", "translate", "--out", RUN, *settings, folder=old)
    assert done.returncode == 0, done.stderr
    new = moved(old)
    shutil.rmtree(new / "runs" / ".tokens")
    _, notes = resumed(tmp_path, run=new / RUN)
    assert f"reading {new / 'a.en'} and {new / 'a.de'} again" in notes
    shutil.rmtree(new / "runs" / ".tokens")
    for name in files:
        (new / name).rename(tmp_path / f"other-{name}")
    named = [str(tmp_path / f"other-{name}") for name in files]
    _, notes = resumed(new, *named)
    assert f"reading {named[0]} and {named[1]}, the text of runs/book" in notes
    swapped = refused("train", "--resume", "--out", RUN, *reversed(named), folder=new)
    assert "its hash differs" in swapped


def test_a_changed_text_is_reported_from_every_folder_and_an_unchanged_text_from_none(old: Path) -> None:
    other = old.with_name("other")
    other.mkdir()
    (other / "proverbs.txt").write_text("another text\n" * 40, encoding="utf-8")
    _, notes = resumed(other, run=Path("..", "old") / RUN)
    assert "this run began" not in notes
    (old / "proverbs.txt").write_text("another text\n" * 40, encoding="utf-8")
    _, notes = resumed(old.parent, run=Path("old") / RUN)
    assert f"{old / 'proverbs.txt'} differs from the text with which this run began" in notes


def test_the_command_for_a_changed_text_of_pairs_names_both_files(tmp_path: Path) -> None:
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("".join(f"{name} {number}\n" for number in range(40)), encoding="utf-8")
    done = here(*train("a.en", "a.de", "--task", "translate", "--set", "data.validation_limit=4"), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "a.de").write_text("another line\n" * 40, encoding="utf-8")
    done = here("train", "--resume", "--out", "out", folder=tmp_path)
    assert "a.en and a.de differs from" in done.stderr
    assert "glass train a.en a.de --from out --out NEW" in done.stderr
