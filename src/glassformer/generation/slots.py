"""A cache whose rows come and go: each row has a slot, and its tokens stand from column 0 on, whatever its length.

In `Cache` all rows have one length, so a new row has to be padded to it and columns are used up by whoever is longest.
Here the next token of each row goes where that row ends: nothing is ever shifted, and there are never more columns than
the context has tokens. What a slot holds beyond its row's end is left from others, and nobody sees it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from glassformer.base.config import ModelConfig
from glassformer.model.cache import Cache, LayerCache

COLUMNS = 64  # room is made for so many columns at a time


class SlotCache(Cache):
    """Slots side by side, all of them in use, which a model reads and fills like any cache, one token each time.

    Attributes:
        lengths: tokens of each slot.
        seen: tokens of each slot's memory, where there is one.
    """

    def __init__(self, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(config, 0, 0, device, dtype)
        self.device = device
        self.slots = [SlotLayer(layer.keys.shape, device, dtype) for layer in self.layers]
        self.layers = [*self.slots]
        self.lengths: list[int] = []
        self.seen: list[int] = []
        self.real_memory: Tensor | None = None

    def extend(self, new: int, real: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Note one more token of each slot; what comes back is as in `Cache.extend`."""
        assert new == 1, "a slot grows by one token at a time"
        assert real is None, "a slot holds no padding"
        before = torch.tensor(self.lengths, device=self.device)[:, None]  # (B, 1)
        self.lengths = [length + 1 for length in self.lengths]
        self.length = max(self.lengths)
        ends = (torch.arange(len(self.lengths), device=self.device), before[:, 0])  # (B) each: slots and columns
        for layer in self.slots:
            layer.ends = ends
            layer.length = self.length
        columns = torch.arange(self.length, device=self.device)[None]  # (1, S)
        if min(self.lengths) == self.length:
            return before[:1], columns, None  # (1, 1), (1, S)
        return before, columns, columns <= before  # (B, 1), (1, S), (B, S)

    def add(self, own: Cache, rows: Sequence[int], lengths: Sequence[int], columns: int, seen: Sequence[int]) -> None:
        """Give rows of another cache a slot each, after those that are there.

        Args:
            own: where they were read, from its column 0 on.
            rows, lengths: which of its rows, and how many tokens each has.
            columns: the tokens that the longest of them will have at most; no row may ever have more than was said.
            seen: tokens of the memory that each row looks at; empty where there is none.
        """
        first = len(self.lengths)
        self.lengths += lengths
        self.seen += seen
        self._reserve(len(self.lengths), columns, own)
        for layer, of_rows in zip(self.slots, own.layers, strict=True):
            layer.put(first, of_rows, rows, max(lengths))
        self._count()

    def _reserve(self, slots: int, columns: int, own: Cache) -> None:
        """Make room for so many slots and columns, and for a memory as wide as that of `own`, where there is less."""
        rooms = _with_room([each for layer in self.slots for each in layer.room], slots, columns)
        for layer, *room in zip(self.slots, rooms[::2], rooms[1::2], strict=True):
            layer.room = room
        memories = [each for layer in own.layers for each in layer.memory or ()]  # all layers have one, or none has
        if memories:
            held = [each for layer in self.slots for each in layer.memory_room]
            held = held or [each[:0, :, :0].to(rooms[0].dtype) for each in memories]
            rooms = _with_room(held, slots, memories[0].shape[2])
            for layer, *room in zip(self.slots, rooms[::2], rooms[1::2], strict=True):
                layer.memory_room = room

    def remove(self, slot: int) -> None:
        """Give a slot up; the last one moves into its place."""
        for layer in self.slots:
            layer.move(len(self.lengths) - 1, slot, self.lengths[-1])
        for each in (self.lengths, self.seen):
            if each:
                each[slot] = each[-1]
                each.pop()
        self._count()

    def _count(self) -> None:
        """Show the slots that are in use, and of each memory what is real."""
        for layer in self.slots:
            layer.show(len(self.lengths), max(self.seen, default=0))
        self.real_memory = None
        if self.seen and min(self.seen) < max(self.seen):
            seen = torch.tensor(self.seen, device=self.device)[:, None]  # (B, 1)
            self.real_memory = torch.arange(max(self.seen), device=self.device) < seen  # (B, S)


class SlotLayer(LayerCache):
    """One layer of a `SlotCache`: the room that there is, and the part of it that is in use."""

    def __init__(self, shape: Sequence[int], device: torch.device, dtype: torch.dtype) -> None:
        _, G, _, K = shape
        super().__init__((0, G, 0, K), device, dtype)
        self.room = [self.keys, self.values]  # (slots, G, columns, K) each
        self.memory_room: list[Tensor] = []  # (slots, G, columns, K) each
        self.ends: tuple[Tensor, Tensor] | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keep k and v, (B, G, 1, K), at the end of their rows; return all kept, (B, G, S, K)."""
        slots, columns = self.ends or (None, None)
        self.keys[slots, :, columns] = k[:, :, 0].to(self.keys.dtype)  # (B, G, K)
        self.values[slots, :, columns] = v[:, :, 0].to(self.values.dtype)  # (B, G, K)
        return self.keys.narrow(2, 0, self.length), self.values.narrow(2, 0, self.length)

    def put(self, first: int, own: LayerCache, rows: Sequence[int], length: int) -> None:
        """Copy rows of another layer, and what they remember, into slots from `first` on."""
        last = first + len(rows)
        for room, tensor in zip(self.room, (own.keys, own.values), strict=True):
            room[first:last, :, :length] = tensor[rows, :, :length].to(room.dtype)
        if own.memory is not None:
            width = own.memory[0].shape[2]
            for room, tensor in zip(self.memory_room, own.memory, strict=True):
                room[first:last, :, :width] = tensor[rows].to(room.dtype)

    def move(self, origin: int, to: int, length: int) -> None:
        """Copy one slot over another."""
        if origin == to:
            return
        for room in self.room:
            room[to, :, :length] = room[origin, :, :length]
        for room in self.memory_room:
            room[to] = room[origin]

    def show(self, slots: int, memory: int) -> None:
        """Show the part in use: so many slots, and so many columns of the memory."""
        self.keys, self.values = (each[:slots] for each in self.room)
        if memory:
            k, v = (each[:slots, :, :memory] for each in self.memory_room)  # (B, G, S, K) each
            self.memory = (k, v)


def _with_room(held: Sequence[Tensor], slots: int, columns: int) -> list[Tensor]:
    """Tensors (slots, G, columns, K) with room for so many, and with what they held; slots double, columns step up.

    They are parts of one allocation: a large one goes back to the system when it is given up, while many of middling
    size would leave holes in the memory of the process.
    """
    had, _, had_columns, K = held[0].shape
    if had >= slots and had_columns >= columns:
        return list(held)
    slots = had if had >= slots else max(slots, 2 * had)
    columns = had_columns if had_columns >= columns else -(-columns // COLUMNS) * COLUMNS
    shapes = [(slots, each.shape[1], columns, K) for each in held]
    parts = held[0].new_zeros(sum(map(math.prod, shapes))).split([math.prod(shape) for shape in shapes])
    larger = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
    for new, old in zip(larger, held, strict=True):
        new[:had, :, :had_columns] = old
    return larger
