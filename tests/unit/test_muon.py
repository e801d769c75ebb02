"""Muon: batched matrices take the same steps as single matrices, and the same steps as in PyTorch's Muon."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from glassformer.base.config import ModelConfig, TrainConfig
from glassformer.model.build import build_model
from glassformer.training.muon import Muon, orthogonalized
from glassformer.training.optimizers import make_optimizers
from tests.products import BfloatProducts

DTYPES = (torch.float32, torch.bfloat16)
SHAPES = [(24, 24), (24, 24), (48, 12), (12, 48), (48, 12), (1, 9)]


def parameters(seed: int) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def give_gradients(parameters: list[nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(16, 16), (40, 10), (10, 40)])
def test_singular_values_approach_one_and_directions_are_kept(shape: tuple[int, int], dtype: torch.dtype) -> None:
    matrices = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    left, before, right = torch.linalg.svd(matrices, full_matrices=False)
    turned = left.mT @ orthogonalized(matrices, dtype).float() @ right.mT  # (3, short, short)
    assert before.max() > 3
    large = before > 0.05 * before.amax(dim=-1, keepdim=True)  # five iterations raise the others only partly
    found = turned.diagonal(dim1=-2, dim2=-1)[large]
    assert found.min() > 0.4
    assert found.max() < 1.3
    assert (turned - torch.diag_embed(turned.diagonal(dim1=-2, dim2=-1))).abs().max() < 0.05


@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_equal_torchs_muon(dtype: torch.dtype) -> None:
    ours = parameters(0)
    theirs = parameters(0)
    settings = {"lr": 0.05, "weight_decay": 0.2, "momentum": 0.9}
    own = Muon(ours, **settings, dtype=dtype)
    other = torch.optim.Muon(theirs, **settings)
    for step in range(4):
        give_gradients(ours, step)
        give_gradients(theirs, step)
        own.step()
        other.step()
    for mine, reference, first in zip(ours, theirs, parameters(0), strict=True):
        moved = (reference - first).norm()
        assert (mine - reference).norm() < 0.01 * moved  # torch's multiplies in bfloat16, with 8 bits


def test_a_matrix_without_a_gradient_is_unchanged_without_momentum() -> None:
    some = parameters(0)
    optimizer = Muon(some, lr=0.1, weight_decay=0.1, momentum=0.9, dtype=torch.bfloat16)
    give_gradients(some, 0)
    some[1].grad = None
    before = some[1].clone()
    optimizer.step()
    assert torch.equal(some[1], before)
    assert some[1] not in optimizer.state
    assert not torch.equal(some[0], parameters(0)[0])


def test_a_zero_gradient_changes_nothing() -> None:
    one = nn.Parameter(torch.ones(4, 4))
    one.grad = torch.zeros(4, 4)
    Muon([one], lr=0.1, weight_decay=0.0, momentum=0.9, dtype=torch.float32).step()
    assert torch.equal(one, torch.ones(4, 4))


def test_the_setting_is_the_precision_of_matrix_multiplications() -> None:
    """The setting decides the precision of all matrix multiplications of a step; the two steps differ slightly."""
    seen = {}
    for name in ("fp32", "bf16"):
        model = build_model(ModelConfig(vocab_size=11, width=16, layers=1, heads=2), 11)
        optimizers = make_optimizers(model, TrainConfig(optimizer="muon", muon_precision=name, weight_decay=0.0))
        matrix = optimizers[1].param_groups[0]["params"][0]
        before = matrix.detach().clone()
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
        with BfloatProducts() as products:
            optimizers[1].step()
        moved = matrix.detach() - before
        seen[name] = (products.bfloat16 > 0, products.others > 0, moved)
    assert seen["fp32"][:2] == (False, True)
    assert seen["bf16"][:2] == (True, False)
    assert 0 < (seen["fp32"][2] - seen["bf16"][2]).norm() < 0.05 * seen["fp32"][2].norm()
