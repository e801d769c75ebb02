"""Roles and statistics of cross-attention heads, such as the order in which they read the source."""

from __future__ import annotations

import numpy as np

from glassformer.inspection.heads.attention_arrays import AttentionArrays, Floats
from glassformer.inspection.heads.role_scores import RoleTally, mass
from glassformer.inspection.ranks import spearman

MONOTONE = 0.8
"""Minimum rank correlation for a monotone head; the threshold is this library's choice."""
ALIGNED = 0.5
"""Minimum fraction of the queries of an alignment head; the threshold is this library's choice."""
ALIGNED_LIFT = 2.0
"""Minimum lift of an alignment head: with few source tokens, uniform attention is often right."""
COVERED = 0.5
"""Minimum total weight, summed over target rows, for a source token to count as covered."""


def monotone(arrays: AttentionArrays) -> RoleTally:
    """Compute Spearman's correlation between the target position and the source position with the largest weight.

    Special keys are excluded, and tied keys count at their mean position. Uniform attention scores 0. Each sequence
    with at least 3 target rows gives one value.
    """
    candidates = arrays.allowed & ~arrays.special_keys[:, None, :]  # (N, T, S)
    positions = arrays.votes(candidates) @ np.arange(arrays.keys.shape[1], dtype=np.float64)  # (N, H, T)
    score = np.zeros(positions.shape[:2])
    rows = np.zeros(len(positions))
    for index, (positions_by_head, row_mask) in enumerate(
        zip(positions, arrays.rows & candidates.any(axis=-1), strict=True)
    ):
        if row_mask.sum() < 3:
            continue
        rows[index] = 1.0
        score[index] = [
            spearman(np.arange(row_mask.sum(), dtype=np.float64), head[row_mask]) or 0.0 for head in positions_by_head
        ]
    return RoleTally(score, np.zeros_like(score), rows)


def end_sink(arrays: AttentionArrays) -> RoleTally:
    """Tally the weight on the special tokens of the source, such as its end token, a frequent attention sink."""
    return mass(arrays, np.broadcast_to(arrays.special_keys[:, None, :], arrays.allowed.shape))


def coverage(arrays: AttentionArrays) -> Floats:
    """Return the fraction (N, H) of source text tokens whose total weight over target rows is at least `COVERED`."""
    text = arrays.allowed.any(axis=1) & ~arrays.special_keys  # (N, S)
    received = np.einsum("nhts,nt->nhs", arrays.weights, arrays.rows.astype(np.float64))  # (N, H, S)
    covered = (received >= COVERED) & text[:, None]  # (N, H, S)
    return covered.sum(axis=-1) / np.maximum(text.sum(axis=-1), 1)[:, None]


def hidden_weight(arrays: AttentionArrays) -> Floats:
    """Return the largest weight of each head on a masked key, (H,), which must be 0; queries at padding are ignored."""
    hidden = np.where((arrays.allowed | ~arrays.query_mask[..., None])[:, None], 0.0, arrays.weights)  # (N, H, T, S)
    largest: Floats = np.abs(hidden).max(axis=(0, 2, 3))
    return largest
