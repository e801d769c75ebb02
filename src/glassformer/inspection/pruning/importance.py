"""Importance of each head for the loss, from one backward pass per batch (Michel et al. 2019, section 4.1).

    I_h = E_x |∂L(x) / ∂ξ_h|        ξ_h: gate of head h, equal to 1

The absolute value is taken for each row x before the mean, because gradients of different rows can cancel. Therefore,
each row has separate gates.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor

from glassformer.inspection.head_gates import gated
from glassformer.inspection.sites import attentions
from glassformer.model.evaluation_mode import evaluation_mode
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import Model
from glassformer.tasks.task_rows import TaskRows, row_losses


def head_importance(model: Model, data: TaskRows) -> dict[str, float]:
    """Return the importance I_h of each head by name, in nats per target.

    I_h is the sum over rows of |∂(loss of the row) / ∂ξ_h|, divided by the number of targets. The losses are those of
    training, without label smoothing and dropout. The model and its gradients are not modified.
    """
    sites = attentions(model)
    sums = {str(site): torch.zeros(layer.heads, dtype=torch.float64) for site, layer in sites.items()}  # (H) each
    targets = 0
    with evaluation_mode(model):
        for _, rows in data.groups(model):
            batch = data.batch(rows)
            with torch.enable_grad(), gated(model) as gates:
                losses = row_losses(model, batch)  # (B)
                total = losses.sum()
                grads = torch.autograd.grad(total, list(gates.values()), materialize_grads=True)  # (B, H) each
            for site, grad in zip(gates, grads, strict=True):
                sums[site] += grad.abs().cpu().double().sum(dim=0)  # (H)
            targets += batch.n_targets
    return _by_head_name(model, {site: total / max(1, targets) for site, total in sums.items()})


def _by_head_name(model: Model, values: Mapping[str, Tensor]) -> dict[str, float]:
    """Convert values (H) of each attention layer to a value for each head name."""
    return {
        f"{site}.{number}": float(values[str(site)][index])
        for site, layer in attentions(model).items()
        for index, number in enumerate(head_numbers(layer))
    }


def per_layer(scores: Mapping[str, float]) -> dict[str, float]:
    """Divide each score by the l2 norm of the scores of its attention layer, as Michel et al. 2019 do."""
    squares: dict[str, float] = defaultdict(float)
    for name, score in scores.items():
        squares[name.rpartition(".")[0]] += score**2
    return {name: score / (math.sqrt(squares[name.rpartition(".")[0]]) or 1.0) for name, score in scores.items()}
