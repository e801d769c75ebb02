"""Training with gates: gradients are those of loss plus penalty, and a high penalty closes all gates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.inspection.head_gates import gated
from glassformer.inspection.pruning.hard_concrete import deterministic_gates, open_probability, sample
from glassformer.inspection.pruning.l0 import INITIAL_LOG_ALPHA, L0, learn_gates
from glassformer.inspection.sites import attentions
from glassformer.model.transformer import Model
from glassformer.tasks.losses import logits_of, summed_loss
from glassformer.training.checkpoint import step_seed
from glassformer.training.stepping import Stepper
from tests.property.family_rows import data
from tests.property.traced_models import model_of

FAMILY = "encoder-decoder"


def stepper(**train: Any) -> Stepper:
    """Return a stepper for a model with trainable weights and the same rows at every step."""
    rows = data(FAMILY)
    task: Any = SimpleNamespace(rows=lambda step: rows.rows)
    model = model_of(FAMILY, kv_heads=2).requires_grad_(True)
    config = Config.from_dict(
        {"train": {"task": "translate", "device": "cpu", "seed": 3, "learning_rate": 0.01, **train}}
    )
    return Stepper(model, task, config)


def silent(text: str) -> None:
    """Ignore all messages."""


def by_hand(found: Stepper, how: L0, first: int) -> dict[str, Tensor]:
    """Return the gates learnt with one backward pass of loss plus penalty in each step."""
    logs = {str(site): torch.full((6,), INITIAL_LOG_ALPHA, requires_grad=True) for site in attentions(found.model)}
    optimizer = torch.optim.Adam(list(logs.values()), lr=how.gate_rate)
    batch = found.batches(found.task.rows(0))[0]
    for step in range(first, first + how.steps):
        generator = torch.Generator().manual_seed(step_seed(3, step))
        drawn = {site: sample(log, generator) for site, log in logs.items()}
        with gated(found.model, drawn):
            loss = summed_loss(logits_of(found.model, batch), batch) / batch.n_targets
        penalty = sum(open_probability(log).sum() for log in logs.values()) / len(logs)
        optimizer.zero_grad()
        (loss + how.penalty * penalty).backward()
        optimizer.step()
    return {site: deterministic_gates(log.detach()) for site, log in logs.items()}


@pytest.mark.parametrize("micro", [None, 2])
def test_gates_follow_the_gradient_of_loss_plus_penalty(micro: int | None) -> None:
    """Gates equal those of plain gradient steps, even if a step is split into batches with the same random gates."""
    how = L0(0.02, steps=9, gate_rate=0.4, gates_alone=True)
    first = 7
    wanted = by_hand(stepper(), how, first)
    found, targets = learn_gates(stepper(micro_batch=micro), first, how, silent)
    assert found.keys() == wanted.keys()
    for site, gates in found.items():
        torch.testing.assert_close(gates, wanted[site], atol=1e-4, rtol=1e-4)
    assert any(0 < gate < 1 for gates in found.values() for gate in gates)
    assert targets == 9 * sum(len(row.targets) for row in data(FAMILY).rows)


def weights(model: Model) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("alone", [False, True])
def test_weights_change_unless_only_gates_are_learnt(alone: bool) -> None:
    found = stepper(optimizer="muon")
    before = weights(found.model)
    state = torch.random.get_rng_state()
    torch.manual_seed(5)
    learn_gates(found, 0, L0(0.02, steps=2, gates_alone=alone), silent)
    moved = [not torch.equal(a, b) for a, b in zip(before, weights(found.model), strict=True)]
    assert any(moved) != alone
    assert not found.model._forward_hooks
    torch.random.set_rng_state(state)


def test_a_high_penalty_closes_all_gates_and_a_low_one_none() -> None:
    high, _ = learn_gates(stepper(), 0, L0(50.0, steps=30, gate_rate=0.4, gates_alone=True), silent)
    assert all((gates == 0).all() for gates in high.values())
    low, _ = learn_gates(stepper(), 0, L0(1e-9, steps=1, gate_rate=0.01), silent)
    assert all((gates == 1).all() for gates in low.values())


def test_a_non_finite_loss_stops_training() -> None:
    found = stepper()
    with torch.no_grad():
        found.model.embedding.tokens.weight[0, 0] = torch.inf
        found.model.embedding.tokens.weight[:] *= torch.inf
    with pytest.raises(GlassError, match="with gates"):
        learn_gates(found, 0, L0(0.1, steps=1), silent)
