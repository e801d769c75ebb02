"""Role scores of attention heads: score, chance level, confidence interval, and whether a role is earned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from glassformer.inspection.heads.attention_arrays import AttentionArrays, Bools, Floats

REPEATS = 1000  # bootstrap samples
LIFT = 5.0
"""Minimum lift for an earned role, except alignment: a head's score / that of uniform attention; see `RoleScore`."""


@dataclass(frozen=True, eq=False)
class RoleTally:
    """Sums over the rows of each sequence; tallies of several batches are joined by `join`.

    Attributes:
        score: (N, H) score summed over rows.
        chance: (N, H) score of uniform attention, summed over rows: uniform over the visible keys or, for votes on a
            pattern, over the visible keys that are not special tokens.
        rows: (N,) number of rows of each sequence; a score with one value per sequence counts as one row.
    """

    score: Floats
    chance: Floats
    rows: Floats

    @staticmethod
    def join(tallies: Sequence[RoleTally]) -> RoleTally:
        """Concatenate tallies along the sequences."""
        parts = zip(*((each.score, each.chance, each.rows) for each in tallies), strict=True)
        return RoleTally(*(np.concatenate(part) for part in parts))


@dataclass(frozen=True)
class RoleScore:
    """Score of one head in one role.

    Attributes:
        score: mean over rows.
        chance: score of uniform attention, as in `RoleTally`; None if the score has no chance level.
        lift: score / chance, both measured from the lowest possible score; None if chance is at the lowest score, or if
            there is no chance level.
        interval: 95 % confidence interval by bootstrap over sequences; None with fewer than two sequences that have
            rows, or if the score comes from the weights.
        threshold: minimum score for an earned role.
        earned: True if the score reaches the threshold, the lift, if any, its minimum, and the interval is above
            chance. A score from the weights needs to reach only the threshold; an induction head also needs a positive
            copying score, if one was measured.
        rows: number of rows that were measured.
        probe: name of the probe on which the role was measured.
        detail: further values: the offset of a positional head, the baseline of a syntactic head.
    """

    score: float
    chance: float | None
    lift: float | None
    interval: tuple[float, float] | None
    threshold: float
    earned: bool
    rows: int
    probe: str
    detail: dict[str, float]

    def if_also(self, condition: bool) -> RoleScore:
        """Return a copy whose role is earned only if `condition` is also True."""
        return replace(self, earned=self.earned and condition)


def mass(arrays: AttentionArrays, pattern: Bools, rows: Bools | None = None) -> RoleTally:
    """Tally the attention weight on a pattern, Σ_j A[i, j] P[i, j], over rows i.

    Args:
        arrays: attention of any layer.
        pattern: (N or 1, T, S) True for the keys that belong to the role.
        rows: (N, T) True for rows where the role is possible, combined with `arrays.rows`; None: rows where the pattern
            has a visible key.
    """
    return tally_values(arrays, arrays.weights, pattern, rows, arrays.allowed)


def tally_values(
    arrays: AttentionArrays, values: Floats, pattern: Bools, rows: Bools | None, candidates: Bools
) -> RoleTally:
    """Tally values (N, H, T, S), such as weights or votes, on the keys of a pattern.

    The values of a query sum to 1 over the keys in `candidates` (N, T, S), and to 0 if there are none.

    For the other arguments, see `mass`.
    """
    visible_pattern = pattern & candidates  # (N, T, S)
    row_mask = arrays.rows & (visible_pattern.any(axis=-1) if rows is None else rows)  # (N, T)
    row_pattern = visible_pattern & row_mask[..., None]  # (N, T, S)
    score = np.einsum("nhts,nts->nh", values, row_pattern.astype(np.float64))  # (N, H)
    fraction = row_pattern.sum(axis=-1) / np.maximum(candidates.sum(axis=-1), 1)  # (N, T)
    chance = np.broadcast_to(fraction.sum(axis=-1)[:, None], score.shape)  # (N, H)
    return RoleTally(score, chance, row_mask.sum(axis=-1).astype(np.float64))


def score_heads(
    tally: RoleTally,
    threshold: float | Floats,
    probe: str,
    seed: int = 0,
    lowest: float = 0.0,
    details: Sequence[dict[str, float]] | None = None,
    needed_lift: float = LIFT,
) -> list[RoleScore]:
    """Return the score of each head, with its interval and whether the role is earned.

    Args:
        tally: tally of all sequences.
        threshold: minimum score for an earned role; (H,) for one threshold per head.
        probe: name of the probe.
        seed: seed of the bootstrap; global random state is not used.
        lowest: lowest possible score, from which the lift is measured.
        details: further values for each head; None: no such values.
        needed_lift: minimum lift for an earned role.
    """
    N, H = tally.score.shape
    total = tally.rows.sum()
    scores = tally.score.sum(axis=0) / total  # (H,)
    chances = tally.chance.sum(axis=0) / total  # (H,)
    counts = _bootstrap_counts(N, seed)  # (repeats, N)
    with np.errstate(invalid="ignore"):
        bootstrap_scores = (counts @ tally.score) / (counts @ tally.rows)[:, None]  # (repeats, H)
    low, high = np.nanquantile(bootstrap_scores, [0.025, 0.975], axis=0)  # (H,) each
    thresholds = np.broadcast_to(np.asarray(threshold, dtype=np.float64), (H,))
    role_scores = []
    for head in range(H):
        score = float(scores[head])
        chance = float(chances[head])
        lift = (score - lowest) / (chance - lowest) if chance > lowest else None
        interval = (float(low[head]), float(high[head])) if np.count_nonzero(tally.rows) > 1 else None
        above_chance = interval is not None and interval[0] > chance
        earned = bool(score >= thresholds[head] and (lift is None or lift >= needed_lift) and above_chance)
        detail = details[head] if details else {}
        role_scores.append(
            RoleScore(score, chance, lift, interval, float(thresholds[head]), earned, int(total), probe, detail)
        )
    return role_scores


@cache
def _bootstrap_counts(n: int, seed: int) -> Floats:
    """Return bootstrap counts (repeats, n): how often each of n sequences occurs in a sample of n with replacement."""
    generator = np.random.Generator(np.random.Philox(seed))
    return generator.multinomial(n, np.full(n, 1 / n), size=REPEATS).astype(np.float64)
