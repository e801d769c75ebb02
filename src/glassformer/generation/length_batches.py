"""Group texts of similar length, so that batches have little padding."""

from __future__ import annotations

from collections.abc import Sequence


def batches_by_length(lengths: Sequence[int], rows: int, tokens: int | None = None) -> list[list[int]]:
    """Return batches of indices of texts of similar length, longest first.

    A batch has up to `rows` texts and, with `tokens`, at most that many tokens, padding included, unless a single text
    is longer.

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
