"""`OpenedRun`: its loss and its text model fit the run, its text is opened lazily, and its repr is useful."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from glassformer.base.errors import GlassError
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import MaskFiller, TextClassifier, TextModel, Translator
from glassformer.training.loop import train
from glassformer.training.validation import loss_on_rows
from tests.parity.written_runs import make_run
from tests.property.trainers import small_trainer


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that is trained on proverbs."""
    trainer = small_trainer(tmp_path_factory.mktemp("opened"))
    train(trainer)
    return trainer.run.folder


def test_its_repr_has_family_size_task_step_and_loss(run: Path) -> None:
    opened = OpenedRun.load(run, device="cpu")
    size = sum(parameter.numel() for parameter in opened.model.parameters())
    assert opened.loss is not None
    assert repr(opened) == (
        f"OpenedRun({str(run)!r}: decoder, {size:,} parameters, task lm, step {opened.step}, loss {opened.loss:.4f})"
    )


@pytest.mark.parametrize("which", ["best", "last"])
def test_the_loss_is_that_of_the_checkpoint_on_the_held_out_rows(run: Path, which: str) -> None:
    opened = OpenedRun.load(run, which, device="cpu")  # type: ignore[arg-type]
    assert opened.checkpoint.name == (run / which).read_text(encoding="utf-8").split()[0] == f"step-{opened.step:06d}"
    assert loss_on_rows(opened.model, opened.held_out()).loss == pytest.approx(opened.loss, abs=1e-6)


def test_held_out_rows_have_the_requested_precision(run: Path) -> None:
    opened = OpenedRun.load(run, device="cpu")
    every = opened.held_out()
    few = opened.held_out(30, "bf16")
    assert opened.task is opened.task
    assert len(every.rows) == len(opened.task.held_out(None)) > len(few.rows)
    assert (every.device, every.dtype, few.dtype) == (torch.device("cpu"), torch.float32, torch.bfloat16)
    seen = [row.ids.tolist() for _, group in every.groups(opened.model) for row in group]
    assert seen == [row.ids.tolist() for row in every.rows]


def test_a_run_without_its_text_opens_and_says_so_only_when_asked(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "alone")
    hidden = run.parent / ".tokens"
    text = run.parent / "proverbs.txt"
    hidden.rename(tmp_path / "tokens")
    text.rename(tmp_path / "elsewhere.txt")
    try:
        opened = OpenedRun.load(tmp_path / "alone", device="cpu")
        assert opened.writer.generate(["the "], opened.config.sample)[0].text
        with pytest.raises(GlassError, match="was not found"):
            opened.held_out()
    finally:
        (tmp_path / "tokens").rename(hidden)
        (tmp_path / "elsewhere.txt").rename(text)
    assert opened.held_out(30).rows


def test_a_note_reports_which_text_replaces_a_moved_one(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run.parent, tmp_path / "moved")
    hidden = run.parent / ".tokens"
    hidden.rename(run.parent / "away")
    notes: list[str] = []
    try:
        opened = OpenedRun.load(tmp_path / "moved" / run.name, device="cpu", note=notes.append)
        assert not notes
        assert opened.data.folder.parent == tmp_path / "moved" / ".tokens"
    finally:
        (run.parent / "away").rename(hidden)
    assert len(notes) == 1
    assert "is gone: using" in notes[0]


@pytest.mark.parametrize(
    ("task", "kind"),
    [("lm", TextModel), ("masked", MaskFiller), ("classify", TextClassifier), ("translate", Translator)],
)
def test_each_task_has_its_text_model(task: str, kind: type, tmp_path: Path) -> None:
    opened = OpenedRun.load(make_run(tmp_path / "run", task), device="cpu")
    assert type(opened.text_model) is kind
    assert opened.text_model is opened.text_model
    assert opened.loss is None
    assert "loss" not in repr(opened)
    if issubclass(kind, TextModel | Translator):
        assert opened.writer is opened.text_model
    else:
        with pytest.raises(GlassError, match="this run was trained to"):
            _ = opened.writer
