"""The training loss, computed from a few logits at a time, compared with the loss of all logits at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from glassformer.tasks import losses
from glassformer.tasks.losses import TrainingLoss, linear_cross_entropy, logits_of, summed_loss
from glassformer.text.batches import Batch
from tests.property.task_trainers import TASKS, trainer_of


def gradients(model: torch.nn.Module, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("task", TASKS)
def test_loss_and_gradients_equal_those_of_all_logits(
    task: str, smoothing: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(task, tmp_path)
    model = trainer.model.double().eval()
    monkeypatch.setitem(losses.LOSS_LOGITS, "cpu", 7 * trainer.task.choices)  # seven rows, and fewer in the last chunk
    batch = Batch.from_rows(trainer.task.rows(0))
    found = TrainingLoss(model, smoothing)(batch)
    wanted = exact_loss(logits_of(model, batch), batch, smoothing)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=0)
    found_gradients = gradients(model, found)
    wanted_gradients = gradients(model, wanted)
    assert found_gradients.keys() == wanted_gradients.keys()
    for name, gradient in wanted_gradients.items():
        tolerance = 1e-6 if task == "classify" else 1e-10  # the loss of a classifier is computed in float32
        torch.testing.assert_close(
            found_gradients[name], gradient, rtol=0, atol=tolerance * float(gradient.abs().max())
        )


def exact_loss(logits: Tensor, batch: Batch, smoothing: float) -> Tensor:
    """Return the sum of the cross-entropies of the scored targets, in the precision of the logits."""
    flat = logits.reshape(-1, logits.shape[-1])[batch.loss_mask.flatten()]  # (N, V)
    targets = batch.targets[batch.loss_mask]  # (N)
    return F.cross_entropy(flat, targets, reduction="sum", label_smoothing=smoothing)


@pytest.mark.parametrize("task", TASKS)
def test_the_float32_loss_is_the_sum_over_all_positions(task: str, tmp_path: Path) -> None:
    trainer = trainer_of(task, tmp_path)
    model = trainer.model.eval()
    batch = Batch.from_rows(trainer.task.rows(0))
    wanted = summed_loss(logits_of(model, batch), batch)
    torch.testing.assert_close(TrainingLoss(model)(batch), wanted, rtol=2e-6, atol=0)


@pytest.mark.parametrize("rows", [1, 2, 5, 64])
@pytest.mark.parametrize("bias", [False, True])
def test_the_chunk_size_has_no_effect(rows: int, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(11, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    matrix = torch.randn(13, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    vector = torch.randn(13, generator=generator, dtype=torch.float64, requires_grad=True) if bias else None
    targets = torch.randint(0, 13, (11,), generator=generator)
    given = [x, matrix] if vector is None else [x, matrix, vector]
    wanted = F.cross_entropy(F.linear(x, matrix, vector), targets, reduction="sum", label_smoothing=0.2)
    wanted_gradients = torch.autograd.grad(3 * wanted / 7, given)
    monkeypatch.setitem(losses.LOSS_LOGITS, "cpu", rows * 13)
    found = linear_cross_entropy(x, matrix, vector, targets, 7, 0.2)
    torch.testing.assert_close(found, wanted / 7, rtol=1e-12, atol=0)
    for one, other in zip(torch.autograd.grad(3 * found, given), wanted_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_large_logits_neither_overflow_nor_vanish() -> None:
    """The most probable token leads by 400 nats: its probability is 1, and that of the target rounds to 0."""
    x = torch.tensor([[200.0, -200.0]], requires_grad=True)
    matrix = torch.eye(2)
    found = linear_cross_entropy(x, matrix, None, torch.tensor([1]))
    assert float(found.detach()) == 400.0
    assert torch.autograd.grad(found, x)[0].tolist() == [[1.0, -1.0]]


def test_the_bfloat16_loss_is_as_accurate_as_its_products() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 32, generator=generator, requires_grad=True)
    matrix = (torch.randn(50, 32, generator=generator) / 6).requires_grad_()
    targets = torch.randint(0, 50, (40,), generator=generator)
    wanted = F.cross_entropy(F.linear(x, matrix), targets, reduction="sum")
    with torch.autocast("cpu", torch.bfloat16):
        found = linear_cross_entropy(x, matrix, None, targets)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted, rtol=3e-3, atol=0)
    for one, other in zip(
        torch.autograd.grad(found, [x, matrix]), torch.autograd.grad(wanted, [x, matrix]), strict=True
    ):
        assert one.dtype == torch.float32
        assert float((one - other).norm() / other.norm()) < 0.01


def test_without_a_target_loss_and_gradients_are_zero() -> None:
    x = torch.zeros(0, 4, requires_grad=True)
    matrix = torch.ones(5, 4, requires_grad=True)
    found = linear_cross_entropy(x, matrix, None, torch.zeros(0, dtype=torch.int64))
    found.backward()
    assert float(found.detach()) == 0
    assert matrix.grad is not None
    assert not matrix.grad.any()


def test_no_more_logits_are_computed_than_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A masked batch computes logits only at masked tokens."""
    trainer = trainer_of("masked", tmp_path)
    batch = Batch.from_rows(trainer.task.rows(0))
    made: list[int] = []
    own = losses.linear_cross_entropy

    def counts(x: Tensor, *more: object) -> Tensor:
        made.append(len(x))
        return own(x, *more)

    monkeypatch.setattr(losses, "linear_cross_entropy", counts)
    TrainingLoss(trainer.model)(batch)
    assert made == [batch.n_targets]
    assert batch.n_targets < batch.targets.numel() / 2
