"""Select evenly spaced records of a store. Files are often sorted, so the first records would not be representative."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from glassformer.text.record_store import RecordStore

MOST = 200_000
"""Maximum number of training examples for a baseline."""


def evenly_spaced_texts(
    store: RecordStore, limit: int | None = MOST, mask: NDArray[np.bool_] | None = None
) -> Iterator[tuple[str, ...]]:
    """Yield the texts and labels of at most `limit` records, evenly spaced over the store, in order.

    Args:
        store: records with their texts.
        limit: maximum number of records; None: all.
        mask: (records,) mask of the records that may be selected; None: all.
    """
    selected = np.zeros(len(store), dtype=np.bool_)
    selected[evenly_spaced_records(store, limit, mask)] = True
    return (texts for texts, is_selected in zip(store.texts(), selected, strict=True) if is_selected)


def evenly_spaced_records(
    store: RecordStore, limit: int | None, mask: NDArray[np.bool_] | None = None
) -> NDArray[np.intp]:
    """Return the indices of the records that `evenly_spaced_texts` yields, in order."""
    candidates = np.arange(len(store)) if mask is None else np.flatnonzero(mask)
    count = len(candidates) if limit is None else min(len(candidates), limit)
    return candidates[np.arange(count) * len(candidates) // max(1, count)]
