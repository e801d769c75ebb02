"""Logs cut short by a full disk or a kill resume without loss, and altered logs and snapshots are refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from glassformer.base.errors import GlassError
from glassformer.runs.folder import Run
from glassformer.training.checkpoint import step_name
from glassformer.training.journal import Journal, read_metrics, read_samples
from glassformer.training.loop import train
from glassformer.training.trainer import Trainer
from tests.property.trainers import resumed, small_trainer, stop_after

BANGLA = "সে বাগানে গান গায়"


def journal_of(folder: Path) -> Journal:
    """Return the journal of an empty run folder."""
    return Journal(Run(folder), None)


def line(step: int) -> bytes:
    """Return a line of `metrics.jsonl`."""
    return json.dumps({"step": step, "loss": 1.5}).encode() + b"\n"


def entry(step: int, text: str) -> bytes:
    """Return an entry of `samples.txt`."""
    return f"--- step {step}\n{text}\n".encode()


def test_the_logs_are_cut_to_their_contents_at_the_checkpoint(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    for step in (4, 8):
        journal.add({"step": step, "loss": 1.5})
        journal.add_sample(step, BANGLA)
    logs = journal.digests()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name: hashlib.sha256(data).hexdigest() for name, data in before.items()} == {
        name: facts["sha256"] for name, facts in logs.items()
    }
    for later in (b"", line(120), b"\xe0\xa6"):
        for path in tmp_path.iterdir():
            with path.open("ab") as file:
                file.write(later)
        resumed_journal = journal_of(tmp_path)
        assert resumed_journal.forget_after(logs, 8) is None
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        assert resumed_journal.digests() == logs


def test_a_sample_cut_at_any_byte_leaves_the_entries_before_it(tmp_path: Path) -> None:
    whole = entry(4, BANGLA) + entry(8, "two\nlines")
    torn = entry(120, BANGLA)
    for cut in range(1, len(torn)):
        (tmp_path / "samples.txt").write_bytes(whole + torn[:cut])
        assert read_samples(Run(tmp_path)) == [(4, BANGLA), (8, "two\nlines")], cut


def test_a_sample_that_mentions_the_header_is_not_cut(tmp_path: Path) -> None:
    text = "he said --- step by step\n--- step aside"
    journal_of(tmp_path).add_sample(4, text)
    assert read_samples(Run(tmp_path)) == [(4, text)]


@pytest.mark.parametrize(
    "damage",
    [
        b'{"step": 6, "lo',
        b"\xff\xfe\n",
        b'{"step": 6}\n',
        b"[1]\n",
        b"[" * 100_000 + b"\n",
        b'{"step": Infinity, "loss": 1}\n',
    ],
)
def test_a_damaged_line_of_metrics_is_not_read(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(line(2) + line(4) + damage)
    assert [record["step"] for record in read_metrics(Run(tmp_path))] == [2, 4]


def stopped(folder: Path) -> Trainer:
    """Return the trainer of a run that was stopped after its eighth step."""
    trainer = small_trainer(folder)
    stop_after(trainer, 8)
    return trainer


def test_a_run_resumes_with_incomplete_entries_after_its_checkpoint(tmp_path: Path) -> None:
    run = stopped(tmp_path).run
    with run.samples_file.open("ab") as file:
        file.write(entry(12, BANGLA)[:-4])
    with run.metrics_file.open("ab") as file:
        file.write(b"\xe0\xa6")
    assert train(resumed(tmp_path)) is not None
    straight = small_trainer(tmp_path, "straight")
    train(straight)
    assert run.samples_file.read_bytes() == straight.run.samples_file.read_bytes()
    assert [record["loss"] for record in read_metrics(run)] == [record["loss"] for record in read_metrics(straight.run)]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("metrics.jsonl", lambda data: data.replace(b'"loss": ', b'"loss": 1', 1)),
        ("metrics.jsonl", lambda data: data.splitlines(keepends=True)[1] + data),
        ("metrics.jsonl", lambda data: b"".join(data.splitlines(keepends=True)[1:])),
        ("metrics.jsonl", lambda data: data[:-9]),
        ("samples.txt", lambda data: data.replace(b" step 6", b" step 5", 1)),
    ],
)
def test_altered_entries_are_refused_by_readers_and_on_resuming(
    tmp_path: Path, name: str, change: Callable[[bytes], bytes]
) -> None:
    run = stopped(tmp_path).run
    path = run.folder / name
    original = path.read_bytes()
    path.write_bytes(change(original))
    assert path.read_bytes() != original
    read = read_metrics if name == "metrics.jsonl" else read_samples
    for use in (lambda: read(run), lambda: resumed(tmp_path)):
        with pytest.raises(GlassError, match=f"{name} was altered") as caught:
            use()
        assert "remove it" in caught.value.remedy
    path.unlink()
    with pytest.raises(GlassError, match=f"{name} is missing"):
        read(run)
    trainer = resumed(tmp_path)
    notes: list[str] = []
    trainer.reporter.note = notes.append  # type: ignore[method-assign]
    train(trainer)
    assert any(f"{name} is missing" in note for note in notes)
    assert read(run)


def test_altered_and_foreign_snapshots_are_refused(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path)
    trainer.run.snapshots_folder.mkdir()
    snapshots = [trainer.run.snapshots_folder / f"step-{step:06d}.npz" for step in (2, 4)]
    for path in snapshots:
        path.write_bytes(path.name.encode())
    stop_after(trainer, 8)
    run = trainer.run
    names = [f"snapshots/{path.name}" for path in snapshots]
    run.check_logs(*names)
    run.check_logs("snapshots/step-000099.npz")  # taken after the checkpoint
    with pytest.raises(GlassError, match="not written by the training"):
        run.check_logs("snapshots/step-000003.npz")
    snapshots[0].write_bytes(snapshots[1].read_bytes())
    with pytest.raises(GlassError, match=r"step-000002\.npz was altered"):
        run.check_logs(*names)


def test_an_ordinary_resume_reports_no_damage(tmp_path: Path) -> None:
    stopped(tmp_path)
    trainer = resumed(tmp_path)
    notes: list[str] = []
    trainer.reporter.note = notes.append  # type: ignore[method-assign]
    train(trainer)
    assert not [note for note in notes if "metrics.jsonl" in note or "samples.txt" in note]


def test_logs_are_on_the_disk_before_the_checkpoint_that_follows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, int]] = []  # inode and size of each file forced to the disk
    before: dict[str, list[tuple[int, int]]] = {}  # for each checkpoint, the files on the disk when it appeared
    fsync = os.fsync
    replace = os.replace

    def noted_fsync(descriptor: int) -> None:
        fsync(descriptor)
        facts = os.fstat(descriptor)
        synced.append((facts.st_ino, facts.st_size))

    def noted_replace(source: Path, target: Path) -> None:
        before[Path(target).name] = list(synced)
        replace(source, target)

    trainer = small_trainer(tmp_path, train__steps=8, train__evaluate_every=4)
    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    train(trainer)
    run = trainer.run
    lines = run.metrics_file.read_bytes().splitlines(keepends=True)
    for step in (4, 8):
        written = sum(len(each) for each in lines if json.loads(each)["step"] <= step)
        assert (run.metrics_file.stat().st_ino, written) in before[step_name(step)]
    assert (run.samples_file.stat().st_ino, run.samples_file.stat().st_size) in before[step_name(8)]


def test_each_entry_is_written_with_one_call(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    text = "x" * 100_000
    sizes: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        watch_writes(patch, tmp_path / "samples.txt", sizes)
        journal.add_sample(4, text)
    assert sizes == [len(entry(4, text))]


def watch_writes(patch: pytest.MonkeyPatch, path: Path, sizes: list[int]) -> None:
    """Record the size of each write to `path` that reaches the operating system."""

    class Watched(io.FileIO):
        def write(self, data: object) -> int:
            written = super().write(data)  # type: ignore[arg-type]
            sizes.append(written)
            return written

    open_path = Path.open

    def watched(self: Path, mode: str = "r", *arguments: object, **named: object) -> object:
        if self == path:
            raw = Watched(str(self), mode.replace("b", "") + "b")
            if "b" in mode:
                return io.BufferedWriter(raw)
            return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8")
        return open_path(self, mode, *arguments, **named)  # type: ignore[call-overload]

    patch.setattr(Path, "open", watched)
