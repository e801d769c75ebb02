"""Adam and AdamW, and the clipping of gradients: pure functions from weights to new weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from glassformer.numpy_reference.arrays import Array, Weights


@dataclass(frozen=True)
class AdamW:
    """Hyperparameters of AdamW, with the defaults of `glass train`; with `weight_decay` 0 this is Adam.

    Attributes:
        learning_rate: α.
        beta1, beta2: how much of the averages is kept at each step.
        epsilon: added to the root in the denominator.
        weight_decay: λ, of matrices and tables; biases and gains have none.
        clip: the longest that all gradients together may be; None: any length.
    """

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    clip: float | None = 1.0


@dataclass(frozen=True)
class State:
    """Optimizer state of Adam: the number of steps, and the averages of gradients and of their squares, by name."""

    step: int
    first: Weights
    second: Weights

    @classmethod
    def start(cls, weights: Weights) -> State:
        """Before the first step: zeros."""
        zeros = {name: np.zeros(weight.shape) for name, weight in weights.items()}
        return cls(0, zeros, zeros)  # no step changes an array in place


def clipped(gradients: Weights, longest: float) -> dict[str, Array]:
    """All gradients times min(1, longest / length), length the root of the sum of all squares (Pascanu et al. 2013)."""
    length = math.sqrt(sum(float((gradient * gradient).sum()) for gradient in gradients.values()))
    factor = min(1.0, longest / (length + 1e-6))  # as PyTorch has it: never a division by 0
    return {name: gradient * factor for name, gradient in gradients.items()}


def adamw(weights: Weights, gradients: Weights, state: State, rule: AdamW) -> tuple[dict[str, Array], State]:
    """One step (Kingma and Ba 2015, algorithm 1; decay: Loshchilov and Hutter 2019, algorithm 2, schedule in α).

    m ← β1 m + (1 - β1) g and v ← β2 v + (1 - β2) g², then with both divided by 1 - βᵗ, which undoes the start at 0:
    w ← w - α λ w - α m̂ / (√v̂ + ε).

    Returns:
        New weights and a new state; the old ones are left alone.
    """
    if rule.clip is not None:
        gradients = clipped(gradients, rule.clip)
    step = state.step + 1
    b1 = rule.beta1
    b2 = rule.beta2
    first = {name: b1 * state.first[name] + (1 - b1) * g for name, g in gradients.items()}
    second = {name: b2 * state.second[name] + (1 - b2) * g * g for name, g in gradients.items()}
    found = {}
    for name, weight in weights.items():
        mean = first[name] / (1 - b1**step)
        square = second[name] / (1 - b2**step)
        decay = rule.weight_decay if weight.ndim >= 2 else 0.0
        found[name] = weight - rule.learning_rate * (decay * weight + mean / (np.sqrt(square) + rule.epsilon))
    return found, State(step, first, second)
