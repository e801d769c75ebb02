"""Turn sums over sequences into a score, its chance level, its interval, and whether a head earned the role's name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from glassformer.inspection.heads.attention_arrays import Bools, Floats, Looks

REPEATS = 1000
LIFT = 5.0
"""A head is named after a role only if it does it so many times as much as uniform attention does."""


@dataclass(frozen=True, eq=False)
class RoleTally:
    """Sums over the rows of each sequence. Batches of sequences are tallied one by one, then joined.

    Attributes:
        score: (N, H) summed over rows.
        chance: (N, H) what uniform attention over the visible keys would have.
        rows: (N,) how many rows each sequence has.
    """

    score: Floats
    chance: Floats
    rows: Floats

    @staticmethod
    def join(tallies: Sequence[RoleTally]) -> RoleTally:
        """The sequences of all of them."""
        parts = zip(*((each.score, each.chance, each.rows) for each in tallies), strict=True)
        return RoleTally(*(np.concatenate(part) for part in parts))


@dataclass(frozen=True)
class RoleScore:
    """The score of one head in one role.

    Attributes:
        score: mean over rows.
        chance: the same for uniform attention over the visible keys; None where the score has no such level.
        lift: score / chance, both counted from the lowest possible score; None where chance has nothing.
        interval: 95 %, by the bootstrap over sequences; None of fewer than two sequences.
        threshold: of the score, for the name.
        earned: the score reaches the threshold, the lift reaches `LIFT`, and the interval is above chance.
        rows: on how many rows it was measured.
        probe: on which texts.
        detail: what else there is to say: the offset of a positional head, the baseline of a syntactic one.
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
        """Return the same scores, earned only if a condition is met as well."""
        return replace(self, earned=self.earned and condition)


def mass(looks: Looks, pattern: Bools, rows: Bools | None = None) -> RoleTally:
    """Tally the weight on a pattern: mean over rows of Σ_j A[i, j] P[i, j].

    Args:
        looks: of any layer.
        pattern: (N or 1, T, S) the keys that belong to the role.
        rows: (N, T) where it is possible, beyond `looks.rows`; None: where the pattern has a visible key.
    """
    return counted(looks, looks.weights, pattern, rows, looks.allowed)


def counted(looks: Looks, values: Floats, pattern: Bools, rows: Bools | None, candidates: Bools) -> RoleTally:
    """`mass` of any (N, H, T, S) values that sum to 1 over the candidates (N, T, S): weights, or votes."""
    wanted = pattern & candidates  # (N, T, S)
    here = looks.rows & (wanted.any(axis=-1) if rows is None else rows)  # (N, T)
    kept = wanted & here[..., None]  # (N, T, S)
    score = np.einsum("nhts,nts->nh", values, kept.astype(np.float64))  # (N, H)
    share = kept.sum(axis=-1) / np.maximum(candidates.sum(axis=-1), 1)  # (N, T)
    chance = np.broadcast_to(share.sum(axis=-1)[:, None], score.shape)  # (N, H)
    return RoleTally(score, chance, here.sum(axis=-1).astype(np.float64))


def judge(
    tally: RoleTally,
    threshold: float | Floats,
    probe: str,
    seed: int = 0,
    lowest: float = 0.0,
    details: Sequence[dict[str, float]] | None = None,
) -> list[RoleScore]:
    """A verdict for each head.

    Args:
        tally: of all sequences.
        threshold: of the score; (H,) where each head has its own.
        probe: what the sequences are.
        seed: of the resampling; no other random numbers are touched.
        lowest: the lowest possible score, from which lift is counted.
        details: for each head.
    """
    N, H = tally.score.shape
    total = tally.rows.sum()
    scores = tally.score.sum(axis=0) / total  # (H,)
    chances = tally.chance.sum(axis=0) / total  # (H,)
    drawn = _counts(N, seed)  # (repeats, N)
    with np.errstate(invalid="ignore"):
        spread = (drawn @ tally.score) / (drawn @ tally.rows)[:, None]  # (repeats, H)
    low, high = np.nanquantile(spread, [0.025, 0.975], axis=0)  # (H,) each
    limits = np.broadcast_to(np.asarray(threshold, dtype=np.float64), (H,))
    found = []
    for head in range(H):
        score = float(scores[head])
        chance = float(chances[head])
        lift = (score - lowest) / (chance - lowest) if chance > lowest else None
        interval = (float(low[head]), float(high[head])) if np.count_nonzero(tally.rows) > 1 else None
        above = interval is not None and interval[0] > chance
        earned = bool(score >= limits[head] and (lift is None or lift >= LIFT) and above)
        detail = details[head] if details else {}
        found.append(RoleScore(score, chance, lift, interval, float(limits[head]), earned, int(total), probe, detail))
    return found


@cache
def _counts(n: int, seed: int) -> Floats:
    """(repeats, n): how often each of n sequences is drawn when n are drawn with replacement."""
    generator = np.random.Generator(np.random.Philox(seed))
    return generator.multinomial(n, np.full(n, 1 / n), size=REPEATS).astype(np.float64)
