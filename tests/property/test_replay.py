"""Snapshots do not change training, can be recomputed from the weights, and leave no trace after a kill."""

from __future__ import annotations

import itertools
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glassformer.base.errors import GlassError
from glassformer.inspection.recording import record
from glassformer.inspection.replay import History, Snapshot, read_history, read_snapshot
from glassformer.inspection.replay.head_arrays import mapped_texts
from glassformer.inspection.replay.history import first_in_a_row
from glassformer.inspection.replay.of_run import Recorder, SnapshotTaker
from glassformer.inspection.replay.schedule import MOST, snapshot_steps, thinned
from glassformer.inspection.replay.snapshot import snapshot_files, write_snapshot
from glassformer.model.build import build_model
from glassformer.model.weights import load_weights
from glassformer.runs.run_text import find_or_encode_text
from glassformer.training.loop import train
from glassformer.training.trainer import Trainer
from tests.property.task_trainers import TASKS, trainer_of
from tests.property.trainers import killed_after, last_weights, resumed, same, small_trainer, stop_after


def watched(trainer: Trainer) -> Trainer:
    """Attach the recorder of snapshots, as `glass train` does."""
    trainer.observer = Recorder(trainer)
    return trainer


def camera_of(trainer: Trainer) -> SnapshotTaker:
    """Return a snapshot taker that reads the text of the run again from its folder."""
    return SnapshotTaker(
        trainer.config, trainer.task, find_or_encode_text(trainer.run, trainer.config, print), trainer.model
    )


@given(count=st.integers(2, 64), end=st.integers(1, 200_000))
def test_a_schedule_includes_both_ends_and_never_grows_denser(count: int, end: int) -> None:
    steps = snapshot_steps(count, end)
    assert (steps[0], steps[-1], len(steps)) == (0, end, min(count, end + 1))
    assert steps == sorted(set(steps))
    gaps = np.diff(steps)
    assert (gaps[1:] - gaps[:-1] >= -1).all()  # except for rounding


def test_a_run_without_a_known_end_leaves_room_for_its_last_step() -> None:
    assert [len(snapshot_steps(count, None)) for count in (0, 1, 2, 64)] == [0, 0, 1, 63]
    assert len([step for step in snapshot_steps(64, None) if step <= 2000]) > 30


@given(steps=st.sets(st.integers(0, 100_000), min_size=3, max_size=40), most=st.integers(2, 20))
def test_thinned_snapshots_include_both_ends_and_do_not_depend_on_history(steps: set[int], most: int) -> None:
    kept = thinned(steps, most)
    assert len(kept) == min(most, len(steps))
    assert (kept[0], kept[-1]) == (min(steps), max(steps))
    assert set(kept) <= steps
    assert kept == thinned(kept, most) == thinned(thinned(steps, most + 3), most)


@pytest.mark.thorough
def test_a_run_resumed_repeatedly_keeps_64_evenly_spaced_snapshots(tmp_path: Path) -> None:
    trainer = watched(small_trainer(tmp_path, train__snapshots=64))
    assert trainer.observer is not None
    folder = trainer.run.snapshots_folder
    trainer.observer.observe(trainer.model, 0, last=False)
    one = read_snapshot(snapshot_files(folder)[0])
    for step in snapshot_steps(64, 1000):
        write_snapshot(replace(one, step=step), folder)
    for end in range(1500, 10_000, 500):  # as with --resume --steps
        trainer.observer.observe(trainer.model, end, last=True)
    steps = list(snapshot_files(folder))
    assert (len(steps), steps[0], steps[-1]) == (MOST, 0, 9500)
    ratios = [after / before for before, after in itertools.pairwise(steps[20:])]
    assert max(ratios) <= 1.5  # from 1,000 to 1,500, without a snapshot in between
    assert not list(folder.glob("*.partial"))


@pytest.mark.thorough
@pytest.mark.parametrize("task", TASKS)
def test_recording_changes_no_bit_and_the_last_snapshot_has_the_last_weights(task: str, tmp_path: Path) -> None:
    plain = trainer_of(task, tmp_path, "plain")
    filmed = trainer_of(task, tmp_path, "filmed", train__snapshots=4)
    train(plain)
    train(watched(filmed))
    assert same(last_weights(plain), last_weights(filmed))
    files = snapshot_files(filmed.run.snapshots_folder)
    assert list(files) == snapshot_steps(4, 16)
    again = resumed(tmp_path, "filmed")
    fresh = build_like(again)
    load_weights(fresh, again.run.checkpoint("last") / "model.safetensors")
    assert_same(read_snapshot(files[16]), camera_of(again).snapshot(fresh, 16))
    first = read_snapshot(files[0])
    last = read_snapshot(files[16])
    assert not np.array_equal(first.scores, last.scores, equal_nan=True)
    assert any((first.maps[key] != last.maps[key]).any() for key in first.maps)
    assert last.loss != first.loss


def build_like(trainer: Trainer) -> Any:
    """Return a model of the same shape with other weights."""
    source = getattr(trainer.model, "source_embedding", None)
    classes = None if trainer.config.train.task != "classify" else trainer.model.head.out_features
    own = None if source is None else source.tokens.num_embeddings
    return build_model(trainer.config.model, trainer.model.vocab_size, 99, own, classes)


def assert_same(found: Snapshot, wanted: Snapshot) -> None:
    assert (found.step, found.labels, found.prompt, found.sample) == (
        wanted.step,
        wanted.labels,
        wanted.prompt,
        wanted.sample,
    )
    assert (found.reached == wanted.reached).all()
    for name in ("scores", "statistics", "losses", "repeated"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=0, atol=1e-6)
    assert found.maps.keys() == wanted.maps.keys()
    for key, value in found.maps.items():
        assert np.abs(value.astype(int) - wanted.maps[key]).max() <= 1


def test_a_snapshot_has_no_side_effects_and_agrees_with_the_model(tmp_path: Path) -> None:
    trainer = trainer_of("lm", tmp_path)
    camera = camera_of(trainer)
    model = trainer.model.train()
    model.stack.blocks[0].feedforward.eval()
    modes = [part.training for part in model.modules()]
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    taken = camera.snapshot(model, 0)
    assert modes == [part.training for part in model.modules()]
    assert torch.equal(states[0], torch.get_rng_state())
    assert (states[1] == np.random.get_state()[1]).all()
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    ids = torch.from_numpy(camera.texts[1].source)[None]
    pattern = record(model, ids)["dec.1.self.1.pattern"][0]  # (T, S)
    assert np.abs(taken.map_of(1, "dec.1.self.1") / 255 - pattern.numpy()).max() <= 0.5 / 255 + 1e-6


@pytest.mark.thorough
def test_after_a_kill_and_resume_every_snapshot_exists_once_unchanged(tmp_path: Path) -> None:
    straight = watched(small_trainer(tmp_path, "straight", train__snapshots=20, train__save_every=5))
    train(straight)
    killed = watched(small_trainer(tmp_path, "killed", train__snapshots=20, train__save_every=5))
    killed_after(killed, 14)
    files = snapshot_files(killed.run.snapshots_folder)
    assert max(files) == 14
    left = killed.run.snapshots_folder / ".step-000015.npz.0123ab_d.partial"
    left.mkdir()
    (left / "step-000015.npz").write_bytes(b"half")
    again = watched(resumed(tmp_path, "killed"))
    assert again.state.step == 12
    assert again.observer is not None
    again.observer.forget_after(13)
    assert max(snapshot_files(killed.run.snapshots_folder)) == 13
    early = {step: path.stat().st_mtime_ns for step, path in files.items() if step <= 12}
    train(again)
    assert {path.name: path.read_bytes() for path in again.run.snapshots_folder.iterdir()} == {
        path.name: path.read_bytes() for path in straight.run.snapshots_folder.iterdir()
    }
    assert early == {step: path.stat().st_mtime_ns for step, path in files.items() if step <= 12}
    assert list(snapshot_files(again.run.snapshots_folder)) == snapshot_steps(20, 24)


def test_a_checkpoint_is_saved_only_after_its_snapshot(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path)

    class Killed:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def observe(self, model: Any, step: int, last: bool) -> None:
            self.seen.append(step)
            if step == 12:
                raise KeyboardInterrupt

        def forget_after(self, step: int) -> None:
            self.seen.append(-step)

    trainer.observer = Killed()
    with pytest.raises(KeyboardInterrupt):
        train(trainer)
    assert trainer.observer.seen == [0, *range(13)]
    assert resumed(tmp_path).state.step == 8


def test_a_run_that_ends_early_has_a_last_snapshot_but_a_stopped_one_has_none(tmp_path: Path) -> None:
    early = watched(small_trainer(tmp_path, "early", train__snapshots=4, train__until_loss=50.0))
    train(early)
    assert list(snapshot_files(early.run.snapshots_folder)) == [0, 1, 5, 6]
    stopped = watched(small_trainer(tmp_path, "stopped", train__snapshots=4))
    stop_after(stopped, 8)
    assert list(snapshot_files(stopped.run.snapshots_folder)) == [0, 1, 5]


@pytest.mark.thorough
@pytest.mark.parametrize(("task", "layers"), [("lm", 6), ("translate", 6), ("lm", 24)])
def test_64_snapshots_fit_into_30_mb_even_if_nothing_can_be_compressed(task: str, layers: int, tmp_path: Path) -> None:
    shape = {"model__layers": layers, "model__heads": 8, "model__width": 16, "model__context": 131}
    trainer = trainer_of(task, tmp_path, **shape)
    camera = camera_of(trainer)
    assert {text.tokens.probe for text in camera.texts} == {"text", "repeated"}
    if (task, layers) == ("lm", 6):
        assert [len(text.source) for text in camera.texts if text.tokens.probe == "repeated"] == [48]
    taken = camera.snapshot(trainer.model, 3)
    noise = np.random.default_rng(0)
    maps = {key: noise.integers(256, size=value.shape, dtype=np.uint8) for key, value in taken.maps.items()}
    write_snapshot(replace(taken, maps=maps), tmp_path)
    (path,) = snapshot_files(tmp_path).values()
    assert 64 * path.stat().st_size < 30e6
    assert_same(read_snapshot(path), replace(taken, maps=maps))


def history_of(trainer: Trainer, scores: list[list[float]]) -> History:
    """Return a history with these scores (snapshots, heads) in the role "previous"."""
    taken = camera_of(trainer).snapshot(trainer.model, 0)
    column = taken.labels.roles.index("previous")
    snapshots = []
    for number, row in enumerate(scores):
        changed = taken.scores.copy()
        reached = np.zeros_like(taken.reached)
        changed[:, column] = row
        reached[:, column] = np.array(row) >= 0.4
        snapshots.append(replace(taken, step=10 * number, scores=changed, reached=reached))
    return History(tuple(snapshots))


def test_a_role_begins_at_the_first_of_three_snapshots_in_a_row(tmp_path: Path) -> None:
    curves = [
        [0.1, 0.5, 0.5, 0.1, 0.6, 0.7, 0.8],  # not at the second, because it is lost again
        [0.5, 0.5, 0.3, 0.5, 0.5, 0.3, 0.9],  # never three
        [0.4, 0.5, 0.6, 0.1, 0.1, 0.1, 0.1],  # from the beginning, and lost
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.9, 0.9],  # two at the end
    ]
    history = history_of(trainer_of("lm", tmp_path), np.transpose(curves).tolist())
    heads = ["dec.0.self.0", "dec.0.self.1", "dec.1.self.0", "dec.1.self.1"]
    assert list(history.labels.heads) == heads
    born = [(birth.head, birth.role, birth.step) for birth in history.births()]
    assert born == [(heads[2], "previous", 0), (heads[0], "previous", 40)]
    assert history.births("previous", heads[0])[0].score == pytest.approx(0.6)
    assert history.births("previous", heads[2])[0].last_score == pytest.approx(0.1)
    assert history.births("induction") == history.births(None, heads[1]) == []
    assert history.chosen(None, "previous") == (heads[1], "previous")  # the first one of a tie
    assert history.facts("previous")["scores"][heads[0]]["previous"] == pytest.approx(curves[0])
    assert first_in_a_row(np.array([True, True])) is None


def test_a_damaged_snapshot_is_refused_and_nothing_is_unpickled(tmp_path: Path) -> None:
    trainer = watched(small_trainer(tmp_path, train__snapshots=3, train__steps=2))
    train(trainer)
    path = snapshot_files(trainer.run.snapshots_folder)[1]
    whole = path.read_bytes()
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    path.write_bytes(whole[:-1])
    with pytest.raises(GlassError, match=r"step-000001\.npz was altered"):
        read_history(trainer.run)
    shutil.rmtree(trainer.run.checkpoints_folder)  # whose hashes would refuse each of the following files
    for change in ({"scores": np.array([{"a": 1}], dtype=object)}, {"reached": np.zeros((1, 1), dtype=np.bool_)}):
        np.savez(path, **{**arrays, **change})  # type: ignore[arg-type]
        with pytest.raises(GlassError, match=r"step-000001\.npz is damaged"):
            read_history(trainer.run)
    for broken in (whole[: len(whole) // 2], b"", b"PK", whole[:400] + b"\0" * 90 + whole[490:]):
        path.write_bytes(broken)
        with pytest.raises(GlassError, match=r"step-000001\.npz is damaged"):
            read_history(trainer.run)
    np.savez_compressed(path, **{**arrays, "losses": np.zeros((1, 5_000_000), np.float32)})
    assert path.stat().st_size < 100_000
    with pytest.raises(GlassError, match=r"its arrays have 20,[\d,]+ bytes, more than 16,000,000"):
        read_history(trainer.run)
    np.savez(path, **{name: value for name, value in arrays.items() if name != "losses"})  # type: ignore[arg-type]
    with zipfile.ZipFile(path, "a") as file, file.open("losses.npy", "w") as entry:
        np.lib.format.write_array_header_1_0(entry, {"descr": "<f4", "fortran_order": False, "shape": (10**13,)})
    with pytest.raises(GlassError, match=r"step-000001\.npz is damaged"):
        read_history(trainer.run)
    write_snapshot(
        replace(read_snapshot(snapshot_files(trainer.run.snapshots_folder)[0]), step=1), trainer.run.snapshots_folder
    )
    assert read_history(trainer.run).steps == [0, 1, 2]
    other = camera_of(small_trainer(tmp_path, "other", model__heads=1, train__steps=2))
    assert mapped_texts(trainer.model, other.probes, trainer.task.tokenizer, trainer.task.tokenizer)
    write_snapshot(
        other.snapshot(small_trainer(tmp_path, "more", model__heads=1).model, 1), trainer.run.snapshots_folder
    )
    with pytest.raises(GlassError, match="has other heads, roles, statistics or texts"):
        read_history(trainer.run)
