"""Schedule of snapshots: a pure function of two settings, so that a resumed run has the same schedule.

An extended run continues with a new schedule, and `thinned` selects the snapshots to keep.
"""

from __future__ import annotations

from collections.abc import Iterable

MOST = 64
"""Maximum number of snapshots of one run, however often it is extended."""
OPEN_END = 1_000_000
"""Assumed last step of a run without a known end; the run's final step always gets a snapshot."""


def snapshot_steps(count: int, end: int | None) -> list[int]:
    """Return steps from 0 to the end, evenly spaced on a logarithmic scale: dense early, when the model changes most.

    Steps that would coincide are moved one apart, and the remaining steps are spaced again.

    Args:
        count: maximum number of steps to return; if it is 1, only the last step is returned.
        end: last step; None if unknown, in which case one snapshot is reserved for the final step.

    >>> snapshot_steps(8, 100)
    [0, 1, 2, 4, 9, 20, 45, 100]
    >>> snapshot_steps(1, 100), snapshot_steps(0, 100)
    ([100], [])
    """
    if end is None:
        return snapshot_steps(count, OPEN_END)[:-1]
    if count < 3:
        return [[], [end], [0, end]][count]
    steps = [0, 1]
    while len(steps) < count and steps[-1] < end:
        last = steps[-1]
        steps.append(max(last + 1, round(last * (end / last) ** (1 / (count - len(steps))))))
    return steps


def thinned(steps: Iterable[int], max_count: int = MOST) -> list[int]:
    """Return the steps to keep: the first, the last, and steps that are evenly spaced on a logarithmic scale.

    At most `max_count` steps are kept, but always the first and the last. Steps are removed one at a time: the step
    whose neighbours are closest in ratio, and the earliest one in a tie. Therefore, thinning to a larger number first
    does not change the result.

    >>> thinned([0, 1, 2, 5, 10, 22, 46, 90, 100], max_count=8)
    [0, 1, 2, 5, 10, 22, 46, 100]
    """
    selected = sorted(steps)
    while len(selected) > max(2, max_count):
        ratios = [(after + 1) / (before + 1) for before, after in zip(selected, selected[2:], strict=False)]
        del selected[1 + ratios.index(min(ratios))]
    return selected
