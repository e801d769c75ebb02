"""Out of memory in a step: smaller micro-batches, the same gradients, one message, or a two-line error."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.runs.run_text import prepare_run_text
from glassformer.tasks import losses
from glassformer.tasks.losses import TrainingLoss
from glassformer.tasks.make import make_task
from glassformer.text.batches import Batch
from glassformer.training.loop import compute_gradients, train
from glassformer.training.out_of_memory import OomRetries
from glassformer.training.parallel.processes import OneProcess
from glassformer.training.reporting import Silent
from glassformer.training.setup import fresh_model, new_training
from glassformer.training.stepping import Stepper
from tests.property.trainers import small_config

ERRORS = {
    "python": MemoryError(),
    "cpu": RuntimeError("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory"),
    "cuda": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
}
ROWS = 13


class Listener(Silent):
    """A recorder of messages."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        """Record one message."""
        self.said.append(text)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes forward passes of more than `most` rows fail, and returns a list of all sizes."""
    own = TrainingLoss.forward
    tried = []

    def plant(most: int, error: Exception) -> list[int]:
        def forward(loss: TrainingLoss, batch: Batch, targets: int) -> Tensor:
            tried.append(len(batch.inputs))
            found = own(loss, batch, targets)
            if len(batch.inputs) > most:
                raise error
            return found

        monkeypatch.setattr(TrainingLoss, "forward", forward)
        return tried

    return plant


def stepper_of(folder: Path, **changes: Any) -> Stepper:
    config = small_config(folder, train__batch=ROWS, model__dropout_residual=0.0, **changes)
    data = prepare_run_text(config, folder / "cache", lambda text: None)
    return Stepper(fresh_model(config, data), make_task(config, data), config)


def gradients(stepper: Stepper, step: int) -> tuple[float, list[Tensor]]:
    loss = compute_gradients(stepper, step).loss
    return loss, [parameter.grad.clone() for parameter in stepper.model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize(
    ("most", "sizes"), [(6, [13, 6, 6, 1]), (3, [13, 6, 3, 3, 3, 3, 1]), (1, [13, 6, 3] + [1] * 13)]
)
def test_gradients_equal_those_of_an_undisturbed_step(
    most: int, sizes: list[int], kind: str, short: Any, tmp_path: Path
) -> None:
    loss, expected = gradients(stepper_of(tmp_path), 4)
    tried = short(most, ERRORS[kind])
    stepper = stepper_of(tmp_path)
    found_loss, found = gradients(stepper, 4)
    assert tried == sizes
    assert found_loss == pytest.approx(loss, abs=1e-6)
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-6)
    tried.clear()
    gradients(stepper, 5)
    assert max(tried) <= most  # the smaller number is kept, so nothing fails again


def test_a_failure_during_a_step_counts_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, expected = gradients(stepper_of(tmp_path, train__micro_batch=4), 2)
    own = TrainingLoss.forward
    passes = []

    def fails_in_the_third(loss: TrainingLoss, batch: Batch, targets: int) -> Tensor:
        passes.append(0)
        if len(passes) == 3:
            raise MemoryError
        return own(loss, batch, targets)

    monkeypatch.setattr(TrainingLoss, "forward", fails_in_the_third)
    _, found = gradients(stepper_of(tmp_path, train__micro_batch=4), 2)
    assert len(passes) == 3 + 7
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-6)


def test_a_failed_attempt_frees_its_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The features of the first attempt are freed before the second attempt."""
    forward = TrainingLoss.forward
    cross_entropy = losses.linear_cross_entropy
    made: list[weakref.ref[Tensor]] = []

    def looks_first(loss: TrainingLoss, batch: Batch, targets: int) -> Tensor:
        assert all(features() is None for features in made)
        return forward(loss, batch, targets)

    def fails_at_first(features: Tensor, *more: Any) -> Tensor:
        if not made:
            made.append(weakref.ref(features))
            raise MemoryError
        return cross_entropy(features, *more)

    monkeypatch.setattr(TrainingLoss, "forward", looks_first)
    monkeypatch.setattr(losses, "linear_cross_entropy", fails_at_first)
    stepper = stepper_of(tmp_path)
    compute_gradients(stepper, 0)
    assert stepper.oom_retries.count == 1
    assert made


def test_with_several_processes_none_retries() -> None:
    class Two(OneProcess):
        world_size = 2

    retries = OomRetries(Two())
    with pytest.raises(MemoryError), retries.watch([]):
        raise MemoryError
    assert retries.count == 0


def test_one_row_that_does_not_fit_is_an_error(short: Any, tmp_path: Path) -> None:
    stepper = stepper_of(tmp_path)
    tried = short(0, ERRORS["cpu"])
    with pytest.raises(GlassError) as refused:
        compute_gradients(stepper, 0)
    assert tried == [13, 6, 3, 1]
    assert "one row at a time ([enforce fail at alloc_cpu.cpp" in refused.value.problem
    assert "Lower model.context or the model's size" in refused.value.remedy


def test_other_errors_are_raised(short: Any, tmp_path: Path) -> None:
    stepper = stepper_of(tmp_path)
    tried = short(0, RuntimeError("shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        compute_gradients(stepper, 0)
    assert tried == [13]


def test_out_of_memory_is_reported_once_and_training_continues(short: Any, tmp_path: Path) -> None:
    listener = Listener()
    config = small_config(tmp_path, train__batch=ROWS, train__steps=6)
    short(3, ERRORS["cuda"])
    with new_training(config, tmp_path / "run", listener) as trainer:
        outcome = train(trainer)
    assert outcome is not None
    assert outcome.last_step == 6
    (said,) = (text for text in listener.said if "memory" in text)
    assert "step      1  out of memory: micro-batch is now 3 (global batch unchanged)" in said
