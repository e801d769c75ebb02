"""Records that stand for a whole store, drawn evenly over it: files are often sorted, so the first ones are not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from glassformer.text.record_store import RecordStore

MOST = 200_000
"""Training examples that a baseline is made from."""


def drawn_texts(
    store: RecordStore, limit: int | None = MOST, kept: NDArray[np.bool_] | None = None
) -> Iterator[tuple[str, ...]]:
    """Yield texts and labels of all records, or of so many, evenly drawn by their position, in order.

    Args:
        store: with its texts.
        limit: how many at most; None for all.
        kept: (records,) which may be drawn; None for all.
    """
    chosen = np.zeros(len(store), dtype=np.bool_)
    chosen[drawn_records(store, limit, kept)] = True
    return (texts for texts, wanted_here in zip(store.texts(), chosen, strict=True) if wanted_here)


def drawn_records(store: RecordStore, limit: int | None, kept: NDArray[np.bool_] | None = None) -> NDArray[np.intp]:
    """Return the numbers of the records that `drawn_texts` yields, in order."""
    allowed = np.arange(len(store)) if kept is None else np.flatnonzero(kept)
    wanted = len(allowed) if limit is None else min(len(allowed), limit)
    return allowed[np.arange(wanted) * len(allowed) // max(1, wanted)]
