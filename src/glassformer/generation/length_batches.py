"""Group texts of like length, so that a batch has little padding."""

from __future__ import annotations

from collections.abc import Sequence


def batches_by_length(lengths: Sequence[int], rows: int, tokens: int | None = None) -> list[list[int]]:
    """Return batches of indices of texts of like length, the longest first: texts of a batch end alike, too.

    A batch has up to `rows` texts; with `tokens`, also no more than that many tokens, padding included, except where
    one text alone is longer.

    >>> batches_by_length([3, 9, 4, 8, 3], rows=2)
    [[1, 3], [2, 0], [4]]
    >>> batches_by_length([3, 9, 4, 8, 3], rows=4, tokens=10)
    [[1], [3], [2, 0], [4]]
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batches: list[list[int]] = []
    while order:
        count = rows if tokens is None else max(1, min(rows, tokens // max(lengths[order[0]], 1)))
        batches.append(order[:count])
        order = order[count:]
    return batches
