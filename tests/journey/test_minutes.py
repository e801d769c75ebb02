"""`glass train --minutes` through the command line: records, messages, and the time summed over resumed processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from glassformer.runs.folder import Run
from tests.journey.command_output import facts, shown
from tests.journey.commands import ended, glass, here, start
from tests.property.trainers import text_file

TINY = [
    "--model.layers",
    "1",
    "--model.heads",
    "2",
    "--model.width",
    "16",
    "--model.context",
    "16",
    "--train.batch",
    "4",
    "--tokenizer.kind",
    "characters",
    "--sample.tokens",
    "4",
    "--steps",
    "unset",
]


def legs(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["legs"]
    return found


def progress(folder: Path) -> dict[str, Any]:
    state = Run(folder).checkpoint("last") / "state.json"
    found: dict[str, Any] = json.loads(state.read_text(encoding="utf-8"))["progress"]
    return found


@pytest.fixture
def long_text(tmp_path: Path) -> Path:
    """Write a text so long that evaluating half of it takes more time than a test's limit allows."""
    path = text_file(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") * 130, encoding="utf-8")
    return path


def test_a_final_evaluation_that_exceeds_the_time_uses_a_part(long_text: Path, tmp_path: Path) -> None:
    """The final evaluation may take a tenth of the time limit, which is 12 milliseconds here."""
    words = ["train", long_text.name, "--out", "run", *TINY, "--minutes", "0.002", "--data.validation_fraction", "0.5"]
    done = here(*words, "--data.split", "end", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert 0 < said["validation_share"] < 1
    assert said["loss_ci95"] > 0
    assert "evenly spaced; glass evaluate run uses all rows" in done.stderr
    assert "more than train.minutes = 0.002: give at least --minutes " in done.stderr
    assert legs(tmp_path / "run")[-1]["validation_share"] == said["validation_share"]
    whole = facts("evaluate", "run", folder=tmp_path)
    assert whole["tokens"] > 100_000
    assert whole["bits_per_byte"] == pytest.approx(said["bits_per_byte"], rel=0.2)
    assert whole["loss"] == pytest.approx(said["loss"], abs=5 * said["loss_ci95"] + 0.1)
    again = here("train", "--resume", "--out", "run", folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "an evenly spaced part (" in again.stdout
    assert f"validation loss {said['loss']:.4f}" in again.stdout


def test_a_run_limited_by_steps_evaluates_all_rows_without_a_clock(tmp_path: Path) -> None:
    text_file(tmp_path)
    words = ["train", "proverbs.txt", "--out", "run", *TINY[:-2], "--steps", "4"]
    assert facts(*words, folder=tmp_path)["validation_share"] == 1
    assert legs(tmp_path / "run")[0].keys().isdisjoint({"wall_seconds", "validation_share", "threads_tried"})


def test_threads_are_tried_and_recorded(tmp_path: Path) -> None:
    """OMP_NUM_THREADS allows the process to use two threads."""
    text_file(tmp_path)
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONUTF8": "1"}
    words = [*TINY, "--minutes", "0.2", "--steps", "5", "--precision", "fp32"]
    for name, own in (("tried", []), ("given", ["--train.threads", "2"])):
        command = [sys.executable, "-m", "glassformer", "train", "proverbs.txt", "--out", name, *words, *own]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        (leg,) = legs(tmp_path / name)
        if name == "given":
            assert leg["threads"] == 2
            assert "threads_tried" not in leg
            assert "threads:" not in done.stderr
        elif "threads_tried" in leg:  # the machine may be so slow that the minutes are over before
            tried = {int(number): took for number, took in leg["threads_tried"].items()}
            assert tried.keys() == {1, 2}
            assert leg["threads"] == min(tried, key=lambda number: tried[number])
            assert f"threads: {leg['threads']}, the fastest" in done.stderr


@pytest.mark.thorough
def test_a_stopped_run_keeps_its_elapsed_time_when_resumed(tmp_path: Path) -> None:
    text_file(tmp_path)
    run = tmp_path / "run"
    process = start("train", "proverbs.txt", "--out", "run", *TINY, "--minutes", "30", folder=tmp_path)
    ends = time.monotonic() + 120
    while not (run / "metrics.jsonl").is_file() and time.monotonic() < ends:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert ended(process).returncode == 130
    before = progress(run)
    assert before["times"]["other"] > 0
    assert before["times"]["began"] > 0
    # Fewer minutes than the first leg took: nothing is left, whatever the time of this process.
    spent = (before["train_seconds"] + before["times"]["other"]) / 60
    less = glass("train", "--resume", "--out", "run", "--minutes", f"{spent / 2:.6f}", folder=tmp_path)
    assert less.returncode == 0, less.stderr
    assert "nothing left to train: train.minutes = " in less.stderr
    assert f"--minutes {spent:.2g}"[:13] in less.stderr
    assert progress(run)["step"] == before["step"]
    more = str(before["step"] + 10)
    words = ["train", "--resume", "--out", "run", "--minutes", "30", "--steps", more]
    assert f"all {more} steps are done" in shown(*words, folder=tmp_path)
    after = progress(run)
    assert after["times"]["other"] > before["times"]["other"]
    assert after["times"]["began"] == before["times"]["began"]
    assert legs(run)[-1]["wall_seconds"] > 60 * spent
