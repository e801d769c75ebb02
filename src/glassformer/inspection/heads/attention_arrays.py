"""Attention weights of one layer as arrays, from which head roles are computed without a model."""

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
class AttentionArrays:
    """Attention weights of one layer with query and key tokens. The arrays are never modified.

    Attributes:
        weights: (N, H, T, S) float64; row i of a head has the weights of query i on each key.
        allowed: (N, T, S) True where the key is visible to the query.
        queries: (N, T) ids of the query tokens.
        keys: (N, S) ids of the key tokens; in self-attention the same as `queries`.
        query_mask: (N, T) bool, False at padding of the queries.
        special: ids of special tokens that are not text: start, end and mask.
        cross: True for cross-attention, where positions of queries and keys do not correspond.
    """

    weights: Floats
    allowed: Bools
    queries: Ids
    keys: Ids
    query_mask: Bools
    special: frozenset[int]
    cross: bool

    @cached_property
    def visible(self) -> Ids:
        """Number of visible keys of each query, (N, T)."""
        return self.allowed.sum(axis=-1)  # (N, T)

    @cached_property
    def special_keys(self) -> Bools:
        """Mask of keys that are special tokens, (N, S)."""
        return np.isin(self.keys, list(self.special))  # (N, S)

    @cached_property
    def rows(self) -> Bools:
        """Mask of queries that head roles are measured on, (N, T): not padding, and with at least two visible keys.

        In self-attention, special tokens are excluded, and so is query 0, because in a decoder it can attend only to
        itself. In cross-attention, special tokens are included, because the token at position 0 predicts the first
        target token.
        """
        rows: Bools = self.query_mask & (self.visible > 1)  # (N, T)
        if self.cross:
            return rows
        rows = rows & ~np.isin(self.queries, list(self.special))  # (N, T)
        rows[:, 0] = False
        return rows

    @cached_property
    def offsets(self) -> Ids:
        """Position of the key minus position of the query, (T, S)."""
        T, S = self.allowed.shape[1:]
        return np.arange(S)[None, :] - np.arange(T)[:, None]  # (T, S)

    def votes(self, candidates: Bools | None = None) -> Floats:
        """Return the votes of the queries, (N, H, T, S): each query gives one vote to the key with the largest weight.

        Tied keys share the vote equally, and all other keys get 0. With this split, ties favour neither near nor far
        keys, and uniform attention scores at chance level. A query without candidates gives no vote.

        Args:
            candidates: (N, T, S) True for keys that can receive votes; None: all visible keys.
        """
        eligible = self.allowed if candidates is None else candidates  # (N, T, S)
        weights = np.where(eligible[:, None], self.weights, -1.0)  # (N, H, T, S)
        largest = (weights == weights.max(axis=-1, keepdims=True)) & eligible[:, None]  # (N, H, T, S)
        return largest / np.maximum(largest.sum(axis=-1, keepdims=True), 1)  # (N, H, T, S)


def make_attention_arrays(
    weights: Any,
    queries: Any,
    keys: Any = None,
    *,
    allowed: Any = None,
    causal: bool = False,
    query_mask: Any = None,
    key_mask: Any = None,
    special: Collection[int] = (),
) -> AttentionArrays:
    """Combine attention weights and token ids (NumPy arrays or torch tensors) into `AttentionArrays`; copy the weights.

    Args:
        weights: attention weights, (N, H, T, S).
        queries: ids of the query tokens, (N, T).
        keys: ids of the key tokens for cross-attention, (N, S); None: self-attention.
        allowed: bool, (N or 1, 1, T, S) or (N or 1, T, S), True where a key is visible; None: derived from `causal`.
            Keys at padding are masked in either case.
        causal: True if each query sees only itself and earlier tokens; ignored if `allowed` is given.
        query_mask: (N, T) bool, False at padding; None: no padding.
        key_mask: (N, S) bool, False at padding; None: `query_mask` for self-attention, no padding for cross-attention.
        special: ids of special tokens that are not text.

    Raises:
        ValueError: the shapes of weights, queries and keys do not match.
    """
    values = _array(weights).astype(np.float64)  # (N, H, T, S), a copy
    query_ids = _array(queries).astype(np.int64)  # (N, T)
    cross = keys is not None
    key_ids = _array(keys).astype(np.int64) if cross else query_ids  # (N, S)
    if values.ndim != 4 or query_ids.shape != (values.shape[0], values.shape[2]):
        raise ValueError(f"weights of shape {values.shape} do not match queries of shape {query_ids.shape}")
    if key_ids.shape != (values.shape[0], values.shape[3]):
        raise ValueError(f"weights of shape {values.shape} do not match keys of shape {key_ids.shape}")
    N, _, T, S = values.shape
    if query_mask is None:
        query_mask = np.ones((N, T), dtype=np.bool_)  # (N, T)
    query_mask = _array(query_mask).astype(np.bool_)  # (N, T)
    if key_mask is None:
        key_mask = np.ones((N, S), dtype=np.bool_) if cross else query_mask  # (N, S)
    key_mask = _array(key_mask).astype(np.bool_)  # (N, S)
    if allowed is None:
        mask = np.tri(T, S, dtype=np.bool_) if causal else np.ones((T, S), dtype=np.bool_)  # (T, S)
    else:
        mask = _array(allowed).astype(np.bool_)  # (N or 1, 1, T, S) or (N, T, S)
        mask = mask[:, 0] if mask.ndim == 4 else mask  # (N or 1, T, S)
    full_mask = np.broadcast_to(mask, (N, T, S)) & key_mask[:, None, :]  # (N, T, S)
    return AttentionArrays(values, full_mask, query_ids, key_ids, query_mask, frozenset(special), cross)


def _array(values: Any) -> npt.NDArray[Any]:
    """Convert an array or tensor to a NumPy array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() and values.dtype.itemsize < 4 else values
        values = values.numpy()
    return np.asarray(values)
