"""Training in NumPy: gradients of a batch, one step, and a training loop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from glassformer.numpy_reference.adam import AdamW, State, adamw
from glassformer.numpy_reference.arrays import Array, Ints, Weights
from glassformer.numpy_reference.families import backward, forward
from glassformer.numpy_reference.inputs import Inputs
from glassformer.numpy_reference.loss import cross_entropy, cross_entropy_backward

if TYPE_CHECKING:
    from glassformer.base.config import ModelConfig


class NumpyBatch(NamedTuple):
    """Training batch of one step.

    Attributes:
        inputs: inputs of the model.
        targets: (B, T) target ids, `IGNORED` at positions without a target; for a classifier, labels, (B) or (B, 1).
    """

    inputs: Inputs
    targets: Ints


def gradients(
    settings: ModelConfig, weights: Weights, batch: NumpyBatch, smoothing: float = 0.0
) -> tuple[float, dict[str, Array]]:
    """Return the mean loss of a batch in nats, and the gradients of all weights by name."""
    logits, saved = forward(settings, weights, batch.inputs)  # (B, T, V) or (B, C)
    loss, saved_loss = cross_entropy(logits, batch.targets, smoothing)
    return loss, backward(cross_entropy_backward(saved_loss), saved)


class TrainingStep(NamedTuple):
    """Result of one step: the loss before the step, the weights and the optimizer state after it."""

    loss: float
    weights: dict[str, Array]
    state: State


def train_step(
    settings: ModelConfig, weights: Weights, state: State, batch: NumpyBatch, rule: AdamW, smoothing: float = 0.0
) -> TrainingStep:
    """Take one step of AdamW on one batch; `weights` and `state` are not changed."""
    loss, weight_gradients = gradients(settings, weights, batch, smoothing)
    return TrainingStep(loss, *adamw(weights, weight_gradients, state, rule))


def train(
    settings: ModelConfig,
    weights: Weights,
    batches: Iterable[NumpyBatch],
    rule: AdamW | None = None,
    smoothing: float = 0.0,
) -> tuple[dict[str, Array], list[float]]:
    """Train a model with AdamW, one step per batch.

    Args:
        settings: model settings.
        weights: initial weights, for instance from `initial_weights`; they are not changed.
        batches: one batch per step.
        rule: hyperparameters of AdamW; None: `AdamW()`.
        smoothing: label smoothing; see `cross_entropy`.

    Returns:
        The weights after the last step, and the loss of each batch before its step, in nats.

    Raises:
        ValueError: weights, inputs or targets do not fit the settings; or the loss is not finite.
    """
    trained_weights = {name: np.asarray(value, dtype=np.float64) for name, value in weights.items()}
    state = State.start(trained_weights)
    losses = []
    for batch in batches:
        loss, trained_weights, state = train_step(settings, trained_weights, state, batch, rule or AdamW(), smoothing)
        if not np.isfinite(loss):
            raise ValueError(f"the loss of step {state.step} is {loss}: lower the learning rate")
        losses.append(loss)
    return trained_weights, losses
