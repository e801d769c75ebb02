"""L0 pruning: continue training with a gate on each head and a penalty on open gates (Voita et al. 2019).

    L = L_training + λ · mean over attention layers of Σ_h P(g_h > 0)

As in the code of Voita et al., the penalty is a mean over attention layers, not a sum. Each step samples every gate
once, for all rows. Gates begin open (ln α = 3, where the deterministic gate is exactly 1 and nine of ten sampled gates
are 1), so that the trained model changes little at first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.inspection.head_gates import gated
from glassformer.inspection.pruning.hard_concrete import deterministic_gates, open_probability, sample
from glassformer.inspection.sites import attentions
from glassformer.training.checkpoint import step_seed
from glassformer.training.loop import compute_gradients
from glassformer.training.stepping import Stepper

INITIAL_LOG_ALPHA = 3.0
"""Initial ln α of each gate."""


@dataclass(frozen=True)
class L0:
    """Settings for learning gates.

    Attributes:
        penalty: λ, in nats: the cost of one open head in every attention layer.
        steps: number of training steps with gates.
        rate: factor on the run's peak learning rates; constant during these steps.
        gate_rate: learning rate of ln α, for Adam without weight decay.
        gates_alone: True to train the gates only and leave the weights unchanged.
    """

    penalty: float
    steps: int = 500
    rate: float = 0.1
    gate_rate: float = 0.05
    gates_alone: bool = False


def learn_gates(
    stepper: Stepper, first: int, settings: L0, note: Callable[[str], None]
) -> tuple[dict[str, Tensor], int]:
    """Continue training from step `first` with gates, and return the final gates and the number of targets.

    The final gates are tensors (H) by attention site. The weights change in place, unless `settings.gates_alone`
    is True. The gates use a separate random generator, so that each step has the same rows and dropout as in normal
    training.

    Raises:
        GlassError: a loss or a gradient is not finite.
    """
    sites = {str(site): layer.heads for site, layer in attentions(stepper.model).items()}
    log_alphas = {
        site: torch.full((heads,), INITIAL_LOG_ALPHA, device=stepper.device, requires_grad=True)
        for site, heads in sites.items()
    }
    optimizer = torch.optim.Adam(list(log_alphas.values()), lr=settings.gate_rate)
    targets = 0
    for step in range(first, first + settings.steps):
        generator = torch.Generator().manual_seed(step_seed(stepper.config.train.seed, step))
        sampled = {site: sample(log_alpha, generator) for site, log_alpha in log_alphas.items()}  # (H) each
        gates = {site: gate.detach().requires_grad_() for site, gate in sampled.items()}  # (H) each
        with gated(stepper.model, gates):
            gradients = compute_gradients(stepper, step)
        if not gradients.finite:
            raise GlassError(
                f"step {step + 1} with gates: the loss ({gradients.loss}) or a gradient is not finite",
                "Lower --l0, --gate-rate or --rate.",
            )
        optimizer.zero_grad()
        penalty = (
            torch.stack([open_probability(log_alpha).sum() for log_alpha in log_alphas.values()]).mean()
            * settings.penalty
        )  # ()
        gate_gradients = [(gate, gates[site].grad) for site, gate in sampled.items() if gates[site].grad is not None]
        torch.autograd.backward(
            [penalty, *(gate for gate, _ in gate_gradients)], [None, *(grad for _, grad in gate_gradients)]
        )
        optimizer.step()
        if not settings.gates_alone:
            stepper.update(gradients, settings.rate)
        targets += gradients.targets
        if (step + 1 - first) % 50 == 0 or step + 1 == first + settings.steps:
            open_heads = sum(int((deterministic_gates(log_alpha) > 0).sum()) for log_alpha in log_alphas.values())
            note(
                f"gates: step {step + 1 - first}, loss {gradients.loss:.4f}, "
                f"{open_heads} of {sum(sites.values())} heads open"
            )
    return {site: deterministic_gates(log_alpha.detach()) for site, log_alpha in log_alphas.items()}, targets
