"""Rank correlation, for all measures in `glassformer.inspection` that compare two rankings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.floating]


def spearman(first: Numbers, second: Numbers) -> float | None:
    """Return Spearman's correlation of two arrays (n,); tied values get their mean rank. None if an array is constant.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 1000.0, 100.0]))
    0.5
    """
    first_ranks, second_ranks = (centred_ranks(values) for values in (first, second))  # (n,) each
    norm_product = float(np.sqrt((first_ranks @ first_ranks) * (second_ranks @ second_ranks)))
    return float(first_ranks @ second_ranks) / norm_product if norm_product > 0 else None


def centred_ranks(values: Numbers) -> npt.NDArray[np.float64]:
    """Return the ranks (n,) of values (n,), minus their mean."""
    below = (values[:, None] > values).sum(axis=1)  # (n,)
    same = (values[:, None] == values).sum(axis=1)  # (n,)
    ranks = below + same / 2  # (n,)
    centred: npt.NDArray[np.float64] = ranks - ranks.mean()
    return centred
