"""Adam, AdamW and gradient clipping: pure functions from weights to new weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from glassformer.numpy_reference.arrays import Array, Weights


@dataclass(frozen=True)
class AdamW:
    """Hyperparameters of AdamW, with the defaults of `glass train`; `weight_decay = 0` gives Adam.

    Attributes:
        learning_rate: α.
        beta1, beta2: β1 and β2, decay rates of the moving averages of gradients and of squared gradients.
        epsilon: ε, added to the square root in the denominator.
        weight_decay: λ, applied to matrices and embedding tables, but not to biases and gains.
        clip: maximum norm of all gradients together; None: no clipping.
    """

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    clip: float | None = 1.0


@dataclass(frozen=True)
class State:
    """Optimizer state of Adam: number of steps, and moving averages of gradients (first) and their squares (second)."""

    step: int
    first: Weights
    second: Weights

    @classmethod
    def start(cls, weights: Weights) -> State:
        """Return the state before the first step: zeros."""
        zeros = {name: np.zeros(weight.shape) for name, weight in weights.items()}
        return cls(0, zeros, zeros)  # no step changes an array in place


def clipped(gradients: Weights, max_norm: float) -> dict[str, Array]:
    """Scale all gradients by min(1, max_norm / norm), where norm is the l2 norm of them all (Pascanu et al. 2013)."""
    norm = math.sqrt(sum(float((gradient * gradient).sum()) for gradient in gradients.values()))
    factor = min(1.0, max_norm / (norm + 1e-6))  # as in PyTorch; avoids division by 0
    return {name: gradient * factor for name, gradient in gradients.items()}


def adamw(weights: Weights, gradients: Weights, state: State, rule: AdamW) -> tuple[dict[str, Array], State]:
    """Take one step of AdamW (Loshchilov and Hutter 2019, algorithm 2); as in PyTorch, α also multiplies the decay.

    As in Adam (Kingma and Ba 2015, algorithm 1), m ← β1 m + (1 - β1) g and v ← β2 v + (1 - β2) g². Bias correction
    gives m̂ = m / (1 - β1ᵗ) and v̂ = v / (1 - β2ᵗ). Then w ← w - α λ w - α m̂ / (√v̂ + ε). Unless `rule.clip` is None,
    the gradients are clipped first; see `clipped`.

    Returns:
        New weights and a new state; the arguments are not changed.
    """
    if rule.clip is not None:
        gradients = clipped(gradients, rule.clip)
    step = state.step + 1
    b1 = rule.beta1
    b2 = rule.beta2
    first = {name: b1 * state.first[name] + (1 - b1) * g for name, g in gradients.items()}
    second = {name: b2 * state.second[name] + (1 - b2) * g * g for name, g in gradients.items()}
    updated = {}
    for name, weight in weights.items():
        mean = first[name] / (1 - b1**step)
        square = second[name] / (1 - b2**step)
        decay = rule.weight_decay if weight.ndim >= 2 else 0.0
        updated[name] = weight - rule.learning_rate * (decay * weight + mean / (np.sqrt(square) + rule.epsilon))
    return updated, State(step, first, second)
