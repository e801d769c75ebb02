"""Statistics of attention heads: entropy, attention distance, and divergence between texts."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from glassformer.inspection.heads.attention_arrays import Bools, Floats, Looks


def entropy(weights: Floats) -> Floats:
    """Return the entropy -Σ_j A log A over the last axis, in nats, with 0 log 0 = 0."""
    logs = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    return -(weights * logs).sum(axis=-1)


def numbers(looks: Looks) -> dict[str, Floats]:
    """Return statistics by name, each summed over the queries in `looks.rows`, (N, H).

    - `entropy`: in nats; `entropy_share`: relative to ln(visible keys), so that uniform attention has 1.
    - `confidence`: largest weight on a token that is not special (Voita et al. 2019).
    - `distance`: Σ_j A[i, j] |i - j| in tokens; `distance_share`: relative to uniform attention, which has 1. Both are
      for self-attention only.
    """
    rows = looks.rows[:, None, :]  # (N, 1, T)
    nats = entropy(looks.weights)  # (N, H, T)
    most = np.log(np.maximum(looks.visible, 2))[:, None]  # (N, 1, T)
    plain = np.where(looks.special_keys[:, None, None, :], 0.0, looks.weights)  # (N, H, T, S)
    values = {"entropy": nats, "entropy_share": nats / most, "confidence": plain.max(axis=-1)}  # (N, H, T) each
    if not looks.cross:
        far = np.abs(looks.offsets).astype(np.float64)  # (T, S)
        reach = np.einsum("nhts,ts->nht", looks.weights, far)  # (N, H, T)
        uniform = (looks.allowed * far).sum(axis=-1) / np.maximum(looks.visible, 1)  # (N, T)
        values |= {"distance": reach, "distance_share": reach / np.where(uniform > 0, uniform, 1.0)[:, None]}
    return {name: (value * rows).sum(axis=-1) for name, value in values.items()}


def divergence(looks: Looks) -> tuple[Floats, float]:
    """Sum the Jensen-Shannon divergences between a head's rows at equal positions of different sequences, in nats.

    Each divergence is at most ln 2; if all are 0, attention depends only on positions, not on tokens. Positions count
    if both sequences have a row there and the same visible keys.

    Returns:
        The sum over pairs of sequences and positions, (H,), and the number of terms.
    """
    total = np.zeros(looks.weights.shape[1])
    count = 0.0
    each = entropy(looks.weights)  # (N, H, T)
    for one, other in combinations(range(len(looks.weights)), 2):
        rows = looks.rows[one] & looks.rows[other] & _equal_rows(looks.allowed[one], looks.allowed[other])  # (T,)
        middle = entropy((looks.weights[one] + looks.weights[other]) / 2)  # (H, T)
        total += (middle - (each[one] + each[other]) / 2)[:, rows].sum(axis=-1)  # (H,)
        count += float(rows.sum())
    return np.maximum(total, 0.0), count


def _equal_rows(one: Bools, other: Bools) -> Bools:
    """Return, for each row (T,), whether two masks (T, S) are equal there."""
    same: Bools = (one == other).all(axis=-1)
    return same
