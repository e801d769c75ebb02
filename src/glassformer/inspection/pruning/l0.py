"""Learning which heads may go: training goes on with a gate on every head, and open gates cost. Voita et al. 2019.

    L = L_training + λ · mean over attentions of Σ_h P(g_h > 0)

λ is of the mean over attentions, as in the program of Voita et al., not of the sum. Each step draws every gate once,
for all rows. Gates begin wide open (ln α = 3, where a settled gate is exactly 1), so that the trained model is not
disturbed at first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.inspection.head_gates import gated
from glassformer.inspection.pruning.hard_concrete import open_probability, sample, settled
from glassformer.inspection.sites import attentions
from glassformer.training.checkpoint import step_seed
from glassformer.training.loop import compute_gradients
from glassformer.training.stepping import Stepper

FIRST = 3.0
"""ln α of every gate at the beginning."""


@dataclass(frozen=True)
class L0:
    """How gates are learnt.

    Attributes:
        penalty: λ, in nats for each head of an attention that is open.
        steps: of training with gates.
        rate: the run's own learning rates, which its schedule has brought down, times this, all along.
        gate_rate: learning rate of ln α, by Adam without weight decay.
        gates_alone: the weights stay as they are.
    """

    penalty: float
    steps: int = 500
    rate: float = 0.1
    gate_rate: float = 0.05
    gates_alone: bool = False


def learn_gates(stepper: Stepper, first: int, how: L0, note: Callable[[str], None]) -> tuple[dict[str, Tensor], int]:
    """Train on from step `first`; the settled gates (H) of each attention by its site, and the targets learnt from.

    The weights change in place, unless gates are learnt alone. Numbers are drawn from a generator of their own, so
    that rows and dropout of a step are what they would be in training.

    Raises:
        GlassError: a loss or a gradient is not finite.
    """
    sites = {str(site): layer.heads for site, layer in attentions(stepper.model).items()}
    logs = {
        site: torch.full((heads,), FIRST, device=stepper.device, requires_grad=True) for site, heads in sites.items()
    }
    optimizer = torch.optim.Adam(list(logs.values()), lr=how.gate_rate)
    targets = 0
    for step in range(first, first + how.steps):
        generator = torch.Generator().manual_seed(step_seed(stepper.config.train.seed, step))
        drawn = {site: sample(log, generator) for site, log in logs.items()}  # (H) each
        gates = {site: gate.detach().requires_grad_() for site, gate in drawn.items()}  # (H) each
        with gated(stepper.model, gates):
            found = compute_gradients(stepper, step)
        if not found.finite:
            raise GlassError(f"step {step + 1} with gates: the loss is {found.loss}", "Lower --l0, or --rate.")
        optimizer.zero_grad()
        cost = torch.stack([open_probability(log).sum() for log in logs.values()]).mean() * how.penalty  # ()
        passed = [(gate, gates[site].grad) for site, gate in drawn.items() if gates[site].grad is not None]
        torch.autograd.backward([cost, *(gate for gate, _ in passed)], [None, *(slope for _, slope in passed)])
        optimizer.step()
        if not how.gates_alone:
            stepper.update(found, how.rate)
        targets += found.targets
        if (step + 1 - first) % 50 == 0 or step + 1 == first + how.steps:
            left = sum(int((settled(log) > 0).sum()) for log in logs.values())
            note(f"gates: step {step + 1 - first}, loss {found.loss:.4f}, {left} of {sum(sites.values())} heads open")
    return {site: settled(log.detach()) for site, log in logs.items()}, targets
