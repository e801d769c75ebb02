"""A full disk, missing permissions, too little memory, or a stop signal: nothing that was saved is lost."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from glassformer.app.cli.main import main
from glassformer.model.weights import load_tensors
from glassformer.runs.folder import Run
from tests.journey.commands import ended, environment, glass, start
from tests.journey.damage import RUN, half, remove, train, tree, write
from tests.property.trainers import same

BOOK = str(RUN)
FULL = errno.ENOSPC if os.name != "nt" else 112  # Windows has numbers of its own


def two_lines(captured: pytest.CaptureResult[str], cause: str, remedy: str) -> None:
    """Assert that standard error ends with the cause and the remedy, and that standard output is empty."""
    lines = captured.err.splitlines()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert cause in lines[-2]
    assert remedy in lines[-1]


def failing(real: Callable[..., Any], error: Callable[[], Exception], calls: int) -> Callable[..., Any]:
    """Return a function that works for `calls` calls, and then raises an error at every call."""
    done = 0

    def function(*arguments: Any, **named: Any) -> Any:
        nonlocal done
        done += 1
        if done > calls:
            raise error()
        return real(*arguments, **named)

    return function


def no_space() -> Exception:
    return OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.thorough
@pytest.mark.parametrize("calls", [*range(14), 18, 24, 31, 40])
def test_a_full_disk_at_any_moment_and_a_resume_give_the_same_weights(
    calls: int, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(here)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync, no_space, calls))
        code = main(train("proverbs.txt"))
    if code == 0 and os.name == "nt":
        pytest.skip("this system forces fewer files to the disk")
    assert code == 2, "the command does not force so many files to the disk"
    two_lines(capsys.readouterr(), "the disk is full", "everything written before is intact")
    after = tree(here)
    assert {name: after.get(name) for name in before} == before
    assert not [name for name in after if ".partial" in name or ".building" in name]
    begun = (here / "out" / "config.toml").exists()
    assert begun or not (here / "out").exists()
    assert main(["train", "--resume", "--out", "out"] if begun else train("proverbs.txt")) == 0
    for which in ("best", "last"):
        files = [Run(here / name).checkpoint(which) / "model.safetensors" for name in ("out", BOOK)]
        assert same(*map(load_tensors, files))
    assert main(["generate", "out", "the", "--tokens", "2"]) == 0


def test_a_full_disk_in_safetensors_is_reported(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise SafetensorError(f"Error while serializing: I/O error: No space left on device (os error {FULL})")

    monkeypatch.setattr("glassformer.model.weights.save_file", full)
    before = tree(here)
    assert main(["train", "--resume", "--out", BOOK, "--steps", "5"]) == 2
    two_lines(capsys.readouterr(), "the disk is full: ", "everything written before is intact")
    after = tree(here)
    kept = {name: text for name, text in before.items() if "/checkpoints" in name or name.endswith(("best", "last"))}
    assert {name: after.get(name) for name in kept} == kept
    assert not [name for name in after if ".partial" in name]


def test_a_full_disk_while_the_text_is_encoded_is_reported(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise no_space()

    monkeypatch.setattr("glassformer.text.store.StoreWriter._write", full)
    before = tree(here)
    assert main(train("proverbs.txt", out="elsewhere/out")) == 2
    two_lines(capsys.readouterr(), "the disk is full", "Free some space")
    assert tree(here) == before


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_standard_output_on_a_full_disk_is_reported(here: Path) -> None:
    buffered = {key: value for key, value in environment().items() if key != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "glassformer", "count", "tiny"],
            cwd=here,
            env=buffered,
            stdout=full,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            check=False,
        )
    assert ended.returncode == 2
    assert "the disk is full: standard output" in ended.stderr
    assert len(ended.stderr.splitlines()) == 2


@pytest.mark.parametrize("arguments", [train("proverbs.txt"), ["data", "look", "proverbs.txt"]], ids=["train", "look"])
def test_missing_read_permission_is_reported(
    arguments: list[str], here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.open

    def closed(path: Path, *how: Any, **named: Any) -> Any:
        if path.name == "proverbs.txt":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *how, **named)

    monkeypatch.setattr(Path, "open", closed)
    before = tree(here / "runs")
    assert main(arguments) == 2
    two_lines(capsys.readouterr(), "no permission to use proverbs.txt", "permissions")
    assert tree(here / "runs") == before
    assert not (here / "out").exists()


def test_missing_write_permission_is_reported(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", closed)
    before = tree(here)
    assert main(train("proverbs.txt")) == 2
    two_lines(capsys.readouterr(), "no permission to use", "choose another path")
    assert tree(here) == before


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="this system, or this account, may use every file"
)
def test_missing_permission_for_a_real_folder_is_reported(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / RUN).chmod(0)
    try:
        assert main(["generate", BOOK, "the"]) == 2
    finally:
        (here / RUN).chmod(0o700)
    two_lines(capsys.readouterr(), "no permission to use", "permissions")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 99 bytes."),
    ],
    ids=["python", "gpu", "processor"],
)
def test_out_of_memory_at_the_second_step_is_reported(
    error: Exception, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from glassformer.training import loop

    monkeypatch.setattr(loop, "accumulate_gradients", failing(loop.accumulate_gradients, lambda: error, 1))
    assert main(train("proverbs.txt")) == 2
    captured = capsys.readouterr()
    two_lines(captured, "not enough memory for one row at a time", "Lower model.context")
    assert "model.context" in captured.err.splitlines()[-1]
    assert Run(here / "out").checkpoint("last").name == "step-000001"


def test_other_runtime_errors_are_reported_as_internal_errors(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from glassformer.training import loop

    odd = failing(loop.accumulate_gradients, lambda: RuntimeError("odd shapes"), 1)
    monkeypatch.setattr(loop, "accumulate_gradients", odd)
    assert main(train("proverbs.txt")) == 1
    two_lines(capsys.readouterr(), "unexpected: RuntimeError: odd shapes", "--debug")


def test_debug_shows_the_traceback(here: Path) -> None:
    ended = glass("generate", BOOK, "the", "--top-k", "0", "--debug", folder=here)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "Traceback" in ended.stderr
    assert ended.stderr.splitlines()[-2:] == ["sample.top_k = 0 is not allowed", "Give 1 or more."]


@pytest.mark.thorough
@pytest.mark.skipif(os.name == "nt", reason="this system sends no such signals to one process")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_saves_and_prints_how_to_resume(number: int, here: Path) -> None:
    process = start(*train("proverbs.txt", "--steps", "1000000"), folder=here)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (here / "out" / "metrics.jsonl").exists():
        time.sleep(0.01)
    process.send_signal(number)
    done = ended(process)
    assert done.returncode == 130
    assert done.stdout == ""
    last = Run(here / "out").checkpoint("last")
    assert done.stderr.splitlines()[-2:] == [
        f"stopped after step {int(last.name[5:])}; everything is saved",
        "Resume with: glass train --resume --out out",
    ]


@pytest.mark.parametrize(
    ("arguments", "note", "set_up"),
    [
        (
            ["generate", BOOK, "the Ω", "--tokens", "2"],
            "these characters are not in the vocabulary & Ω",
            write("a.txt", ""),
        ),
        (["generate", BOOK, "the", "--stop", "😀"], "", write("a.txt", "")),
        (train("a.jsonl"), "left out 1 row without text", write("a.jsonl", '{"text": "how so"}\n' * 99 + "{}")),
        (train("a.csv", "--data.column", "2"), "column number 2", write("a.csv", "id,text\n" + "1,how so then\n" * 99)),
        (train("😀.txt"), "😀.txt", write("😀.txt", "how are you today " * 30)),
        (["generate", BOOK, "the", "--top", "3"], "", remove("proverbs.txt", "runs/.tokens")),
        (["evaluate", BOOK], "is gone: reading proverbs.txt again", remove("runs/.tokens")),
        (["train", "--resume", "--steps", "4"], "resuming runs/book", remove(RUN / "best", RUN / "last")),
    ],
    ids=[
        "unseen characters",
        "stop beyond ascii",
        "row without text",
        "column by number",
        "name beyond ascii",
        "run moved without its text",
        "encoded text deleted",
        "pointers of a run deleted",
    ],
)
def test_unusual_but_valid_commands_work(
    arguments: list[str], note: str, set_up: Callable[[Path], object], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(here)
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out
    for words in note.split(" & "):
        assert words in captured.err
    if not note:
        assert captured.err == ""


def test_with_a_damaged_newest_checkpoint_the_older_one_is_used(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    older = here / RUN / "checkpoints" / "step-000003"
    newer = shutil.copytree(older, older.with_name("step-000004"))
    (newer / "model.safetensors").write_bytes(half((newer / "model.safetensors").read_bytes()))
    Run(here / RUN).point("last", newer)
    assert main(["generate", BOOK, "the", "--checkpoint", "last"]) == 2
    two_lines(capsys.readouterr(), "step-000004", "Complete checkpoints: step-000003. To resume: glass train --resume")
    assert main(["generate", BOOK, "the"]) == 0
    assert main(["train", "--resume", "--out", BOOK, "--steps", "5"]) == 0
    assert "after step 3" in capsys.readouterr().err
