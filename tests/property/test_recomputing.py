"""`train.checkpoint_blocks`: bit-identical gradients, dropout included, with less memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from glassformer.base.config import Config
from glassformer.text.batches import Batch
from glassformer.training.loop import compute_gradients, train
from glassformer.training.trainer import Trainer
from tests.property.task_trainers import TASKS, trainer_of
from tests.property.trainers import killed_after, last_weights, resumed, same

DROPOUT = {"model__dropout_attention": 0.2, "model__dropout_embedding": 0.1}


def gradients(trainer: Trainer) -> dict[str, torch.Tensor]:
    compute_gradients(trainer.stepper, 3)
    return {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("task", TASKS)
def test_gradients_are_equal_bit_for_bit(task: str, precision: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {**DROPOUT, "train__precision": precision, "train__micro_batch": 2}
    plain = gradients(trainer_of(task, tmp_path, "plain", **options))
    again = gradients(trainer_of(task, tmp_path, "again", train__checkpoint_blocks=True, **options))
    assert plain.keys() == again.keys()
    assert same(plain, again)
    assert any(bool(gradient.any()) for gradient in plain.values())


def kept_bytes(trainer: Trainer) -> int:
    """Return the number of bytes that the forward pass of a step saves for the backward pass, excluding weights."""
    weights = {parameter.data_ptr() for parameter in trainer.model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = trainer.stepper.loss(Batch.from_rows(trainer.task.rows(0)))
    loss.backward()  # the tensors are kept alive until here, so that no address is reused
    return sum(kept.values())


@pytest.mark.parametrize("task", ["lm", "masked", "translate"])
def test_fewer_bytes_are_saved_between_the_passes(task: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"model__layers": 6, "train__batch": 20}
    plain = kept_bytes(trainer_of(task, tmp_path, "plain", **options))
    again = kept_bytes(trainer_of(task, tmp_path, "again", train__checkpoint_blocks=True, **options))
    assert again < 0.5 * plain


def test_a_run_resumes_with_and_without_checkpointing_to_the_same_weights(tmp_path: Path) -> None:
    straight = trainer_of("lm", tmp_path, "straight", **DROPOUT)
    train(straight)
    killed_after(trainer_of("lm", tmp_path, "broken", train__checkpoint_blocks=True, **DROPOUT), 9)
    again = resumed(tmp_path, "broken", **{"train.checkpoint_blocks": "false"})
    assert again.state.step == 8
    train(again)
    assert same(last_weights(straight), last_weights(again))


def test_evaluation_and_generation_are_unchanged(tmp_path: Path) -> None:
    plain = trainer_of("lm", tmp_path, "plain")
    again = trainer_of("lm", tmp_path, "again", train__checkpoint_blocks=True)
    for trainer in (plain, again):
        trainer.evaluate()
    assert plain.state.evaluations == again.state.evaluations
    settings = Config().sample.replace(tokens=5)
    assert plain.task.sample(plain.model.eval(), settings) == again.task.sample(again.model.eval(), settings)
