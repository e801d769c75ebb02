"""Key-value cache with slots: rows join and leave, each row has a slot, and its tokens start at column 0.

In `Cache` all rows have the same length. In `SlotCache` the next token of a row is written at the end of that row, so
nothing is padded or shifted, and there are never more columns in use than the context has tokens. Columns after the end
of a row may contain old values of other rows, which the mask excludes.

The memory of an encoder-decoder is stored once per source, even if several slots attend to it, as the hypotheses of a
beam search do. The slots of a source are adjacent, and all sources have the same number of slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

import torch
from torch import Tensor

from glassformer.base.config import ModelConfig
from glassformer.model.cache import Cache, LayerCache

COLUMNS = 64
"""Number of columns by which the tensors of the cache grow when a row has filled all columns."""


class SlotCache(Cache):
    """Key-value cache with slots, which a model reads and fills like any `Cache`, one token per slot at a time.

    Attributes:
        lengths: number of tokens in each slot.
        source_lengths: number of tokens in the memory of each source; empty without a memory.
        memory_mask: (sources, S) bool, False at padding of the memories; None: no padding.
    """

    def __init__(self, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(config, 0, 0, device, dtype)
        self.device = device
        self.dtype = dtype
        self.slots = [SlotLayer(layer.keys.shape, config.U, device, dtype) for layer in self.layers]
        self.layers = [*self.slots]
        self.columns = torch.arange(config.context, device=device)[None]  # (1, C)
        self.expected = 0  # number of columns to allocate
        self.lengths: list[int] = []
        self.source_lengths: list[int] = []
        self.memory_mask: Tensor | None = None

    @property
    def slots_per_source(self) -> int:
        """Return the number of slots that share a memory; 1 without a memory."""
        return len(self.lengths) // len(self.source_lengths) if self.source_lengths else 1

    def extend(self, new: int, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Extend every slot by one token; return the same as `Cache.extend`."""
        assert new == 1, "a slot grows by one token at a time"
        assert attention_mask is None, "a slot contains no padding"
        longest = max(self.lengths)
        if longest == self.slots[0].allocated[0].shape[2]:
            self._reserve_columns(longest + COLUMNS)
            self._update_views()
        self.length = longest + 1
        ends: int | tuple[Tensor, Tensor]
        mask = None
        keys = self.columns[:, : self.length]  # (1, S)
        if min(self.lengths) == longest:
            ends = longest
            positions = self.columns[:, longest : self.length]  # (1, 1)
        else:
            positions = torch.tensor(self.lengths, device=self.device)[:, None]  # (B, 1)
            ends = (torch.arange(len(self.lengths), device=self.device), positions[:, 0])  # slot and column, (B) each
            mask = keys <= positions  # (B, S)
        for layer in self.slots:
            layer.ends = ends
            layer.length = self.length
        self.lengths = [length + 1 for length in self.lengths]
        return positions, keys, mask

    def add(self, lengths: Sequence[int], columns: int, source_lengths: Sequence[int] = ()) -> None:
        """Append new slots; `fill` then writes the keys and values of their tokens.

        Args:
            lengths: number of tokens in each new slot.
            columns: expected number of tokens in the longest new slot; memory grows if there are more.
            source_lengths: number of tokens in the memory of each new slot; empty without a memory.
        """
        assert self.slots_per_source == 1, "slots are added before they share a memory"
        self.lengths += lengths
        self.source_lengths += source_lengths
        self.expected = max(columns, *self.lengths)

    def fill(self, slots: Sequence[int], other: Cache) -> None:
        """Copy the rows of another cache, and its memory, into slots.

        If the rows fill all slots in order and the other cache is large enough, take over its keys and values without a
        copy.
        """
        if list(slots) == list(range(len(self.lengths))) and other.capacity >= self.expected:
            for layer, other_layer in zip(self.slots, other.layers, strict=True):
                layer.take_over(other_layer)
        else:
            self._reserve_columns(self.expected)
            memories = [tensor for layer in other.layers for tensor in layer.memory or ()]  # in all layers or none
            if memories:
                self._reserve_memory(memories)
            lengths = [self.lengths[slot] for slot in slots]
            for layer, other_layer in zip(self.slots, other.layers, strict=True):
                layer.fill(slots, other_layer, lengths)
        self._update_views()

    def select(self, slots: Sequence[int]) -> None:
        """Reorder, repeat or drop slots: new slot i is old slot `slots[i]`. Drop memories without slots.

        Only the tokens of slots that move are copied, unless there are more new slots than were allocated.
        """
        sources = _sources_of(slots, self.slots_per_source)
        same_sources = not self.source_lengths or sources == list(range(len(self.source_lengths)))
        same = same_sources and len(slots) == len(self.lengths)
        equal_lengths = len(set(self.lengths)) <= 1
        slot_selection = _Selection(slots, self.lengths, equal_lengths, self.device)
        memory_selection = _Selection(sources, self.source_lengths, equal_lengths, self.device)
        self.lengths = [self.lengths[slot] for slot in slots]
        if not same_sources:
            self.source_lengths = [self.source_lengths[source] for source in sources]
        for layer in self.slots:
            layer.allocated = [slot_selection.apply(tensor) for tensor in layer.allocated]
            if not same_sources:
                layer.allocated_memory = [memory_selection.apply(tensor) for tensor in layer.allocated_memory]
            if not same:  # free the old tensors before the next layer
                layer.set_views(len(self.lengths), len(self.source_lengths), max(self.source_lengths, default=0))
        if not same:
            self._update_views()

    @contextmanager
    def memory_of_each_slot(self) -> Iterator[Tensor | None]:
        """Expand the memories to one per slot and yield their mask (slots, S); share them again on exit.

        The model's own attention needs one row of keys for each row of queries.
        """
        n = self.slots_per_source
        shared = [layer.memory for layer in self.slots]
        if n > 1:
            for layer in self.slots:
                assert layer.memory is not None
                k, v = layer.memory  # (sources, G, S, K), (sources, G, S, U)
                layer.memory = (k.repeat_interleave(n, dim=0), v.repeat_interleave(n, dim=0))  # (slots, G, S, K or U)
        try:
            yield None if self.memory_mask is None else self.memory_mask.repeat_interleave(n, dim=0)  # (slots, S)
        finally:
            for layer, memory in zip(self.slots, shared, strict=True):
                layer.memory = memory

    def _reserve_columns(self, columns: int) -> None:
        enlarged = _enlarged([tensor for layer in self.slots for tensor in layer.allocated], len(self.lengths), columns)
        for layer, keys, values in zip(self.slots, enlarged[::2], enlarged[1::2], strict=True):
            layer.allocated = [keys, values]

    def _reserve_memory(self, memories: Sequence[Tensor]) -> None:
        """Allocate tensors for the keys and values of memories (B, G, S, K or U), two tensors per layer."""
        allocated = [tensor for layer in self.slots for tensor in layer.allocated_memory]
        if not allocated:
            allocated = [memory[:0, :, :0].to(self.dtype) for memory in memories]
        enlarged = _enlarged(allocated, len(self.source_lengths), memories[0].shape[2])
        for layer, keys, values in zip(self.slots, enlarged[::2], enlarged[1::2], strict=True):
            layer.allocated_memory = [keys, values]

    def _update_views(self) -> None:
        """Update the tensors that the model reads: the slots in use, and the memories up to the longest source."""
        width = max(self.source_lengths, default=0)
        for layer in self.slots:
            layer.set_views(len(self.lengths), len(self.source_lengths), width)
        self.memory_mask = None
        if self.source_lengths and min(self.source_lengths) < width:
            lengths = torch.tensor(self.source_lengths, device=self.device)[:, None]  # (sources, 1)
            self.memory_mask = torch.arange(width, device=self.device) < lengths  # (sources, S)


class SlotLayer(LayerCache):
    """One layer of a `SlotCache`: the allocated tensors, and views of the part in use."""

    def __init__(self, shape: Sequence[int], value_width: int, device: torch.device, dtype: torch.dtype) -> None:
        _, G, _, K = shape
        super().__init__((0, G, 0, K), value_width, device, dtype)
        self.allocated = [self.keys, self.values]  # (slots, G, columns, K), (slots, G, columns, U)
        self.allocated_memory: list[Tensor] = []  # (sources, G, columns, K or U) each; empty without a memory
        self.ends: int | tuple[Tensor, Tensor] = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append k (B, G, 1, K) and v (B, G, 1, U) to their rows; return all cached keys and values."""
        if isinstance(self.ends, int):  # all rows end in the same column
            self.keys.narrow(2, self.ends, 1).copy_(k)  # (B, G, 1, K)
            self.values.narrow(2, self.ends, 1).copy_(v)  # (B, G, 1, U)
        else:
            slots, columns = self.ends  # (B) each
            self.keys[slots, :, columns] = k[:, :, 0].to(self.keys.dtype)  # (B, G, K)
            self.values[slots, :, columns] = v[:, :, 0].to(self.values.dtype)  # (B, G, U)
        return self.keys.narrow(2, 0, self.length), self.values.narrow(2, 0, self.length)

    def take_over(self, other: LayerCache) -> None:
        """Take over another layer's tensors; only a memory of another data type is copied, to convert it."""
        self.allocated = [other.keys, other.values]
        if other.memory is not None:
            k, v = other.memory  # (sources, G, S, K), (sources, G, S, U)
            self.allocated_memory = [k.to(other.keys.dtype), v.to(other.keys.dtype)]

    def fill(self, slots: Sequence[int], other: LayerCache, lengths: Sequence[int]) -> None:
        """Copy the rows of another layer, of these lengths, and its memory into slots."""
        for target, values in zip(self.allocated, (other.keys, other.values), strict=True):
            for row, (slot, length) in enumerate(zip(slots, lengths, strict=True)):
                target[slot, :, :length] = values[row, :, :length]  # (G, length, K or U)
        if other.memory is not None:
            width = other.memory[0].shape[2]
            for target, values in zip(self.allocated_memory, other.memory, strict=True):
                for row, slot in enumerate(slots):
                    target[slot, :, :width] = values[row]  # (G, width, K or U)

    def set_views(self, slots: int, sources: int, width: int) -> None:
        """Set the views of the first `slots` slots, and of `width` columns of the first `sources` memories."""
        self.keys = self.allocated[0][:slots]  # (B, G, columns, K)
        self.values = self.allocated[1][:slots]  # (B, G, columns, U)
        if sources:
            k, v = (tensor[:sources, :, :width] for tensor in self.allocated_memory)
            self.memory = (k, v)


def remaining_slots(removed: Sequence[bool]) -> list[int]:
    """Return the slots that remain; the last slots fill the gaps, so at most one slot moves per gap.

    >>> remaining_slots([False, True, False, False, True])
    [0, 3, 2]
    """
    slots = list(range(len(removed)))
    for slot in reversed(slots[:]):
        if removed[slot]:
            slots[slot] = slots[-1]
            slots.pop()
    return slots


def _sources_of(slots: Sequence[int], per_source: int) -> list[int]:
    """Return the sources of the slots without repetition, in the order of the slots.

    >>> _sources_of([0, 1, 5, 4], per_source=2)
    [0, 2]
    """
    return [source for source, _ in groupby(slot // per_source for slot in slots)]


class _Selection:
    """Selection of rows, prepared once and applied to every tensor of a cache: new row i is old row `rows[i]`.

    Args:
        rows: indices of rows, possibly repeated.
        lengths: number of columns in use of each old row.
        equal_lengths: whether all slots have the same number of tokens.
        device: device of the tensors.
    """

    def __init__(self, rows: Sequence[int], lengths: Sequence[int], equal_lengths: bool, device: torch.device) -> None:
        self.rows = torch.tensor(rows, dtype=torch.long, device=device)  # (rows)
        self.count = len(rows)
        self.lengths = lengths
        self.filled = max(lengths, default=0)
        self.equal_lengths = equal_lengths
        self.moves = [(to, origin) for to, origin in enumerate(rows) if to != origin]
        self.into_gaps = all(origin >= len(rows) for _, origin in self.moves)  # no row that moves is overwritten
        self.targets = torch.tensor([to for to, _ in self.moves], dtype=torch.long, device=device)  # (moves)
        self.origins = self.rows[self.targets]  # (moves)
        self.buffer: Tensor | None = None  # shared by all tensors, so that it stays in the CPU's cache

    def apply(self, tensor: Tensor) -> Tensor:
        """Select the rows of a tensor (slots, G, columns, K or U), in place unless it has too few slots; return it.

        In a larger tensor, unused columns are zero, because masked values must be finite. If all rows have the same
        length, unused columns are left uninitialized: only beam search repeats rows, and there rows keep equal lengths.
        """
        columns = tensor.narrow(2, 0, self.filled)  # (slots, G, filled, K or U)
        if self.count > tensor.shape[0]:
            larger = tensor.new_empty((self.count, *tensor.shape[1:]))
            larger.narrow(2, 0, self.filled).copy_(columns.index_select(0, self.rows))
            if not self.equal_lengths:
                larger.narrow(2, self.filled, tensor.shape[2] - self.filled).zero_()
            return larger
        if self.into_gaps:
            for to, origin in self.moves:
                length = self.lengths[origin]
                columns[to, :, :length] = columns[origin, :, :length]  # (G, length, K or U)
        else:
            if self.buffer is None or self.buffer.shape[1:] != columns.shape[1:]:  # pruned layers may differ in heads
                self.buffer = columns.new_empty((len(self.moves), *columns.shape[1:]))  # (moves, G, filled, K or U)
            torch.index_select(columns, 0, self.origins, out=self.buffer)
            columns.index_copy_(0, self.targets, self.buffer)
        return tensor


def _enlarged(tensors: Sequence[Tensor], slots: int, columns: int) -> list[Tensor]:
    """Return tensors (slots, G, columns, K or U) of at least this size with the contents of `tensors`.

    The number of slots at least doubles when it grows. Unless the old tensors have no slots, larger tensors are views
    of a single allocation: a large allocation is returned to the system when it is freed, but many medium allocations
    would fragment the memory of the process.
    """
    old_slots, _, old_columns, _ = tensors[0].shape
    if old_slots >= slots and old_columns >= columns:
        return list(tensors)
    if not old_slots:
        return [tensor.new_zeros((slots, tensor.shape[1], columns, tensor.shape[3])) for tensor in tensors]
    slots = old_slots if old_slots >= slots else max(slots, 2 * old_slots)
    columns = max(old_columns, columns)
    shapes = [(slots, tensor.shape[1], columns, tensor.shape[3]) for tensor in tensors]
    parts = tensors[0].new_zeros(sum(map(math.prod, shapes))).split([math.prod(shape) for shape in shapes])
    larger = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
    for new, old in zip(larger, tensors, strict=True):
        new[:old_slots, :, :old_columns] = old
    return larger
