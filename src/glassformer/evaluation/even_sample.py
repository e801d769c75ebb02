"""Select evenly spaced records of a store. Files are often sorted, so the first records would not be representative."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from glassformer.text.record_store import RecordStore

MOST = 200_000
"""Maximum number of training examples for a baseline."""


def drawn_texts(
    store: RecordStore, limit: int | None = MOST, kept: NDArray[np.bool_] | None = None
) -> Iterator[tuple[str, ...]]:
    """Yield the texts and labels of at most `limit` records, evenly spaced over the store, in order.

    Args:
        store: records with their texts.
        limit: maximum number of records; None: all.
        kept: (records,) mask of the records that may be selected; None: all.
    """
    chosen = np.zeros(len(store), dtype=np.bool_)
    chosen[drawn_records(store, limit, kept)] = True
    return (texts for texts, wanted_here in zip(store.texts(), chosen, strict=True) if wanted_here)


def drawn_records(store: RecordStore, limit: int | None, kept: NDArray[np.bool_] | None = None) -> NDArray[np.intp]:
    """Return the indices of the records that `drawn_texts` yields, in order."""
    allowed = np.arange(len(store)) if kept is None else np.flatnonzero(kept)
    wanted = len(allowed) if limit is None else min(len(allowed), limit)
    return allowed[np.arange(wanted) * len(allowed) // max(1, wanted)]
