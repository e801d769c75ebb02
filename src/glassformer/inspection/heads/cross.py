"""The roles of a head in cross-attention: how target places go with source places."""

from __future__ import annotations

import numpy as np

from glassformer.inspection.heads.attention_arrays import Floats, Looks
from glassformer.inspection.heads.role_scores import RoleTally, mass
from glassformer.inspection.ranks import spearman

ALIGNED = 0.8
"""Rank correlation from which a head is called an alignment head; a threshold of our own."""
COVERED = 0.5
"""A source token is covered when it gets as much weight as half a target token has to give."""


def alignment(looks: Looks) -> RoleTally:
    """Does the head move along the source with the target: Spearman's correlation of i with the key of most weight.

    Special keys cannot be the one; equal largest weights stand at their mean place. Uniform attention has 0.
    One value for each sequence of at least 3 target rows.
    """
    candidates = looks.allowed & ~looks.special_keys[:, None, :]  # (N, T, S)
    places = looks.votes(candidates) @ np.arange(looks.keys.shape[1], dtype=np.float64)  # (N, H, T)
    score = np.zeros(places.shape[:2])
    rows = np.zeros(len(places))
    for number, (row, here) in enumerate(zip(places, looks.rows & candidates.any(axis=-1), strict=True)):
        if here.sum() < 3:
            continue
        rows[number] = 1.0
        score[number] = [spearman(np.arange(here.sum(), dtype=np.float64), head[here]) or 0.0 for head in row]
    return RoleTally(score, np.zeros_like(score), rows)


def end_sink(looks: Looks) -> RoleTally:
    """Weight on the special tokens of the source: its end token, where a head looks that has nothing to do."""
    return mass(looks, np.broadcast_to(looks.special_keys[:, None, :], looks.allowed.shape))


def coverage(looks: Looks) -> Floats:
    """(N, H) share of the source's text tokens that get at least `COVERED` of weight from all target rows together."""
    text = looks.allowed.any(axis=1) & ~looks.special_keys  # (N, S)
    given = np.einsum("nhts,nt->nhs", looks.weights, looks.rows.astype(np.float64))  # (N, H, S)
    covered = (given >= COVERED) & text[:, None]  # (N, H, S)
    return covered.sum(axis=-1) / np.maximum(text.sum(axis=-1), 1)[:, None]


def hidden_weight(looks: Looks) -> Floats:
    """(H,) the largest weight of a real query on a key that is hidden, as padding is: exactly 0 in a right model."""
    hidden = np.where((looks.allowed | ~looks.real[..., None])[:, None], 0.0, looks.weights)  # (N, H, T, S)
    found: Floats = np.abs(hidden).max(axis=(0, 2, 3))
    return found
