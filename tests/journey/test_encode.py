"""Encode a text with `glass data encode`, with and without datatrove's local executor, and train on the result."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path

import pytest

from glassformer.base.packages import install_command
from tests.journey.commands import glass, here, start
from tests.property.trainers import text_file

pytestmark = pytest.mark.thorough

DATATROVE = pytest.mark.skipif(importlib.util.find_spec("datatrove") is None, reason="datatrove is not installed")
SETTINGS = ["--data.document", "line", "--data.duplicates", "exact", "--tokenizer.vocab_size", "280"]
MANY = ["--engine", "datatrove", "--workers", "2", "--parts", "3"]
MODEL = [
    "--model.layers",
    "1",
    "--model.width",
    "12",
    "--model.heads",
    "2",
    "--model.context",
    "24",
    "--train.threads",
    "1",
    "--train.batch",
    "3",
    "--sample.tokens",
    "4",
    "--steps",
    "5",
    "--json",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    text_file(tmp_path)
    return tmp_path


def tokens(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@DATATROVE
def test_several_processes_encode_the_same_and_a_run_trains_on_it(folder: Path) -> None:
    one = here("data", "encode", "proverbs.txt", "--out", "one", *SETTINGS, folder=folder)
    many = glass("data", "encode", "proverbs.txt", "--out", "many", *SETTINGS, *MANY, "--json", folder=folder)
    assert (one.returncode, many.returncode) == (0, 0), one.stderr + many.stderr
    assert "one is ready: glass train one" in one.stdout
    assert "datatrove.executor" not in many.stderr
    assert tokens(folder / "one") == tokens(folder / "many")
    assert json.loads(many.stdout)["engine"] == "datatrove"
    assert not (folder / "many.encoding").exists()

    losses = []
    for source, settings in (("many", []), ("proverbs.txt", SETTINGS)):
        done = here("train", source, "--out", f"runs/{source}", *settings, *MODEL, folder=folder)
        assert done.returncode == 0, done.stderr
        losses.append(json.loads(done.stdout)["loss"])
    assert losses[0] == losses[1]
    resumed = here("train", "--resume", "--out", "runs/many", "--steps", "7", "--json", folder=folder)
    assert json.loads(resumed.stdout)["steps_done"] == 7, resumed.stderr


@DATATROVE
def test_a_killed_encode_is_resumed(folder: Path) -> None:
    text = "".join(f"{number} is a number, and {number * 7} another one\n" for number in range(20_000))
    (folder / "long.txt").write_text(text, encoding="utf-8")
    words = ["data", "encode", "long.txt", "--out", "out", *SETTINGS, "--engine", "datatrove", "--parts", "5"]
    process = start(*words, folder=folder)
    logs = folder / "out.encoding" / "logs"
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not (logs / "encode" / "completions" / "00001").exists():
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert not (folder / "out").exists()
    done = here(*words, folder=folder)
    assert done.returncode == 0, done.stderr
    assert "resuming" in done.stderr
    straight = here("data", "encode", "long.txt", "--out", "straight", *SETTINGS, folder=folder)
    assert straight.returncode == 0
    assert tokens(folder / "out") == tokens(folder / "straight")
    assert sorted(path.name for path in folder.iterdir()) == ["long.txt", "out", "proverbs.txt", "straight"]


REFUSED = {
    "no place": (["proverbs.txt"], "was given without --out"),
    "no such engine": (["proverbs.txt", "--out", "o", "--engine", "spark"], "unknown engine 'spark'"),
    "workers of one process": (["proverbs.txt", "--out", "o", "--workers", "2"], "--workers 2 cannot be used with"),
    "no parts": (
        ["proverbs.txt", "--out", "o", "--engine", "datatrove", "--parts", "0"],
        "--parts 0 cannot be used with",
    ),
    "examples": (["proverbs.txt", "--out", "o", "--task", "translate"], "does not encode examples"),
    "two tokenizers": (
        ["proverbs.txt", "--out", "o", "--tokenizer", "t", "--tokenizer.kind", "bytes"],
        "was given with",
    ),
    "no tokenizer": (["proverbs.txt", "--out", "o", "--tokenizer", "none.json"], "none.json cannot be read"),
    "taken": (["proverbs.txt", "--out", "proverbs.txt"], "already exists and is not overwritten"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_options_are_refused_and_leave_nothing(case: str, folder: Path) -> None:
    words, problem = REFUSED[case]
    done = here("data", "encode", *words, folder=folder)
    assert done.returncode == 2
    first, second = done.stderr.splitlines()[-2:]
    assert problem in first
    assert second
    assert [path.name for path in folder.iterdir()] == ["proverbs.txt"]


def test_a_missing_package_is_named_with_its_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "orjson" else found(name, *more)
    )
    done = here("data", "encode", "proverbs.txt", "--out", "out", "--engine", "datatrove", folder=folder)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "--engine datatrove needs the package orjson",
        install_command("cluster"),
    ]
    assert not (folder / "out.encoding").exists()


def test_other_data_actions_refuse_its_options(folder: Path) -> None:
    done = here("data", "look", "proverbs.txt", "--workers", "2", folder=folder)
    assert done.stderr.splitlines()[0] == "glass data look takes no --workers"
