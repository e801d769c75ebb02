"""Numbers of a head that are no roles: how spread its attention is, how far it reaches, how much the text matters."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from glassformer.inspection.heads.attention_arrays import Bools, Floats, Looks


def entropy(weights: Floats) -> Floats:
    """-Σ_j A log A in nats over the last axis, 0 log 0 = 0."""
    logs = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    return -(weights * logs).sum(axis=-1)


def numbers(looks: Looks) -> dict[str, Floats]:
    """Sums over the rows `looks.rows`, (N, H) each; divided by the rows they are means.

    - `entropy`: nats; `entropy_share`: of ln(visible keys), so that uniform attention has 1.
    - `confidence`: largest weight on a token that is not special (Voita et al. 2019).
    - `distance`: Σ_j A[i, j] |i - j| tokens; `distance_share`: of that of uniform attention, which has 1. Of
      self-attention only.
    """
    rows = looks.rows[:, None, :]  # (N, 1, T)
    nats = entropy(looks.weights)  # (N, H, T)
    most = np.log(np.maximum(looks.visible, 2))[:, None]  # (N, 1, T)
    plain = np.where(looks.special_keys[:, None, None, :], 0.0, looks.weights)  # (N, H, T, S)
    values = {"entropy": nats, "entropy_share": nats / most, "confidence": plain.max(axis=-1)}  # (N, H, T) each
    if not looks.cross:
        far = np.abs(looks.offsets).astype(np.float64)  # (T, S)
        reach = np.einsum("nhts,ts->nht", looks.weights, far)  # (N, H, T)
        even = (looks.allowed * far).sum(axis=-1) / np.maximum(looks.visible, 1)  # (N, T)
        values |= {"distance": reach, "distance_share": reach / np.where(even > 0, even, 1.0)[:, None]}
    return {name: (value * rows).sum(axis=-1) for name, value in values.items()}


def divergence(looks: Looks) -> tuple[Floats, float]:
    """Jensen-Shannon divergence between a head's rows at equal places of different sequences, in nats, summed.

    0: the head looks at places only, whatever stands there. At most ln 2. Places count where both sequences have a
    row and see the same keys.

    Returns:
        The sum over pairs of sequences and places (H,), and how many there are.
    """
    total = np.zeros(looks.weights.shape[1])
    count = 0.0
    each = entropy(looks.weights)  # (N, H, T)
    for one, other in combinations(range(len(looks.weights)), 2):
        rows = looks.rows[one] & looks.rows[other] & _alike(looks.allowed[one], looks.allowed[other])  # (T,)
        middle = entropy((looks.weights[one] + looks.weights[other]) / 2)  # (H, T)
        total += (middle - (each[one] + each[other]) / 2)[:, rows].sum(axis=-1)  # (H,)
        count += float(rows.sum())
    return np.maximum(total, 0.0), count


def _alike(one: Bools, other: Bools) -> Bools:
    """(T,) where two masks (T, S) show the same keys."""
    same: Bools = (one == other).all(axis=-1)
    return same
