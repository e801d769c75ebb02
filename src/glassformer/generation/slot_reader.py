"""Read rows of different lengths with a slot-based key-value cache.

`SlotReader` decides which tokens are read and where their keys and values are stored. An `Engine` computes the logits.
There are two engines: PyTorch in `generation.logit_readers`, and onnxruntime in `backends.onnx_engine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from glassformer.base.config import ModelConfig
from glassformer.generation.context_window import window, window_start
from glassformer.generation.length_batches import batches_by_length
from glassformer.generation.slot_cache import COLUMNS, SlotCache, remaining_slots
from glassformer.model.cache import Cache
from glassformer.model.transformer import Decoder, EncoderDecoder

GROUP_TOKENS = {"cpu": 384}
"""Device -> maximum number of tokens of waiting rows per forward pass if `SlotReader` has no `limit`, padding included,
unless one row has more. For an encoder-decoder, only source tokens count. Larger groups are not faster on a CPU."""
MOST_GROUP_TOKENS = 16_384  # on other devices


class NextLogits(NamedTuple):
    """Next-token logits of the rows that were read to their end.

    Attributes:
        rows: numbers of these rows, in ascending order.
        logits: (rows, V).
    """

    rows: list[int]
    logits: Tensor


class Engine(Protocol):
    """Protocol of engines, which compute next-token logits and fill the caches of a `SlotReader`.

    Attributes:
        name: name of the library that computes.
        precision: precision of the matrix multiplications, such as float32.
        cache_config: model settings that give the shape of the cached keys and values.
        cache_type: data type of the cached keys and values.
        torch_threads: number of PyTorch's threads for sampling; None: as many as PyTorch uses already. An engine with
            threads of its own sets 1, because idle threads of PyTorch busy-wait and would slow down its threads.
    """

    name: str
    precision: str
    cache_config: ModelConfig
    cache_type: torch.dtype
    torch_threads: int | None

    def read_last(self, tokens: Tensor, cache: SlotCache) -> Tensor:
        """Read one token per slot, ids (slots), into the cache; return next-token logits (slots, V)."""

    def read_prompts(self, tokens: Sequence[Sequence[int]], cache: Cache) -> Tensor:
        """Read decoder prompts, or the next chunk of one prompt, into the cache; return next-token logits (B, V)."""

    def read_targets(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], cache: Cache) -> Tensor:
        """Read sources and targets of an encoder-decoder into the cache; return next-token logits (B, V)."""


@dataclass
class _RowState:
    """State of one row in a `SlotReader`.

    Attributes:
        source: source ids, if the row is a target.
        expected_length: expected final number of tokens.
        start: index, in the row, of the first token of the window that is in the slot.
        cache: cache of a prompt that is being read in chunks.
    """

    source: Sequence[int]
    expected_length: int
    start: int = 0
    cache: Cache | None = None


class SlotReader:
    """Reader with a slot-based key-value cache: reads each token once, and the whole window again when it shifts.

    New rows and rows whose window shifts wait for a slot. Each read gives slots to all waiting rows or, with a `limit`,
    to as many as it allows: shifted rows first, then new rows in order of arrival.

    Args:
        model: model that must not change between two reads, because the cache and the engine's copies of its weights
            (if any) would not change with it.
        engine: engine that computes the logits.
        limit: maximum number of tokens of waiting rows per read, so that running rows are not delayed for long. A
            longer decoder prompt is read in chunks over several reads. For an encoder-decoder, only source tokens
            count, and a longer source is read whole. None: no limit.
    """

    def __init__(self, model: Decoder | EncoderDecoder, engine: Engine, limit: int | None = None) -> None:
        self.model = model
        self.engine = engine
        self.torch_threads = engine.torch_threads
        self.limit = limit
        self.context = model.config.context
        self.weight = model.embedding.tokens.weight
        self.cache = self._new_slots()
        self.states: list[_RowState] = []
        self.slots: list[int] = []  # row in each slot
        self.waiting: list[int] = []  # rows without a slot

    def add(self, source: Sequence[int] = (), longest: int = 0) -> None:
        """Append a row; see `Reader`."""
        self.waiting.append(len(self.states))
        self.states.append(_RowState(source, longest))

    def select(self, rows: Sequence[int]) -> None:
        """Reorder, repeat or drop rows: new row i is old row `rows[i]`.

        If a row is repeated or several slots share a source, every row in `rows` must have a slot.
        """
        slot_of = {row: slot for slot, row in enumerate(self.slots)}
        new_of = {row: new for new, row in enumerate(rows)}
        self.states = [self.states[row] for row in rows]
        self.waiting = [new_of[row] for row in self.waiting if row in new_of]
        if not rows:
            self.slots = []
            self.cache = self._new_slots()  # free the memory of the old cache
        elif len(new_of) < len(rows) or self.cache.slots_per_source > 1:
            self.states = [_RowState(state.source, state.expected_length, state.start) for state in self.states]
            self.slots = list(range(len(rows)))
            self.cache.select([slot_of[row] for row in rows])
        else:  # remaining rows keep their slots, so reordering costs nothing
            remaining = remaining_slots([row not in new_of for row in self.slots])
            self.slots = [new_of[self.slots[slot]] for slot in remaining]
            self.cache.select(remaining)

    def read(self, rows: Sequence[Sequence[int]]) -> NextLogits:
        """Read the last token of each row with a slot, and waiting rows; return the next-token logits."""
        shifted = [row for row in self.slots if len(rows[row]) - self.states[row].start > self.context]
        if shifted:
            remaining = remaining_slots([row in shifted for row in self.slots])
            self.slots = [self.slots[slot] for slot in remaining]
            self.cache.select(remaining)
            self.waiting = shifted + self.waiting
        logits_of_groups: list[Tensor] = []
        ready = list(self.slots)
        if ready:
            last = torch.tensor([rows[row][-1] for row in ready], device=self.weight.device)  # (slots)
            logits_of_groups.append(self.engine.read_last(last, self.cache))
        if self.waiting:
            for group, logits in self._read_waiting(rows):
                ready += group
                logits_of_groups.append(logits)
        if not logits_of_groups:
            return NextLogits([], self.weight.new_empty(0, self.model.vocab_size))
        logits = torch.cat(logits_of_groups) if len(logits_of_groups) > 1 else logits_of_groups[0]  # (rows, V)
        if any(row > following for row, following in pairwise(ready)):
            order = sorted(range(len(ready)), key=ready.__getitem__)
            ready = [ready[index] for index in order]
            logits = logits[order]  # (rows, V)
        return NextLogits(ready, logits)

    def _read_waiting(self, rows: Sequence[Sequence[int]]) -> list[tuple[list[int], Tensor]]:
        """Read waiting rows, give slots to rows read to their end, and return these in groups with logits (rows, V)."""
        chosen = self._next_waiting(rows)
        unread = [self._unread(row, rows[row]) for row in chosen]
        if self.limit is not None and isinstance(self.model, Decoder) and len(unread[0]) > self.limit:
            return self._read_chunk(chosen, unread[0], rows)
        slots = self._assign_slots(chosen, rows)
        groups = []
        max_tokens = GROUP_TOKENS.get(self.weight.device.type, MOST_GROUP_TOKENS)
        if self.limit is not None:  # rows that join at any time differ in length: small groups have less padding
            max_tokens = self.limit // 4
        for group in batches_by_length([len(tokens) for tokens in unread], len(chosen), max_tokens):
            group.sort()
            numbers = [chosen[index] for index in group]
            alone = len(group) == len(self.slots)
            if isinstance(self.model, Decoder):
                tokens = [unread[index] for index in group]
                cache = self._new_cache(tokens, alone)
                logits = self.engine.read_prompts(tokens, cache)  # (group, V)
            else:
                targets = [rows[row] for row in numbers]
                sources = [self.states[row].source for row in numbers]
                cache = self._new_cache(targets, alone)
                logits = self.engine.read_targets(sources, targets, cache)  # (group, V)
            self.cache.fill([slots[index] for index in group], cache)
            groups.append((numbers, logits))
        return groups

    def _read_chunk(
        self, chosen: list[int], unread: Sequence[int], rows: Sequence[Sequence[int]]
    ) -> list[tuple[list[int], Tensor]]:
        """Read the next `limit` tokens of one long prompt; give its row a slot when it is read to its end."""
        state = self.states[chosen[0]]
        if state.cache is None:
            state.cache = self._new_cache([unread], alone=False)
        n_read = state.cache.length
        logits = self.engine.read_prompts([unread[n_read : n_read + (self.limit or 0)]], state.cache)  # (1, V)
        if state.cache.length < len(unread):
            return []
        self.cache.fill(self._assign_slots(chosen, rows), state.cache)
        state.cache = None
        return [(chosen, logits)]

    def _next_waiting(self, rows: Sequence[Sequence[int]]) -> list[int]:
        """Return the first waiting rows: at least one, and as many as the limit allows."""
        if self.limit is None:
            return list(self.waiting)
        chosen: list[int] = []
        budget = self.limit
        for row in self.waiting:
            length = len(self._unread(row, rows[row]))
            if chosen and length > budget:
                break
            budget -= length
            chosen.append(row)
        return chosen

    def _unread(self, row: int, tokens: Sequence[int]) -> Sequence[int]:
        """Return the tokens of a row without a slot that count for the limit: its source, or its context window."""
        return self.states[row].source if isinstance(self.model, EncoderDecoder) else window(tokens, self.context)

    def _assign_slots(self, chosen: list[int], rows: Sequence[Sequence[int]]) -> list[int]:
        """Move waiting rows to new slots; return these slots."""
        lengths = []
        columns = 0
        for row in chosen:
            state = self.states[row]
            state.start = window_start(len(rows[row]), self.context)
            lengths.append(len(rows[row]) - state.start)
            columns = max(columns, min(self.context, state.expected_length - state.start))
        if self.limit is not None:  # later rows may be longer
            columns = min(self.context, -(-columns // COLUMNS) * COLUMNS)
        source_lengths = [len(self.states[row].source) for row in chosen if isinstance(self.model, EncoderDecoder)]
        first = len(self.slots)
        self.cache.add(lengths, columns, source_lengths)
        self.slots += chosen
        with_slots = set(chosen)
        self.waiting = [row for row in self.waiting if row not in with_slots]
        return list(range(first, len(self.slots)))

    def _new_slots(self) -> SlotCache:
        """Return a cache without slots."""
        return SlotCache(self.engine.cache_config, self.weight.device, self.engine.cache_type)

    def _new_cache(self, tokens: Sequence[Sequence[int]], alone: bool) -> Cache:
        """Return a cache for new rows; if `alone`, large enough for `SlotCache` to take it over without a copy."""
        capacity = max(map(len, tokens))
        if alone:
            capacity = max(capacity, self.cache.expected)
        config = self.engine.cache_config
        return Cache(config, len(tokens), capacity, self.weight.device, self.engine.cache_type)
