"""Roles of self-attention heads, each with a score between 0 and 1 and a chance level.

The scores of previous-token, next-token, self and first-token heads (Clark et al. 2019; Olsson et al. 2022; Gu et al.
2025), delimiter heads (Clark et al. 2019, section 3.2), and duplicate-token and induction heads (Olsson et al. 2022,
"prefix matching") are fractions of the attention weight. The scores of positional, rare-word and syntactic heads are
fractions of the rows whose largest weight is on a key of the role (Voita et al. 2019, section 5). Only rows in
`AttentionArrays.rows` count; for all heads except positional ones, the row must also have a visible key of the role.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from glassformer.inspection.heads.attention_arrays import AttentionArrays, Bools, Floats, Ids
from glassformer.inspection.heads.role_scores import RoleTally, mass, tally_values

SINK = 0.3
"""Mean weight on the first token above which a head counts as a sink (Gu et al. 2025)."""
SINK_LENGTH = 64
"""Maximum number of queries over which `sink_weight` is measured."""
POSITIONAL = 0.90
FREQUENT = 500
"""Number of most frequent tokens that do not count as rare words (Voita et al. 2019, section 5.4)."""


@dataclass(frozen=True)
class Role:
    """Role that is scored by the fraction of attention weight on its keys.

    Attributes:
        threshold: minimum score for an earned role.
        pattern: function that returns the mask of the role's keys, (N or 1, T, S).
        probe: name of the probe to measure on: "text", or "repeated" random tokens.
    """

    threshold: float
    pattern: Callable[[AttentionArrays], Bools]
    probe: str = "text"


def at_offset(arrays: AttentionArrays, offset: int) -> Bools:
    """Return a mask (1, T, S), True at the key `offset` positions after each query; negative offsets are before it."""
    return (arrays.offsets == offset)[None]


def first(arrays: AttentionArrays) -> Bools:
    """Return a mask (1, 1, S), True at the first key."""
    return (np.arange(arrays.keys.shape[1]) == 0)[None, None]


def same_before(arrays: AttentionArrays) -> Bools:
    """Return a mask (N, T, S), True at earlier copies of each query's token."""
    same = arrays.queries[:, :, None] == arrays.keys[:, None, :]  # (N, T, S)
    return same & (arrays.offsets < 0)


def after_same_before(arrays: AttentionArrays) -> Bools:
    """Return a mask (N, T, S), True at the tokens that follow earlier copies of each query's token."""
    same = same_before(arrays)  # (N, T, S)
    return np.concatenate([np.zeros_like(same[..., :1]), same[..., :-1]], axis=-1)  # (N, T, S)


ROLES: Mapping[str, Role] = {
    "previous": Role(0.4, lambda arrays: at_offset(arrays, -1)),
    "next": Role(0.4, lambda arrays: at_offset(arrays, 1)),
    "self": Role(0.4, lambda arrays: at_offset(arrays, 0)),
    "first": Role(SINK, first),
    "duplicate": Role(0.4, same_before, probe="repeated"),
    "induction": Role(0.4, after_same_before, probe="repeated"),
}
"""Roles scored by attention weight on their keys.

The threshold is `SINK` for "first" (Gu et al. 2025), and 0.4 for other roles, as in the ARENA course on
interpretability.
"""
DELIMITER = 0.5
RARE = 0.5


def role(arrays: AttentionArrays, name: str) -> RoleTally:
    """Tally the attention weight on the pattern of the role `name` in `ROLES`."""
    return mass(arrays, ROLES[name].pattern(arrays))


def delimiter(arrays: AttentionArrays, marks: Collection[int]) -> RoleTally:
    """Tally the attention weight on special tokens and punctuation.

    Args:
        arrays: attention of a self-attention layer.
        marks: ids of the punctuation: full stop, comma and danda, with or without spaces.
    """
    keys = arrays.special_keys | np.isin(arrays.keys, list(marks))  # (N, S)
    return mass(arrays, np.broadcast_to(keys[:, None, :], arrays.allowed.shape))


def rare_word(arrays: AttentionArrays, counts: Ids) -> RoleTally:
    """Count the rows whose largest weight is on the rarest token of the sequence.

    Sequences in which all tokens are among the `FREQUENT` most frequent ones contribute no rows.

    Args:
        arrays: attention of a self-attention layer.
        counts: (V,) counts of each token in the training text.
    """
    ranks = np.empty(len(counts), dtype=np.int64)  # (V,)
    ranks[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    text = (arrays.allowed & arrays.rows[..., None]).any(axis=1) & ~arrays.special_keys  # (N, S)
    rank = np.where(text, ranks[arrays.keys], -1)  # (N, S)
    rarest = rank.max(axis=-1, keepdims=True)  # (N, 1)
    keys = text & (rank == rarest) & (rarest >= FREQUENT)  # (N, S)
    return voted(arrays, np.broadcast_to(keys[:, None, :], arrays.allowed.shape))


def voted(arrays: AttentionArrays, pattern: Bools, rows: Bools | None = None) -> RoleTally:
    """Count the rows whose largest weight is on a pattern (N, T, S); special keys are excluded (Voita et al. 2019).

    `rows` is as in `role_scores.mass`.
    """
    candidates = arrays.allowed & ~arrays.special_keys[:, None, :]  # (N, T, S)
    return tally_values(arrays, arrays.votes(candidates), pattern, rows, candidates)


def offset_votes(arrays: AttentionArrays, span: int) -> tuple[Floats, Floats, Floats]:
    """Count how often the largest weight is at each offset -span … span, as input for `positional`.

    Returns:
        Counts of the heads, (N, H, 2 span + 1), and of uniform attention, (N, 2 span + 1), and numbers of rows, (N,).
    """
    N, H = arrays.weights.shape[:2]
    votes = arrays.votes() * arrays.rows[:, None, :, None]  # (N, H, T, S)
    uniform_votes = arrays.allowed * (arrays.rows / np.maximum(arrays.visible, 1))[..., None]  # (N, T, S)
    counts = np.zeros((N, H, 2 * span + 1))
    chance = np.zeros((N, 2 * span + 1))
    T, S = arrays.offsets.shape
    for offset in range(max(-span, 1 - T), min(span, S - 1) + 1):
        counts[..., offset + span] = np.trace(votes, offset, axis1=2, axis2=3)  # (N, H)
        chance[:, offset + span] = np.trace(uniform_votes, offset, axis1=1, axis2=2)  # (N,)
    return counts, chance, arrays.rows.sum(axis=-1).astype(np.float64)


def positional(counts: Floats, chance: Floats, rows: Floats) -> tuple[RoleTally, list[int]]:
    """Return the tally of the largest weights at each head's most frequent offset, and a list of these H offsets.

    Args:
        counts, chance, rows: results of `offset_votes` for all sequences.
    """
    span = counts.shape[-1] // 2
    best = counts.sum(axis=0).argmax(axis=-1)  # (H,)
    score = np.take_along_axis(counts, best[None, :, None], axis=-1)[..., 0]  # (N, H)
    return RoleTally(score, chance[:, best], rows), [int(each) - span for each in best]


def sink_weight(arrays: AttentionArrays) -> Floats:
    """Return the mean weight (N, H) on the first key over the first `SINK_LENGTH` queries, including query 0.

    This is α of Gu et al. 2025. A head above `SINK` is a sink; the fraction of sinks is the paper's Sink metric.
    """
    rows = arrays.query_mask & (np.arange(arrays.queries.shape[1]) < SINK_LENGTH)  # (N, T)
    weight_sums = np.einsum("nht,nt->nh", arrays.weights[..., 0], rows.astype(np.float64))  # (N, H)
    return weight_sums / rows.sum(axis=-1)[:, None]
