"""Rows of a cache that go, stay or become several: what a batch that shrinks and a beam search ask for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from glassformer.model.cache import Cache


def select(cache: Cache, rows: Sequence[int]) -> None:
    """Row i becomes what row `rows[i]` was; rows that are not named are forgotten.

    Only what is filled is copied, and only rows that move; in place, unless there are more rows than before. A memory
    goes with its rows: see `sources_of`.

    Args:
        cache: changed in place.
        rows: at least one; where the cache holds a memory, the rows of one source stand side by side.
    """
    old = cache.attention_mask.shape[0]
    length = cache.length
    moves = _Moves(rows, old, cache.attention_mask.device)
    cache.attention_mask = moves.apply(cache.attention_mask, cache.capacity, 1)
    cache.positions = moves.apply(cache.positions, cache.capacity, 1)
    for layer in cache.layers:
        layer.keys = moves.apply(layer.keys, length, 2)
        layer.values = moves.apply(layer.values, length, 2)
    if cache.layers[0].memory is None:
        return
    held = cache.layers[0].memory[0].shape[0]
    of_sources = _Moves(sources_of(rows, old // held), held, cache.attention_mask.device)
    for layer in cache.layers:
        assert layer.memory is not None  # all layers have one, or none
        k, v = layer.memory  # (sources, G, S, K) each
        layer.memory = of_sources.apply(k, k.shape[2], 2), of_sources.apply(v, v.shape[2], 2)


def sources_of(rows: Sequence[int], per_source: int) -> list[int]:
    """The sources that these rows belong to, each once, in the order of the rows.

    >>> sources_of([0, 1, 5, 4], per_source=2)
    [0, 2]
    """
    return [source for source, _ in groupby(row // per_source for row in rows)]


def kept_slots(gone: Sequence[bool]) -> list[int]:
    """The slots that stay. The last ones move into the gaps, so that no more of them move than there are gaps.

    >>> kept_slots([False, True, False, False, True])
    [0, 3, 2]
    """
    slots = list(range(len(gone)))
    for slot in reversed(slots[:]):
        if gone[slot]:
            slots[slot] = slots[-1]
            slots.pop()
    return slots


def batches_by_length(lengths: Sequence[int], rows: int, tokens: int | None = None) -> list[list[int]]:
    """Places of texts of like length, the longest first: little padding, and texts end alike.

    A batch has up to `rows` texts; with `tokens`, also no more than that many tokens, padding included, except where
    one text alone is longer.

    >>> batches_by_length([3, 9, 4, 8, 3], rows=2)
    [[1, 3], [2, 0], [4]]
    >>> batches_by_length([3, 9, 4, 8, 3], rows=4, tokens=10)
    [[1], [3], [2, 0], [4]]
    """
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    batches: list[list[int]] = []
    while order:
        count = rows if tokens is None else max(1, min(rows, tokens // max(lengths[order[0]], 1)))
        batches.append(order[:count])
        order = order[count:]
    return batches


class _Moves:
    """Moves from row to row: worked out once, applied to every tensor of a cache."""

    def __init__(self, rows: Sequence[int], old: int, device: torch.device) -> None:
        self.count = len(rows)
        self.old = old
        moved = [(to, origin) for to, origin in enumerate(rows) if to != origin or self.count > old]
        self.to, self.origin = torch.tensor(moved, dtype=torch.long, device=device).reshape(-1, 2).unbind(dim=1)

    def apply(self, tensor: Tensor, filled: int, dim: int) -> Tensor:
        """The tensor with its rows moved; along `dim`, only the first `filled` places matter."""
        result = tensor
        if self.count > self.old:
            result = tensor.new_empty((self.count, *tensor.shape[1:]))
        if len(self.to):
            copies = tensor.narrow(dim, 0, filled).index_select(0, self.origin)
            result.narrow(dim, 0, filled).index_copy_(0, self.to, copies)
        return result[: self.count]
