"""Only one process trains a run: a second process is refused before it changes anything."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import lock_descriptor, unlock_descriptor

from glassformer.base.errors import GlassError
from glassformer.base.files import write_bytes
from glassformer.base.locks import folder_lock, is_held
from glassformer.runs.folder import Run
from glassformer.training import loop
from glassformer.training.reporting import Silent
from glassformer.training.setup import new_training
from tests.journey.commands import ended, glass, here, start
from tests.journey.damage import change, train, tree
from tests.property.trainers import last_weights, resumed, same, small_config, small_trainer, text_file

TRAINING = "another process is training in run"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a text and a finished run of 3 steps."""
    text_file(tmp_path)
    done = here(*train("proverbs.txt", out="run"), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_a_second_resume_is_refused_and_changes_nothing(folder: Path) -> None:
    before = tree(folder)
    with folder_lock(folder / "run"):
        second = here("train", "--resume", "--out", "run", "--steps", "7", folder=folder)
    assert second.returncode == 2
    assert TRAINING in second.stderr
    assert len(second.stderr.splitlines()) == 2
    assert tree(folder) == before


def test_a_second_new_run_is_refused_while_the_first_creates_the_folder(tmp_path: Path) -> None:
    text_file(tmp_path)
    (tmp_path / "run").mkdir()
    with folder_lock(tmp_path / "run"):
        second = here(*train("proverbs.txt", out="run"), folder=tmp_path)
    assert second.returncode == 2
    assert TRAINING in second.stderr
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["lock"]


def test_attempts_to_resume_a_training_run_do_not_change_it(tmp_path: Path) -> None:
    """Before and after some saves, a second command tries to resume the run; its results are unaffected."""
    straight = small_trainer(tmp_path, "straight", train__save_every=1)
    loop.train(straight)
    refused: list[str] = []

    def resume_too(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
        second = run("train", "--resume", "--out", "run", "--steps", "7", folder=tmp_path)
        assert second.returncode == 2, second.stderr
        refused.append(second.stderr)

    with new_training(small_config(tmp_path, train__save_every=1), tmp_path / "run", Silent()) as trainer:
        save = trainer.save_checkpoint

        def watched(last: bool = False) -> None:
            if trainer.state.step not in (0, 4, 6, 7, 24):
                save(last)
                return
            resume_too(glass if trainer.state.step == 7 else here)  # once in a separate process
            save(last)
            resume_too(here)

        trainer.save_checkpoint = watched  # type: ignore[method-assign]
        assert loop.train(trainer) is not None
    assert len(refused) == 2 * 5
    assert all(TRAINING in said and len(said.splitlines()) == 2 for said in refused)
    assert same(last_weights(trainer), last_weights(straight))
    for which in ("best", "last"):
        assert trainer.run.checkpoint(which).name == straight.run.checkpoint(which).name
    assert trainer.run.samples_file.read_bytes() == straight.run.samples_file.read_bytes()
    assert trainer.run.config() == trainer.config


def test_only_one_of_two_new_runs_in_one_folder_is_created(tmp_path: Path) -> None:
    text_file(tmp_path)
    arguments = train("proverbs.txt", "--steps", "20", "--set", "train.evaluate_every=20", out="run")
    both = [start(*arguments, folder=tmp_path) for _ in range(2)]
    done = sorted((ended(process) for process in both), key=lambda each: each.returncode)
    assert [each.returncode for each in done] == [0, 2], [each.stderr for each in done]
    refused = (TRAINING, "another glass command is writing run", "run already contains a run")
    assert any(problem in done[1].stderr for problem in refused)
    assert Run(tmp_path / "run").checkpoint("last").name == "step-000020"


def test_a_pointer_written_by_another_program_loses_no_checkpoint(tmp_path: Path) -> None:
    """Pointers are written from the state of training and never read back, so the best checkpoint is kept."""
    trainer = small_trainer(tmp_path)
    best: list[str] = []
    save = trainer.save_checkpoint

    def save_between_others(last: bool = False) -> None:
        if best:
            (trainer.run.folder / "best").write_text("step-999999\n", encoding="utf-8")
            (trainer.run.folder / "last").write_text("step-999999\n", encoding="utf-8")
        save(last)
        best.append(trainer.run.checkpoint("best").name)

    trainer.save_checkpoint = save_between_others  # type: ignore[method-assign]
    assert loop.train(trainer) is not None
    straight = small_trainer(tmp_path, "straight")
    loop.train(straight)
    assert trainer.run.checkpoint("best").name == straight.run.checkpoint("best").name
    assert same(last_weights(trainer), last_weights(straight))


def test_a_file_system_without_locks_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl", reason="this system locks in another way")

    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    before = tree(folder)
    for arguments in (["train", "--resume", "--out", "run", "--steps", "7"], train("proverbs.txt", out="new")):
        done = here(*arguments, folder=folder)
        assert done.returncode == 2
        assert "its file system does not support locks" in done.stderr
        assert "another process" not in done.stderr
    assert tree(folder) == before
    assert not is_held(folder / "run")


def test_checking_a_lock_does_not_block_others(tmp_path: Path) -> None:
    """`is_held` takes the lock for a moment; a trainer that starts at that moment waits, others that ask do too."""
    assert not is_held(tmp_path)
    with folder_lock(tmp_path):
        assert is_held(tmp_path)
    with (tmp_path / "lock").open("rb+") as asking:
        for seconds, ask in ((0.06, None), (0.002, is_held)):
            assert lock_descriptor(asking.fileno(), blocking=False)
            threading.Timer(seconds, unlock_descriptor, [asking.fileno()]).start()
            if ask is not None:
                assert not ask(tmp_path)
                continue
            with folder_lock(tmp_path):
                assert is_held(tmp_path)


def test_a_removed_lock_file_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that waited for the lock of a recreated folder takes the lock of the new folder."""
    fcntl = pytest.importorskip("fcntl", reason="this system locks in another way")
    flock = fcntl.flock
    removed = list[Path]()

    def removed_meanwhile(descriptor: int, operation: int) -> None:
        if not removed:
            (tmp_path / "lock").unlink()
            removed.append(tmp_path / "lock")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", removed_meanwhile)
    with folder_lock(tmp_path):
        monkeypatch.undo()
        with pytest.raises(GlassError, match="another process is training"), folder_lock(tmp_path):
            pass


def test_two_processes_may_write_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process writes the file while another one is in the middle of writing it."""
    path = tmp_path / "best"
    fsync = os.fsync
    others = list[bytes]()

    def write_meanwhile(descriptor: int) -> None:
        fsync(descriptor)
        if not others:
            others.append(b"other")
            write_bytes(path, b"other")

    monkeypatch.setattr(os, "fsync", write_meanwhile)
    write_bytes(path, b"ours")
    assert path.read_bytes() == b"ours"
    assert [each.name for each in tmp_path.iterdir()] == ["best"]


def test_leftovers_of_killed_processes_are_removed_but_not_active_files(folder: Path) -> None:
    run = folder / "run"
    left = [".best.0123ab_d.partial/best", ".config.toml.0123abcd.partial/config.toml"]
    left += ["checkpoints/.step-000009.0123abcd.partial/step-000009/file"]
    left += ["checkpoints/.step-000003.0123abcd.old/file"]
    others = [
        ".verify.json.0123abcd.partial/verify.json",
        "best.partial",
        "best.0123abcd.partial",
        ".best.mine.partial",
    ]
    others += [f"checkpoints/step-000003{suffix}/file" for suffix in (".old", ".partial", "-good", ".0123abcd.partial")]
    for name in (*left, *others):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(b"half")
    assert here("train", "--resume", "--out", "run", folder=folder).returncode == 0
    assert not [name for name in left if (run / name).exists()]
    assert not list((run / "checkpoints").glob(".*"))
    assert all((run / name).exists() for name in others)


def test_an_incomplete_run_is_not_resumed_as_the_newest(folder: Path) -> None:
    """As in `glass prune`: a run is in a hidden folder until it is complete."""
    (folder / "runs").mkdir()
    (folder / "run").rename(folder / "runs/run")
    shutil.copytree(folder / "runs/run", folder / "runs/.smaller.0123abcd.partial/smaller")
    for name in ("config.toml", "last"):
        os.utime(folder / "runs/.smaller.0123abcd.partial/smaller" / name, (2**33, 2**33))
    done = here("train", "--resume", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "resuming runs" in done.stderr.replace("\\", "/")
    assert "smaller" not in done.stderr


def test_a_refused_resume_changes_nothing(folder: Path) -> None:
    """The lock was free, but the run cannot be resumed because its text has changed."""
    shutil.rmtree(folder / ".tokens")
    (folder / "proverbs.txt").write_text("something else " * 99, encoding="utf-8")
    before = tree(folder / "run")
    done = here("train", "--resume", "--out", "run", "--steps", "7", folder=folder)
    assert done.returncode == 2
    assert "not the text of run" in done.stderr
    assert tree(folder / "run") == before


def test_the_lock_is_released_after_an_error(folder: Path) -> None:
    failed = here(*change("train.learning_rate", "bad"), folder=folder)
    assert failed.returncode == 2
    assert not (folder / "out").exists()
    trainer: Any = resumed(folder)
    with folder_lock(trainer.run.folder):
        assert is_held(trainer.run.folder)
