"""Cross-entropy loss in nats."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from glassformer.numpy_reference.arrays import Array, Bools, Ints

IGNORED = -100
"""Target of positions that the loss ignores; the default of PyTorch's `ignore_index`."""


def log_softmax(logits: Array) -> Array:
    """Return ln p_v = z_v - ln Σ_u e^(z_u) over the last axis; the largest z is subtracted first to avoid overflow."""
    shifted = logits - logits.max(axis=-1, keepdims=True)  # (..., V)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))  # (..., V)


class CrossEntropy(NamedTuple):
    """Values saved by `cross_entropy` for the backward pass."""

    log_p: Array  # (N, V)
    target_probabilities: Array  # (N, V) target distribution
    counted: Bools  # (N, 1)
    shape: tuple[int, ...]


def cross_entropy(logits: Array, targets: Ints, smoothing: float = 0.0) -> tuple[float, CrossEntropy]:
    """Return the mean of -Σ_v q_v ln p_v over the positions with a target; q is 1 at the target and 0 elsewhere.

    Args:
        logits: (B, T, V), or (B, C) for a classifier.
        targets: target ids, one for each vector of V logits; `IGNORED` at positions without a target. If all are
            ignored, the loss is 0.
        smoothing: label smoothing: q is 1 - smoothing at the target, plus smoothing / V for every id (Szegedy et al.
            2016, section 7).

    Raises:
        ValueError: there are too many or too few targets, or a target is not in the vocabulary.
    """
    V = logits.shape[-1]
    flat_targets = np.asarray(targets).reshape(-1)  # (N)
    if len(flat_targets) != logits.size // V:
        raise ValueError(
            f"the number of targets is {len(flat_targets)}, but the number of predictions is {logits.size // V}: give "
            "one target for each prediction"
        )
    counted = flat_targets != IGNORED  # (N)
    ids = np.where(counted, flat_targets, 0)  # (N)
    if ids.min() < 0 or ids.max() >= V:
        given = flat_targets[counted]  # (any number)
        raise ValueError(
            f"targets go from {given.min()} to {given.max()}: give 0 to {V - 1}, or {IGNORED} to ignore a position"
        )
    log_p = log_softmax(logits.reshape(-1, V))  # (N, V)
    target_probabilities = np.full_like(log_p, smoothing / V)  # (N, V)
    target_probabilities[np.arange(len(ids)), ids] += 1 - smoothing
    losses = -(target_probabilities * log_p).sum(axis=-1)  # (N)
    loss = float(losses[counted].sum() / max(1, counted.sum()))
    return loss, CrossEntropy(log_p, target_probabilities, counted[:, None], logits.shape)


def cross_entropy_backward(saved: CrossEntropy) -> Array:
    """Return the gradient of the logits, (p - q) / n at the n positions with a target and 0 elsewhere.

    It follows from ∂ ln p_v / ∂z_u = δ_vu - p_u and Σ_v q_v = 1, and has the shape of the logits.
    """
    dlogits = (np.exp(saved.log_p) - saved.target_probabilities) * saved.counted / max(1, saved.counted.sum())  # (N, V)
    return dlogits.reshape(saved.shape)
