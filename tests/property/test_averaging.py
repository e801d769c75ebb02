"""`train.average` follows its definition, is saved as the weights of a run, and resumes bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.model.weights import load_tensors
from glassformer.training.loop import compute_gradients, train
from glassformer.training.trainer import Trainer
from tests.property.task_trainers import trainer_of
from tests.property.trainers import killed_after, last_weights, resumed, same

KINDS = ("ema", "last")


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def steps_of(trainer: Trainer, count: int) -> list[dict[str, torch.Tensor]]:
    """Take `count` steps, and return the weights after each."""
    found = []
    for step in range(count):
        trainer.stepper.update(compute_gradients(trainer.stepper, step), 1.0)
        found.append(weights(trainer))
    return found


def by_hand(steps: list[dict[str, torch.Tensor]], kind: str, decay: float) -> dict[str, torch.Tensor]:
    """Compute an average of either kind from its definition in float64."""
    average = {name: value.double() for name, value in steps[0].items()}
    for count, step in enumerate(steps[1:], start=2):
        share = 9 / (count + 8) if kind == "last" else 1 - min(decay, (1 + count) / (10 + count))
        average = {name: (1 - share) * value + share * step[name].double() for name, value in average.items()}
    return average


@pytest.mark.parametrize("decay", [0.3, 0.999])
@pytest.mark.parametrize("kind", KINDS)
def test_the_average_follows_its_definition(kind: str, decay: float, tmp_path: Path) -> None:
    trainer = trainer_of("lm", tmp_path, train__average=kind, train__average_decay=decay)
    steps = steps_of(trainer, 12)
    with trainer.stepper.averaged():
        found = weights(trainer)
    for name, wanted in by_hand(steps, kind, decay).items():
        torch.testing.assert_close(found[name].double(), wanted, rtol=1e-5, atol=1e-7)
    assert same(weights(trainer), steps[-1])  # afterwards the weights are restored bit for bit


def test_late_steps_have_the_largest_weight_in_last() -> None:
    """The mean of the numbers 0 to 99 is 49.5, but their average of kind "last" is about 90."""
    average = 0.0
    for count in range(1, 101):
        average += 9 / (count + 8) * (count - 1 - average)
    assert 88 < average < 91


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_saves_the_average_and_resumes_from_the_weights(kind: str, optimizer: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"train__optimizer": optimizer}
    plain = trainer_of("lm", tmp_path, "plain", **changes)
    train(plain)
    straight = trainer_of("lm", tmp_path, "straight", train__average=kind, **changes)
    train(straight)
    kept = last_weights(straight)
    assert not same(kept, last_weights(plain))
    last = load_tensors(straight.run.checkpoint("last") / "optimizer.safetensors")
    raw = sorted(float(value.double().sum()) for name, value in last.items() if name.endswith(".other"))
    wanted = sorted(float(value.double().sum()) for value in last_weights(plain).values())
    assert raw == wanted  # averaging does not change the training
    killed_after(trainer_of("lm", tmp_path, "broken", train__average=kind, **changes), 9)
    again = resumed(tmp_path, "broken")
    train(again)
    assert same(kept, last_weights(again))
    assert again.state.evaluations == straight.state.evaluations


@pytest.mark.parametrize("kind", KINDS)
def test_the_measured_loss_is_that_of_the_average(kind: str, tmp_path: Path) -> None:
    trainer = trainer_of("lm", tmp_path, train__average=kind)
    steps_of(trainer, 9)
    trainer.evaluate()
    with trainer.stepper.averaged():
        average = trainer._loss_of(trainer.model, trainer.task.held_out(None)).loss
    own = trainer._loss_of(trainer.model, trainer.task.held_out(None)).loss
    assert trainer.state.evaluations[-1][1] == pytest.approx(average, abs=1e-9)
    assert abs(own - average) > 1e-6


def test_frozen_parameters_have_no_average(tmp_path: Path) -> None:
    trainer = trainer_of("lm", tmp_path, train__average="ema", train__freeze=["layers.0"])
    steps_of(trainer, 2)
    average = trainer.stepper.average
    assert average is not None
    averaged = {id(parameter) for group in average.param_groups for parameter in group["params"]}
    frozen = [p for name, p in trainer.model.named_parameters() if name.startswith("stack.blocks.0.")]
    assert frozen
    assert not averaged & {id(parameter) for parameter in frozen}
