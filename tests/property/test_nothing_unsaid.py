"""Nothing is lost without a word in the Python interface: functions as names, own modules, copies, own losses."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import glassformer as gf
from glassformer.base.config import Config, ModelConfig
from glassformer.inspection.attribution.case import Output
from glassformer.inspection.attribution.logits import split_neurons
from glassformer.inspection.explain.subject import subject_of
from glassformer.inspection.explain.walk import make_walk
from glassformer.inspection.patching import patch
from glassformer.inspection.pruning.l0 import L0
from glassformer.inspection.pruning.prune import PruningRequest, prune_run
from glassformer.inspection.recording import record
from glassformer.inspection.trace import trace
from glassformer.model.build import build_model
from glassformer.runs.opening import OpenedRun
from glassformer.runs.parent import Parent
from glassformer.tasks.losses import TrainingLoss
from glassformer.training.loop import train
from glassformer.training.reporting import OnlyWarnings
from glassformer.training.setup import new_training
from tests.property.trainers import resumed, small_trainer, text_file

IDS = torch.arange(1, 8)[None]
TEXT = "still water"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> gf.Transformer:
    folder = tmp_path_factory.mktemp("runs")
    train(small_trainer(folder, train__steps=2))
    return gf.load(folder / "run")


def logits_of(model: gf.Transformer) -> Tensor:
    return model.logits(TEXT).clone()


@pytest.mark.parametrize("keep", [lambda name: True, len, 3, [len], ["resid", 2], [None], object()])
def test_record_takes_names_only(opened: gf.Transformer, keep: Any) -> None:
    with pytest.raises(gf.GlassError, match=r"keep .*\n\w"):
        opened.record(TEXT, keep)


@pytest.mark.parametrize("part", [len, ["dec.0.self", len], 3, None])
def test_ablate_and_patch_take_names_only(opened: gf.Transformer, part: Any) -> None:
    with pytest.raises(gf.GlassError, match=r"\n\w"):
        opened.ablate(TEXT, part)
    with pytest.raises(gf.GlassError, match=r"\n\w"):
        opened.patch(TEXT, part, other=TEXT)


@pytest.mark.parametrize("kind", [torch.zeros_like, torch.zeros(3), 0.0, None])
def test_patch_takes_patches_only(opened: gf.Transformer, kind: Any) -> None:
    with (
        pytest.raises(gf.GlassError, match=r"was given for dec.0.self, which is not a patch\nGive"),
        patch(opened.model, {"dec.0.self": kind}),
    ):
        pass


class OwnFeedForward(nn.Module):
    def __init__(self, last: str, width: int = 12) -> None:
        super().__init__()
        self.first = nn.Linear(width, 20)
        setattr(self, last, nn.Linear(20, width))
        self.last = last

    def forward(self, stream: Tensor) -> Tensor:
        return getattr(self, self.last)(self.first(stream).sin())


@pytest.mark.parametrize("last", ["down", "second"])
def test_the_hidden_activation_of_an_own_module_is_recorded_or_the_reason_is_given(last: str) -> None:
    model = build_model(ModelConfig(layers=2, heads=3, width=12, context=16), 17).eval()
    model.stack.blocks[1].feedforward = OwnFeedForward(last)  # type: ignore[union-attr]
    assert record(model, IDS, keep=("feedforward",))["dec.1.feedforward"].shape == (1, 7, 12)
    if last == "down":
        hidden = record(model, IDS, keep=("hidden",))["dec.1.feedforward.hidden"]
        normed = model.stack.blocks[1].feedforward_norm  # type: ignore[union-attr]
        assert hidden.shape == (1, 7, 20)
        assert normed is not None
    else:
        with pytest.raises(gf.GlassError, match=r"dec\.1\.feedforward: this module is not a FeedForward"):
            record(model, IDS, keep=("hidden",))
        assert list(record(model, IDS, keep=("dec.0.feedforward.hidden",))) == ["dec.0.feedforward.hidden"]


@pytest.mark.parametrize("order", ["pre", "post", "output"])
def test_the_trace_of_an_own_module_has_its_input_and_output_only(order: Any) -> None:
    model = build_model(ModelConfig(layers=2, heads=3, width=12, context=16, norm_order=order), 17).eval()
    own = OwnFeedForward("down")
    model.stack.blocks[0].feedforward = own  # type: ignore[union-attr]
    traced = trace(model, IDS)
    block = traced.stack.blocks[0]
    torch.testing.assert_close(traced.logits, model(IDS).detach())
    torch.testing.assert_close(own(block.feedforward.input).detach(), block.feedforward.output)
    assert torch.equal(block.feedforward.input, block.feedforward_norm if order == "pre" else block.after_attention)
    assert [block.feedforward.up, block.feedforward.gate, block.feedforward.activated] == [None] * 3
    assert block.feedforward.hidden is None
    assert traced.stack.blocks[1].feedforward.hidden is not None


def test_a_model_with_an_own_module_is_inspected_as_far_as_it_is_known(opened: gf.Transformer) -> None:
    model = copy.deepcopy(opened)
    model.model.stack.blocks[1].feedforward = OwnFeedForward("second", 14)  # type: ignore[union-attr]
    receipt = model.receipt(TEXT)
    assert receipt.total == pytest.approx(receipt.logit, abs=1e-4)
    assert "layer 1 feed-forward" in str(receipt)
    assert len(model.heads(TEXT).heads) == 4
    subject = subject_of(model.text_model, TEXT)
    with pytest.raises(gf.GlassError, match=r"layer 1 has a feed-forward layer of the type OwnFeedForward.*\n\w"):
        make_walk(subject)
    assert make_walk(subject, layers=[0]).sections
    output = Output(6, (6,), 3, known=False)
    assert split_neurons(model.model, trace(model.model, IDS), output, 0).values.shape == (22,)
    with pytest.raises(gf.GlassError, match=r"layer 1 has a feed-forward layer of the type OwnFeedForward.*\n\w"):
        split_neurons(model.model, trace(model.model, IDS), output, 1)


def test_a_model_can_be_pickled_and_copied(opened: gf.Transformer) -> None:
    assert opened.run.data is not None  # an opened text is not copied
    for copied in (pickle.loads(pickle.dumps(opened)), copy.deepcopy(opened), copy.copy(opened)):
        assert torch.equal(logits_of(copied), logits_of(opened))
        assert copied.run.held_out(50).rows
    assert len(pickle.dumps(opened)) < 2 * sum(4 * each.numel() for each in opened.model.parameters()) + 200_000


@pytest.mark.thorough
def test_a_model_goes_to_another_process(opened: gf.Transformer) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert torch.equal(pool.submit(logits_of, opened).result(), logits_of(opened))


class DoubledLoss(nn.Module):
    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, batch: Any, targets: int = 1) -> Tensor:
        return 2 * self.loss(batch, targets)


def test_a_run_says_that_it_was_trained_with_another_loss(tmp_path: Path) -> None:
    name = f"{__name__}.DoubledLoss"
    trainer = small_trainer(tmp_path, train__steps=4)
    trainer.stepper.loss = DoubledLoss(TrainingLoss(trainer.model))
    train(trainer)
    assert json.loads((tmp_path / "run/manifest.json").read_text())["other_loss"] == name
    with pytest.warns(UserWarning, match=f"trained with another loss: {name}"):
        model = gf.load(tmp_path / "run")
    assert name in repr(model)
    assert name in repr(model.run)
    with pytest.raises(gf.GlassError, match=r"was trained with .*DoubledLoss, not with the loss of its task\nResume"):
        train(resumed(tmp_path, **{"train.steps": "6"}))
    again = resumed(tmp_path, **{"train.steps": "6"})
    again.stepper.loss = DoubledLoss(TrainingLoss(again.model))
    assert train(again) is not None


def test_an_ordinary_run_says_nothing_of_its_loss(tmp_path: Path) -> None:
    train(small_trainer(tmp_path, train__steps=2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened = OpenedRun.load(tmp_path / "run")
    assert "another loss" not in repr(opened)
    trainer = resumed(tmp_path, **{"train.steps": "4"})
    trainer.stepper.loss = DoubledLoss(TrainingLoss(trainer.model))
    with pytest.raises(gf.GlassError, match="was trained with the loss of its task, not with"):
        train(trainer)


@pytest.fixture
def other_loss(tmp_path: Path) -> Path:
    """Return a run that was trained with another loss."""
    trainer = small_trainer(tmp_path, train__steps=4)
    trainer.stepper.loss = DoubledLoss(TrainingLoss(trainer.model))
    train(trainer)
    return trainer.run.folder


def test_a_pruned_run_keeps_the_name_of_another_loss(other_loss: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"run was trained with another loss: .*DoubledLoss"):
        prune_run(PruningRequest(other_loss, tmp_path / "pruned", heads=1, tokens=50))
    with pytest.warns(UserWarning, match=r"pruned was trained with another loss: .*DoubledLoss"):
        gf.load(tmp_path / "pruned")
    with pytest.raises(gf.GlassError, match=r"was trained with .*DoubledLoss, not with the loss of its task\nResume"):
        train(resumed(tmp_path, "pruned", **{"train.steps": "6"}))


@pytest.mark.filterwarnings("ignore:.*another loss")
def test_gates_are_not_trained_after_another_loss(other_loss: Path, tmp_path: Path) -> None:
    request = PruningRequest(other_loss, tmp_path / "gates", l0=L0(0.01, steps=2), tokens=50)
    with pytest.raises(gf.GlassError, match=r"was trained with another loss: .*DoubledLoss.*\nLeave out --l0"):
        prune_run(request)
    assert not (tmp_path / "gates").exists()


def test_a_child_says_that_its_parent_was_trained_with_another_loss(other_loss: Path, tmp_path: Path) -> None:
    parent = Parent.open(other_loss)
    sections = parent.settings("lm") | {"data": {"source": str(text_file(tmp_path)), "document": "line"}}
    with (
        pytest.warns(UserWarning, match=r"run was trained with another loss: .*DoubledLoss"),
        new_training(Config.from_dict(sections), tmp_path / "child", OnlyWarnings(), parent=parent) as child,
    ):
        assert child.run.other_loss() is None
