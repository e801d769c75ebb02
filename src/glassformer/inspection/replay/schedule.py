"""Steps at which snapshots are taken: a pure function of two settings, the same after a resume.

A run that goes on for longer than was planned has another schedule from then on; `thinned` says which ones it keeps.
"""

from __future__ import annotations

from collections.abc import Iterable

MOST = 64
"""Snapshots of one run, however often it goes on."""
OPEN_END = 1_000_000
"""The last step that a run without a known end has snapshots for; its very last step has one in any case."""


def snapshot_steps(count: int, end: int | None) -> list[int]:
    """Steps from 0 to the end, evenly spaced in their logarithm: dense early, when most changes.

    Neighbours that would fall on the same step stand one apart, and what is left is spread anew.

    Args:
        count: how many; fewer only where the run has fewer steps. One alone is at the end.
        end: the last step; None where it is not known: then one is left for wherever the run ends.

    >>> snapshot_steps(8, 100)
    [0, 1, 2, 5, 10, 22, 46, 100]
    >>> snapshot_steps(1, 100), snapshot_steps(0, 100)
    ([100], [])
    """
    if end is None:
        return snapshot_steps(count, OPEN_END)[:-1]
    if count < 3:
        return [[], [end], [0, end]][count]
    steps = [0, 1]
    while len(steps) < count and steps[-1] < end:
        now = steps[-1]
        steps.append(max(now + 1, round(now * (end / now) ** (1 / (count - len(steps))))))
    return steps


def thinned(steps: Iterable[int], most: int = MOST) -> list[int]:
    """Return the snapshots to keep: the first, the last, and those spread most evenly in their logarithm.

    One at a time goes, the one whose neighbours are nearest to each other, the earliest of several such ones. So it
    makes no difference whether some are thinned before others are added.

    >>> thinned([0, 1, 2, 5, 10, 22, 46, 90, 100], most=8)
    [0, 1, 2, 5, 10, 22, 46, 100]
    """
    kept = sorted(steps)
    while len(kept) > max(2, most):
        ratios = [(after + 1) / (before + 1) for before, after in zip(kept, kept[2:], strict=False)]
        del kept[1 + ratios.index(min(ratios))]
    return kept
