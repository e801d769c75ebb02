"""Training: loss, gradients, a step, and many steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from glassformer.numpy_reference.adam import AdamW, State, adamw
from glassformer.numpy_reference.arrays import Array, Ints, Weights
from glassformer.numpy_reference.families import backward, forward
from glassformer.numpy_reference.inputs import Inputs
from glassformer.numpy_reference.loss import cross_entropy, cross_entropy_backward
from glassformer.numpy_reference.settings import Settings


class NumpyBatch(NamedTuple):
    """Training batch of one step.

    Attributes:
        inputs: what the model reads.
        targets: (B, T) what it should say at each place, `IGNORED` where that does not count; (B) or (B, 1) labels.
    """

    inputs: Inputs
    targets: Ints


def gradients(
    settings: Settings, weights: Weights, batch: NumpyBatch, smoothing: float = 0.0
) -> tuple[float, dict[str, Array]]:
    """The mean loss of a batch in nats, and its gradient for every weight, by name."""
    said, kept = forward(settings, weights, batch.inputs)  # (B, T, V) or (B, C)
    loss, kept_loss = cross_entropy(said, batch.targets, smoothing)
    return loss, backward(cross_entropy_backward(kept_loss), kept)


class TrainingStep(NamedTuple):
    """Result of one step: the loss before it, the weights and the optimizer state after it."""

    loss: float
    weights: dict[str, Array]
    state: State


def train_step(
    settings: Settings, weights: Weights, state: State, batch: NumpyBatch, rule: AdamW, smoothing: float = 0.0
) -> TrainingStep:
    """One step of AdamW on one batch; `weights` and `state` are left alone."""
    loss, found = gradients(settings, weights, batch, smoothing)
    return TrainingStep(loss, *adamw(weights, found, state, rule))


def train(
    settings: Settings,
    weights: Weights,
    batches: Iterable[NumpyBatch],
    rule: AdamW | None = None,
    smoothing: float = 0.0,
) -> tuple[dict[str, Array], list[float]]:
    """A step for each batch.

    Args:
        settings: of the model.
        weights: to start from, such as `initial_weights`; they are left alone.
        batches: as many as there shall be steps.
        rule: of the steps; None: `AdamW()`.
        smoothing: of the targets; see `cross_entropy`.

    Returns:
        The weights after the last step, and the loss of each batch before its step, in nats.

    Raises:
        ValueError: weights, inputs or targets do not fit the settings; or the loss is not finite.
    """
    found = {name: np.asarray(value, dtype=np.float64) for name, value in weights.items()}
    state = State.start(found)
    losses = []
    for batch in batches:
        loss, found, state = train_step(settings, found, state, batch, rule or AdamW(), smoothing)
        if not np.isfinite(loss):
            raise ValueError(f"the loss of step {state.step} is {loss}: lower the learning rate")
        losses.append(loss)
    return found, losses
