"""Hard concrete gates: random gates in [0, 1] that have learnable probabilities of being exactly 0 and exactly 1.

Louizos et al. 2018, section 2.2, with the constants of Voita et al. 2019 for heads:

    u ~ U(ε, 1 - ε)    s = sigmoid((ln u - ln(1 - u) + ln α) / β)    g = clip(s (ζ - γ) + γ, 0, 1)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

BETA = 0.33
GAMMA = -0.1
ZETA = 1.1
EPSILON = 1e-6


def sample(log_alpha: Tensor, generator: torch.Generator) -> Tensor:
    """Sample each gate once, (H); a gate has a gradient with respect to ln α if it is neither 0 nor 1."""
    u = torch.rand(log_alpha.shape, generator=generator, dtype=log_alpha.dtype) * (1 - 2 * EPSILON) + EPSILON  # (H)
    u = u.to(log_alpha.device)  # (H)
    s = torch.sigmoid((u.log() - (1 - u).log() + log_alpha) / BETA)  # (H)
    return (s * (ZETA - GAMMA) + GAMMA).clamp(0, 1)  # (H)


def open_probability(log_alpha: Tensor) -> Tensor:
    """Return the probability that each gate is open, P(g > 0) = sigmoid(ln α - β ln(-γ / ζ)), (H)."""
    return torch.sigmoid(log_alpha - BETA * math.log(-GAMMA / ZETA))  # (H)


def deterministic_gates(log_alpha: Tensor) -> Tensor:
    """Return the deterministic gates after training, (H): clip(sigmoid(ln α) (ζ - γ) + γ, 0, 1), without β.

    A gate is exactly 0 for ln α below -2.398 and exactly 1 for ln α above 2.398.
    """
    return (torch.sigmoid(log_alpha) * (ZETA - GAMMA) + GAMMA).clamp(0, 1)  # (H)
