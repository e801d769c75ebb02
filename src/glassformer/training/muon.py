"""Muon optimizer (Jordan et al. 2024): updates matrices with their orthogonalized momentum."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.training.eager_optimizers import EagerOptimizer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients a, b, c of a x + b x³ + c x⁵, which moves singular values towards 1 (Jordan et al. 2024, "Muon")."""
ITERATIONS = 5
SMALLEST_NORM = 1e-7


def orthogonalized(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """Orthogonalize matrices by Newton-Schulz iterations, so that singular values become about 1 (0.5 to 1.5).

    Singular values below about a thousandth of the matrix's norm stay smaller.

    Args:
        matrices: (N, rows, columns), processed in one batch.
        dtype: precision of the iterations and of the result; bfloat16 is sufficient.

    Returns:
        (N, rows, columns) in `dtype`.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices  # (N, short, long)
    x = x.to(dtype)  # (N, short, long)
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=SMALLEST_NORM)  # singular values at most 1
    for _ in range(ITERATIONS):
        gram = x @ x.mT  # (N, short, short)
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)  # (N, short, short)
        x = torch.baddbmm(x, polynomial, x, beta=a)  # (N, short, long)
    return x.mT if tall else x  # (N, rows, columns)


class Muon(EagerOptimizer):
    """Muon optimizer with Nesterov momentum; like `torch.optim.Muon`, but all matrices of one shape are batched.

    Args:
        parameters: matrices, (rows, columns) each.
        lr: learning rate; for tall matrices it is multiplied by √(rows / columns).
        weight_decay: decoupled weight decay; a matrix is multiplied by 1 - lr x weight_decay in each step.
        momentum: momentum factor.
        dtype: precision of the orthogonalization.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], lr: float, weight_decay: float, momentum: float, dtype: torch.dtype
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step with the gradients of the parameters."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes.setdefault(parameter.shape, []).append(parameter)
            for parameters in shapes.values():
                self._step_same_shape(parameters, group)

    def _step_same_shape(self, parameters: list[nn.Parameter], group: dict[str, Any]) -> None:
        """Take one step for matrices of the same shape."""
        momenta = [self._nesterov_momentum(parameter, group["momentum"]) for parameter in parameters]
        rate = group["lr"]
        rows, columns = parameters[0].shape
        updates = orthogonalized(torch.stack(momenta), self.dtype)  # (N, rows, columns)
        for parameter, update in zip(parameters, updates, strict=True):
            parameter.mul_(1 - rate * group["weight_decay"])  # (rows, columns)
            parameter.add_(update, alpha=-rate * math.sqrt(max(1.0, rows / columns)))  # (rows, columns)

    def _nesterov_momentum(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        """Update the momentum of a parameter, and return the Nesterov momentum (rows, columns)."""
        gradient = parameter.grad
        assert gradient is not None
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)  # (rows, columns)
        buffer = state["momentum_buffer"].lerp_(gradient, 1 - momentum)  # (rows, columns)
        return gradient.lerp(buffer, momentum)  # (rows, columns)
