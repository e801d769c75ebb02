"""A run records its precisions when it is created and keeps them when it is resumed, on any machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from glassformer.model.precision import Speeds, cache_speeds
from glassformer.training.loop import train
from glassformer.training.reporting import Silent
from glassformer.training.setup import new_training, resume_training
from glassformer.training.trainer import Trainer
from tests.products import BfloatProducts
from tests.property.trainers import small_config, small_trainer

SLOW = Speeds(100.0, 1.0)
FAST = Speeds(100.0, 500.0)
MUON: dict[str, Any] = {"train__optimizer": "muon", "train__steps": 8, "train__device": "cpu"}


class Listener(Silent):
    """A recorder of notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Record a note."""
        self.notes.append(text)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an empty folder for caches."""
    monkeypatch.setenv("GLASS_CACHE", str(tmp_path / "cache"))


def precisions(trainer: Trainer) -> tuple[str, str]:
    """Return the precisions recorded in the run folder."""
    train = trainer.run.config().train
    return train.precision, train.muon_precision


def begun(folder: Path, speeds: Speeds) -> Trainer:
    """Train a run of 8 steps on a device with the given measured speeds, and return its trainer."""
    cache_speeds(speeds)
    trainer = small_trainer(folder, **MUON)
    train(trainer)
    return trainer


@pytest.mark.parametrize(("speeds", "name"), [(SLOW, "fp32"), (FAST, "bf16")])
def test_a_new_run_records_the_chosen_precision_and_the_reason(speeds: Speeds, name: str, tmp_path: Path) -> None:
    cache_speeds(speeds)
    listener = Listener()
    with new_training(small_config(tmp_path, **MUON), tmp_path / "run", listener) as opened:
        trainer = opened
    assert precisions(trainer) == (name, name)
    assert '"auto"' not in "".join(line for line in config_lines(trainer) if "precision" in line)
    assert [note for note in listener.notes if note.startswith("precision ")] == [
        f"precision {'bfloat16' if name == 'bf16' else 'float32'} (Muon: {name}): bfloat16 is "
        f"{speeds.ratio:.2g} times as fast as float32 here"
    ]
    with BfloatProducts() as products:
        train(trainer)
    assert (products.bfloat16 > 0) == (name == "bf16")


def config_lines(trainer: Trainer) -> list[str]:
    """Return the lines of config.toml."""
    return (trainer.run.folder / "config.toml").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(("speeds", "elsewhere"), [(FAST, SLOW), (SLOW, FAST)])
def test_a_resume_keeps_the_recorded_precision_and_reports_slowness(
    speeds: Speeds, elsewhere: Speeds, tmp_path: Path
) -> None:
    first = begun(tmp_path, speeds)
    before = precisions(first)
    cache_speeds(elsewhere)
    listener = Listener()
    with resume_training(tmp_path / "run", {"train.steps": "12"}, listener) as opened:
        trainer = opened
    assert precisions(trainer) == before
    other = "fp32" if before[0] == "bf16" else "bf16"
    for name in ("precision", "muon_precision"):
        (said,) = [
            note for note in listener.notes if note.startswith(f"the recorded train.{name} = {before[0]} is slow here")
        ]
        assert f"--set train.{name}={other}" in said
    with BfloatProducts() as products:
        train(trainer)
    assert (products.bfloat16 > 0) == (before[0] == "bf16")
    cache_speeds(speeds)
    quiet = Listener()
    with resume_training(tmp_path / "run", {}, quiet):
        pass
    assert not [note for note in quiet.notes if "precision" in note]


def test_a_resume_can_change_the_precision(tmp_path: Path) -> None:
    begun(tmp_path, FAST)
    listener = Listener()
    cache_speeds(SLOW)
    changes = {"train.steps": "12", "train.precision": "fp32", "train.muon_precision": "auto"}
    with resume_training(tmp_path / "run", changes, listener) as opened:
        trainer = opened
    assert precisions(trainer) == ("fp32", "fp32")
    for name in ("precision", "muon_precision"):
        assert any(note.startswith(f"train.{name} changed from bf16 to fp32") for note in listener.notes)
    with BfloatProducts() as products:
        train(trainer)
    assert products.bfloat16 == 0
    assert products.others > 0
