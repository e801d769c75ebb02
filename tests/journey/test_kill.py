"""Training that is killed with SIGKILL at random moments, even during saves, resumes and ends with the same weights."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from glassformer.model.weights import load_tensors
from glassformer.runs.folder import Run
from tests.journey.commands import glass, start
from tests.property.trainers import same, text_file

pytestmark = pytest.mark.thorough

SETTINGS = [
    "--steps",
    "300",
    "--set",
    "model.layers=2",
    "--set",
    "model.width=64",
    "--set",
    "model.heads=2",
    "--set",
    "model.context=24",
    "--set",
    "model.dropout_residual=0.1",
    "--set",
    "tokenizer.kind=characters",
    "--set",
    "train.batch=16",
    "--set",
    "train.save_every=5",
    "--set",
    "train.evaluate_every=40",
    "--set",
    "sample.tokens=10",
]
KILLS = 20


def wait_for_the_moment(run: Run, in_a_save: bool, numbers: random.Random) -> None:
    """Wait for a new checkpoint, and then for a random time or, with `in_a_save`, until the next save has begun."""
    deadline = time.monotonic() + 30
    before = {path.name for path in run.checkpoints_folder.glob("step-*[0-9]")}
    while time.monotonic() < deadline and {path.name for path in run.checkpoints_folder.glob("step-*[0-9]")} <= before:
        time.sleep(0.001)
    if not in_a_save:
        time.sleep(numbers.random() * 0.05)
        return
    while time.monotonic() < deadline and not any(run.checkpoints_folder.glob("*.partial")):
        pass


def test_a_run_killed_twenty_times_equals_one_never_killed(tmp_path: Path) -> None:
    text_file(tmp_path)
    straight = glass("train", "proverbs.txt", "--out", "straight", *SETTINGS, folder=tmp_path)
    assert straight.returncode == 0, straight.stderr
    numbers = random.Random(7)
    run = Run(tmp_path / "killed")
    killed_in_a_save = 0
    arguments = ["train", "proverbs.txt", "--out", "killed", *SETTINGS]
    for number in range(KILLS):
        process = start(*arguments, folder=tmp_path)
        wait_for_the_moment(run, in_a_save=number % 2 == 0, numbers=numbers)
        assert process.poll() is None, "the run ended before it could be killed"
        process.kill()
        process.wait()
        killed_in_a_save += any(run.checkpoints_folder.glob("*.partial"))
        assert run.complete_checkpoints(), "a loadable checkpoint must always exist"
        arguments = ["train", "--resume", "--out", "killed"]
    assert killed_in_a_save >= 3
    ended = glass(*arguments, folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    for which in ("best", "last"):
        files = [each.checkpoint(which) / "model.safetensors" for each in (run, Run(tmp_path / "straight"))]
        assert same(*map(load_tensors, files))
