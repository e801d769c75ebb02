"""The roles of a head in self-attention: where it looks. Each is a score between 0 and 1 with a chance level.

Previous token, self, first token: shares of weight (Clark et al. 2019; Olsson et al. 2022; Gu et al. 2025). Delimiter:
Clark et al. 2019, section 3.2. Duplicate token and induction: Olsson et al. 2022, "prefix matching". Positional,
rare-word and syntactic heads: Voita et al. 2019, section 5, where the largest weight counts. Only rows where a role is
possible count: `Looks.rows`, and of those the rows where one of its keys is visible.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from glassformer.inspection.heads.attention_arrays import Bools, Floats, Ids, Looks
from glassformer.inspection.heads.role_scores import RoleTally, counted, mass

SINK = 0.3
"""Weight on the first token above which a head counts as a sink (Gu et al. 2025)."""
SINK_LENGTH = 64
"""Tokens over which it is measured there."""
POSITIONAL = 0.90
FREQUENT = 500
"""A rare word is none of the so many most frequent ones (Voita et al. 2019, section 5.4)."""


@dataclass(frozen=True)
class Role:
    """A share of weight.

    Attributes:
        threshold: of the score, for the name.
        pattern: gives the keys that belong to it, (N or 1, T, S).
        probe: the texts on which it is measured: "text", or "repeated" random tokens.
    """

    threshold: float
    pattern: Callable[[Looks], Bools]
    probe: str = "text"


def at_offset(looks: Looks, offset: int) -> Bools:
    """(1, T, S): the key that stands `offset` places after the query."""
    return (looks.offsets == offset)[None]


def first(looks: Looks) -> Bools:
    """Return the mask (1, 1, S) of the first key."""
    return (np.arange(looks.keys.shape[1]) == 0)[None, None]


def same_before(looks: Looks) -> Bools:
    """(N, T, S): earlier copies of the query's token."""
    same = looks.queries[:, :, None] == looks.keys[:, None, :]  # (N, T, S)
    return same & (looks.offsets < 0)


def after_same_before(looks: Looks) -> Bools:
    """(N, T, S): what followed earlier copies of the query's token."""
    same = same_before(looks)  # (N, T, S)
    return np.concatenate([np.zeros_like(same[..., :1]), same[..., :-1]], axis=-1)  # (N, T, S)


ROLES: Mapping[str, Role] = {
    "previous": Role(0.4, lambda looks: at_offset(looks, -1)),
    "next": Role(0.4, lambda looks: at_offset(looks, 1)),
    "self": Role(0.4, lambda looks: at_offset(looks, 0)),
    "first": Role(SINK, first),
    "duplicate": Role(0.4, same_before, probe="repeated"),
    "induction": Role(0.4, after_same_before, probe="repeated"),
}
"""Roles that are a share of weight; thresholds as in the literature named above and in ARENA's detectors (0.4)."""
DELIMITER = 0.5
RARE = 0.5


def role(looks: Looks, name: str) -> RoleTally:
    """Tally the attention weight on the pattern of the role `name` in `ROLES`."""
    return mass(looks, ROLES[name].pattern(looks))


def delimiter(looks: Looks, marks: Collection[int]) -> RoleTally:
    """Weight on special tokens and on full stops and commas.

    Args:
        looks: of self-attention.
        marks: ids of the full stop and the comma, in all their forms.
    """
    keys = looks.special_keys | np.isin(looks.keys, list(marks))  # (N, S)
    return mass(looks, np.broadcast_to(keys[:, None, :], looks.allowed.shape))


def rare_word(looks: Looks, counts: Ids) -> RoleTally:
    """Count how often the largest weight is on the rarest token of the sequence.

    Args:
        looks: of self-attention.
        counts: (V,) how often each token stands in the training text. Sequences without a token outside the
            `FREQUENT` most frequent ones have no rows.
    """
    ranks = np.empty(len(counts), dtype=np.int64)  # (V,)
    ranks[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    text = (looks.allowed & looks.rows[..., None]).any(axis=1) & ~looks.special_keys  # (N, S)
    place = np.where(text, ranks[looks.keys], -1)  # (N, S)
    rarest = place.max(axis=-1, keepdims=True)  # (N, 1)
    keys = text & (place == rarest) & (rarest >= FREQUENT)  # (N, S)
    return voted(looks, np.broadcast_to(keys[:, None, :], looks.allowed.shape))


def voted(looks: Looks, pattern: Bools, rows: Bools | None = None) -> RoleTally:
    """Count how often the largest weight is on a pattern (N, T, S); special keys cannot have it (Voita et al. 2019)."""
    candidates = looks.allowed & ~looks.special_keys[:, None, :]  # (N, T, S)
    return counted(looks, looks.votes(candidates), pattern, rows, candidates)


def offset_votes(looks: Looks, span: int) -> tuple[Floats, Floats, Floats]:
    """Count how often the largest weight is at each offset -span … span, for `positional` to choose from.

    Returns:
        Votes (N, H, 2 span + 1), the chance of each (N, 2 span + 1), rows (N,).
    """
    N, H = looks.weights.shape[:2]
    votes = looks.votes() * looks.rows[:, None, :, None]  # (N, H, T, S)
    share = looks.allowed * (looks.rows / np.maximum(looks.visible, 1))[..., None]  # (N, T, S)
    found = np.zeros((N, H, 2 * span + 1))
    chance = np.zeros((N, 2 * span + 1))
    T, S = looks.offsets.shape
    for offset in range(max(-span, 1 - T), min(span, S - 1) + 1):
        found[..., offset + span] = np.trace(votes, offset, axis1=2, axis2=3)  # (N, H)
        chance[:, offset + span] = np.trace(share, offset, axis1=1, axis2=2)  # (N,)
    return found, chance, looks.rows.sum(axis=-1).astype(np.float64)


def positional(found: Floats, chance: Floats, rows: Floats) -> tuple[RoleTally, list[int]]:
    """The share of the largest weights that is at one offset, the best one of each head, and these offsets.

    Args:
        found, chance, rows: of all sequences, as `offset_votes` gives them.
    """
    span = found.shape[-1] // 2
    best = found.sum(axis=0).argmax(axis=-1)  # (H,)
    score = np.take_along_axis(found, best[None, :, None], axis=-1)[..., 0]  # (N, H)
    return RoleTally(score, chance[:, best], rows), [int(each) - span for each in best]


def sink_weight(looks: Looks) -> Floats:
    """(N, H) mean weight on the first key over the first `SINK_LENGTH` rows, row 0 included: α of Gu et al. 2025.

    A head with more than `SINK` is a sink; the share of such heads is their Sink metric.
    """
    rows = looks.real & (np.arange(looks.queries.shape[1]) < SINK_LENGTH)  # (N, T)
    taken = np.einsum("nht,nt->nh", looks.weights[..., 0], rows.astype(np.float64))  # (N, H)
    return taken / rows.sum(axis=-1)[:, None]
