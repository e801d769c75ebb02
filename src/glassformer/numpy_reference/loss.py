"""Cross-entropy: how surprised the model is by what really came, in nats."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from glassformer.numpy_reference.arrays import Array, Bools, Ints

IGNORED = -100
"""The target of places that do not count; PyTorch's number for it."""


def log_softmax(logits: Array) -> Array:
    """ln p_v = z_v - ln Σ_u e^(z_u), after the largest z is subtracted, which changes nothing; over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)  # (..., V)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))  # (..., V)


class CrossEntropy(NamedTuple):
    """What the backward pass of `cross_entropy` needs."""

    log_p: Array  # (places, V)
    wanted: Array  # (places, V) the target distribution
    counted: Bools  # (places, 1)
    shape: tuple[int, ...]


def cross_entropy(logits: Array, targets: Ints, smoothing: float = 0.0) -> tuple[float, CrossEntropy]:
    """-Σ_v q_v ln p_v, the mean over the places that count; q is 1 at the target.

    Args:
        logits: (B, T, V), or (B, C) of a classifier.
        targets: ids, one for each row of logits; `IGNORED` where the place does not count. If none counts, the loss
            is 0.
        smoothing: q is 1 - smoothing at the target, and smoothing / V more everywhere (Szegedy et al. 2016, section 7).

    Raises:
        ValueError: the targets are too many or too few, or not in the vocabulary.
    """
    V = logits.shape[-1]
    flat = np.asarray(targets).reshape(-1)  # (places)
    if len(flat) != logits.size // V:
        raise ValueError(f"there are {len(flat)} targets for {logits.size // V} predictions: give one for each")
    counted = flat != IGNORED  # (places)
    real = np.where(counted, flat, 0)  # (places)
    if real.min() < 0 or real.max() >= V:
        raise ValueError(f"targets go from {real.min()} to {real.max()}: give 0 to {V - 1}, or {IGNORED} to ignore")
    log_p = log_softmax(logits.reshape(-1, V))  # (places, V)
    wanted = np.full_like(log_p, smoothing / V)  # (places, V)
    wanted[np.arange(len(real)), real] += 1 - smoothing
    losses = -(wanted * log_p).sum(axis=-1)  # (places)
    loss = float(losses[counted].sum() / max(1, counted.sum()))
    return loss, CrossEntropy(log_p, wanted, counted[:, None], logits.shape)


def cross_entropy_backward(kept: CrossEntropy) -> Array:
    """dz = (p - q) / places that count, and 0 elsewhere: ∂ ln p_v / ∂z_u = δ_vu - p_u, and Σ_v q_v = 1.

    -> the shape of the logits.
    """
    dlogits = (np.exp(kept.log_p) - kept.wanted) * kept.counted / max(1, kept.counted.sum())  # (places, V)
    return dlogits.reshape(kept.shape)
