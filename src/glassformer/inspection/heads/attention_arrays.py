"""Attention of one layer on some sequences, as arrays: head roles are computed from them alone, without a model."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Looks:
    """Attention weights with the tokens that they lie between. The arrays are never written to.

    Attributes:
        weights: (N, H, T, S) float64; row i of a head says how much query i looks at each key.
        allowed: (N, T, S) which keys each query may see.
        queries: (N, T) ids.
        keys: (N, S) ids; in self-attention the same.
        real: (N, T) False at padding.
        special: ids that stand for no text: begin, end, mask.
        cross: whether the keys are those of another sequence, so that places of both do not correspond.
    """

    weights: Floats
    allowed: Bools
    queries: Ids
    keys: Ids
    real: Bools
    special: frozenset[int]
    cross: bool

    @cached_property
    def visible(self) -> Ids:
        """(N, T) how many keys each query may see."""
        return self.allowed.sum(axis=-1)  # (N, T)

    @cached_property
    def special_keys(self) -> Bools:
        """(N, S) which keys stand for no text."""
        return np.isin(self.keys, list(self.special))  # (N, S)

    @cached_property
    def rows(self) -> Bools:
        """(N, T) the queries that can have a role: they are real, stand for text, and have a choice of keys.

        Self-attention leaves out row 0, which in a decoder can look at itself only. In cross-attention every real
        query counts: the special token in row 0 is where the first token of the target is chosen.
        """
        rows: Bools = self.real & (self.visible > 1)  # (N, T)
        if self.cross:
            return rows
        rows = rows & ~np.isin(self.queries, list(self.special))  # (N, T)
        rows[:, 0] = False
        return rows

    @cached_property
    def offsets(self) -> Ids:
        """(T, S) place of the key minus place of the query."""
        T, S = self.allowed.shape[1:]
        return np.arange(S)[None, :] - np.arange(T)[:, None]  # (T, S)

    def votes(self, candidates: Bools | None = None) -> Floats:
        """(N, H, T, S): 1 at the key that a query looks at most; equal largest ones share the vote.

        Sharing treats near and far keys alike, and makes uniform attention score what chance does.

        Args:
            candidates: (N, T, S) keys that can be voted for; None: all that are visible.
        """
        able = self.allowed if candidates is None else candidates  # (N, T, S)
        weights = np.where(able[:, None], self.weights, -1.0)  # (N, H, T, S)
        largest = (weights == weights.max(axis=-1, keepdims=True)) & able[:, None]  # (N, H, T, S)
        return largest / np.maximum(largest.sum(axis=-1, keepdims=True), 1)  # (N, H, T, S)


def looks(
    weights: Any,
    queries: Any,
    keys: Any = None,
    *,
    allowed: Any = None,
    causal: bool = False,
    real: Any = None,
    real_keys: Any = None,
    special: Collection[int] = (),
) -> Looks:
    """Put attention weights (NumPy or torch) and tokens together; nothing that is given is changed.

    Args:
        weights: (N, H, T, S).
        queries: (N, T) ids.
        keys: (N, S) ids of cross-attention; None: self-attention.
        allowed: (N or 1, 1, T, S) or (N, T, S) bool; None: what `causal` and `real_keys` leave open.
        causal: each query sees itself and what came before it.
        real: (N, T) bool, False at padding; None: all real.
        real_keys: (N, S) bool; None: in self-attention as `real`, in cross-attention all real.
        special: ids that stand for no text.

    Raises:
        ValueError: the shapes do not belong together.
    """
    values = _array(weights).astype(np.float64)  # (N, H, T, S), a copy
    ids = _array(queries).astype(np.int64)  # (N, T)
    cross = keys is not None
    others = _array(keys).astype(np.int64) if cross else ids  # (N, S)
    if values.ndim != 4 or ids.shape != (values.shape[0], values.shape[2]):
        raise ValueError(f"weights of shape {values.shape} do not fit queries of shape {ids.shape}")
    if others.shape != (values.shape[0], values.shape[3]):
        raise ValueError(f"weights of shape {values.shape} do not fit keys of shape {others.shape}")
    N, _, T, S = values.shape
    known = np.ones((N, T), dtype=np.bool_) if real is None else _array(real).astype(np.bool_)  # (N, T)
    seen = np.ones((N, S), dtype=np.bool_) if cross or real is None else known  # (N, S)
    if real_keys is not None:
        seen = _array(real_keys).astype(np.bool_)  # (N, S)
    if allowed is None:
        open_ = np.tri(T, S, dtype=np.bool_) if causal else np.ones((T, S), dtype=np.bool_)  # (T, S)
    else:
        open_ = _array(allowed).astype(np.bool_)  # (N or 1, 1, T, S) or (N, T, S)
        open_ = open_[:, 0] if open_.ndim == 4 else open_  # (N or 1, T, S)
    able = np.broadcast_to(open_, (N, T, S)) & seen[:, None, :]  # (N, T, S)
    return Looks(values, able, ids, others, known, frozenset(special), cross)


def _array(values: Any) -> npt.NDArray[Any]:
    """NumPy's view of an array or tensor."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() and values.dtype.itemsize < 4 else values
        values = values.numpy()
    return np.asarray(values)
