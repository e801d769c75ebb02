"""Statistics of attention heads: entropy, attention distance, and divergence between texts."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from glassformer.inspection.heads.attention_arrays import AttentionArrays, Bools, Floats


def entropy(weights: Floats) -> Floats:
    """Return the entropy -Σ_j A log A over the last axis, in nats, with 0 log 0 = 0."""
    logs = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    return -(weights * logs).sum(axis=-1)


def attention_statistics(arrays: AttentionArrays) -> dict[str, Floats]:
    """Return statistics by name, each summed over the queries in `arrays.rows`, (N, H).

    - `entropy`: in nats; `entropy_share`: divided by ln(number of visible keys), so 1 for uniform attention.
    - `confidence`: largest weight on a token that is not special (Voita et al. 2019).
    - `distance`: Σ_j A[i, j] |i - j| in tokens; `distance_share`: divided by the distance of uniform attention.
      Both are for self-attention only.
    """
    rows = arrays.rows[:, None, :]  # (N, 1, T)
    nats = entropy(arrays.weights)  # (N, H, T)
    max_entropy = np.log(np.maximum(arrays.visible, 2))[:, None]  # (N, 1, T)
    text_weights = np.where(arrays.special_keys[:, None, None, :], 0.0, arrays.weights)  # (N, H, T, S)
    values = {
        "entropy": nats,
        "entropy_share": nats / max_entropy,
        "confidence": text_weights.max(axis=-1),
    }  # (N, H, T) each
    if not arrays.cross:
        distances = np.abs(arrays.offsets).astype(np.float64)  # (T, S)
        weighted_distance = np.einsum("nhts,ts->nht", arrays.weights, distances)  # (N, H, T)
        uniform_distance = (arrays.allowed * distances).sum(axis=-1) / np.maximum(arrays.visible, 1)  # (N, T)
        values |= {
            "distance": weighted_distance,
            "distance_share": weighted_distance / np.where(uniform_distance > 0, uniform_distance, 1.0)[:, None],
        }
    return {name: (value * rows).sum(axis=-1) for name, value in values.items()}


def divergence(arrays: AttentionArrays) -> tuple[Floats, float]:
    """Sum the Jensen-Shannon divergences of each head's weights at the same position of two sequences, in nats.

    Each divergence is at most ln 2; if all are 0, attention depends only on positions, not on tokens. A position counts
    if it is in `arrays.rows` for both sequences and the same keys are visible in both.

    Returns:
        The sum over pairs of sequences and positions, (H,), and the number of terms.
    """
    total = np.zeros(arrays.weights.shape[1])
    count = 0.0
    entropies = entropy(arrays.weights)  # (N, H, T)
    for one, other in combinations(range(len(arrays.weights)), 2):
        rows = arrays.rows[one] & arrays.rows[other] & _equal_rows(arrays.allowed[one], arrays.allowed[other])  # (T,)
        mixture_entropy = entropy((arrays.weights[one] + arrays.weights[other]) / 2)  # (H, T)
        total += (mixture_entropy - (entropies[one] + entropies[other]) / 2)[:, rows].sum(axis=-1)  # (H,)
        count += float(rows.sum())
    return np.maximum(total, 0.0), count


def _equal_rows(one: Bools, other: Bools) -> Bools:
    """Return a mask (T,), True at the rows in which two masks (T, S) are equal."""
    same: Bools = (one == other).all(axis=-1)
    return same
