"""Read rows of tokens and give the logits of their next tokens: with a cache, and anew for each token.

Generation uses `CachedReader`; `PlainReader` is its oracle, and reads where a cache would be wrong (with the causal
mask removed). Rows join and leave both at any time. A row of a decoder is read in its window; a row of an
encoder-decoder is a target, and has a source: see `generation.context_window`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from glassformer.generation.context_window import window, window_start
from glassformer.generation.fast import fast_decoder
from glassformer.generation.length_batches import batches_by_length
from glassformer.generation.slot_cache import COLUMNS, SlotCache, kept_slots
from glassformer.model.cache import Cache
from glassformer.model.transformer import Decoder, EncoderDecoder

GROUP_TOKENS = {"cpu": 384}
"""Tokens of new rows in one forward pass, padding included, by device: with more, a processor is no faster."""
MOST_GROUP_TOKENS = 16_384  # of other devices


class NextLogits(NamedTuple):
    """Logits of the next tokens.

    Attributes:
        rows: numbers of the rows that were read to their end, in ascending order.
        logits: (rows, V).
    """

    rows: list[int]
    logits: Tensor


class Reader(Protocol):
    """Rows of tokens that grow by one token between two reads."""

    model: Decoder | EncoderDecoder

    def add(self, source: Sequence[int] = (), longest: int = 0) -> None:
        """Append a row.

        Args:
            source: ids that an encoder-decoder reads for it.
            longest: tokens expected in it at its end, for which memory is reserved.
        """

    def select(self, rows: Sequence[int]) -> None:
        """Row i becomes what row `rows[i]` was; rows that are not named are forgotten."""

    def read(self, rows: Sequence[Sequence[int]]) -> NextLogits:
        """Read all rows, given whole, from the first token of the prompt or target on."""


class PlainReader:
    """Reads everything anew for each token."""

    def __init__(self, model: Decoder | EncoderDecoder) -> None:
        self.model = model
        self.sources: list[Sequence[int]] = []

    def add(self, source: Sequence[int] = (), longest: int = 0) -> None:
        """Append a row; see `Reader`."""
        self.sources.append(source)

    def select(self, rows: Sequence[int]) -> None:
        """Row i becomes what row `rows[i]` was."""
        self.sources = [self.sources[row] for row in rows]

    def read(self, rows: Sequence[Sequence[int]]) -> NextLogits:
        """Return next-token logits of all rows, computed without a cache."""
        return NextLogits(list(range(len(rows))), next_logits(self.model, rows, self.sources))


def next_logits(
    model: Decoder | EncoderDecoder, rows: Sequence[Sequence[int]], sources: Sequence[Sequence[int]] = ()
) -> Tensor:
    """Return the logits (rows, V) after whole rows, or after targets of sources, without a cache.

    Windows of a decoder are padded on the left, sources and targets on the right.
    """
    device = model.embedding.tokens.weight.device
    if isinstance(model, EncoderDecoder):
        source, source_mask = pad_right(sources, device)  # (B, S) each
        target, _ = pad_right(rows, device)  # (B, T)
        memory = model.encode(source, source_mask)  # (B, S, D)
        return _at_last(model.decode(target, memory, source_mask), rows)  # (B, V)
    windows = [window(row, model.config.context) for row in rows]
    width = max(map(len, windows))
    padding = [width - len(each) for each in windows]
    tokens = torch.tensor([[0] * n + list(each) for n, each in zip(padding, windows, strict=True)], device=device)
    attention_mask = None
    if any(padding):
        attention_mask = torch.arange(width, device=device) >= torch.tensor(padding, device=device)[:, None]  # (B, T)
    return _last_logits(model, tokens, attention_mask)  # (B, V)


@dataclass
class _RowState:
    """The state of one row in a `CachedReader`.

    Attributes:
        source: of a target.
        longest: tokens expected in it at its end.
        start: first token of the window that its slot holds.
        cache: of a prompt that is being read in pieces.
    """

    source: Sequence[int]
    longest: int
    start: int = 0
    cache: Cache | None = None


class CachedReader:
    """Reads each token once, until the window of a row hops: then that window is read again.

    New rows, and rows that hop, wait for a slot in the cache. One read gives slots to all of them, or with a `limit` to
    as many as it allows, in the order in which they came and those that hop first.

    Args:
        model: may not be changed between two reads: copies of its weights, laid out for speed, are kept.
        steps: reads to come, about: whether that layout repays.
        limit: tokens of waiting rows that one read reads at most; a longer prompt is read in pieces, over several
            reads. So rows that already grow wait for no more than that. None: no limit.
    """

    def __init__(self, model: Decoder | EncoderDecoder, steps: int, limit: int | None = None) -> None:
        self.model = model
        self.limit = limit
        self.context = model.config.context
        self.weight = model.embedding.tokens.weight
        self.fast = fast_decoder(model, steps)
        self.dtype = self.weight.dtype if self.fast is None else self.fast.cache_type
        self.cache = SlotCache(model.config, self.weight.device, self.dtype)
        self.states: list[_RowState] = []
        self.slots: list[int] = []  # the row in each slot
        self.waiting: list[int] = []  # rows without a slot

    def add(self, source: Sequence[int] = (), longest: int = 0) -> None:
        """Append a row; see `Reader`."""
        self.waiting.append(len(self.states))
        self.states.append(_RowState(source, longest))

    def select(self, rows: Sequence[int]) -> None:
        """Row i becomes what row `rows[i]` was; only rows with a slot may be named twice."""
        slot_of = {row: slot for slot, row in enumerate(self.slots)}
        new_of = {row: new for new, row in enumerate(rows)}
        self.states = [self.states[row] for row in rows]
        self.waiting = [new_of[row] for row in self.waiting if row in new_of]
        if not rows:
            self.slots = []
            self.cache = SlotCache(self.model.config, self.weight.device, self.dtype)  # gives its memory back
        elif len(new_of) < len(rows) or self.cache.slots_per_source > 1:
            self.states = [_RowState(state.source, state.longest, state.start) for state in self.states]
            self.slots = list(range(len(rows)))
            self.cache.select([slot_of[row] for row in rows])
        else:  # rows that stay keep their slots: a change of order costs nothing
            kept = kept_slots([row not in new_of for row in self.slots])
            self.slots = [new_of[self.slots[slot]] for slot in kept]
            self.cache.select(kept)

    def read(self, rows: Sequence[Sequence[int]]) -> NextLogits:
        """Read the last token of each row with a slot, and rows that wait."""
        hopping = [row for row in self.slots if len(rows[row]) - self.states[row].start > self.context]
        if hopping:
            kept = kept_slots([row in hopping for row in self.slots])
            self.slots = [self.slots[slot] for slot in kept]
            self.cache.select(kept)
            self.waiting = hopping + self.waiting
        found: list[Tensor] = []
        ready = list(self.slots)
        if ready:
            found.append(self._read_last([rows[row][-1] for row in ready]))
        if self.waiting:
            for group, logits in self._read_waiting(rows):
                ready += group
                found.append(logits)
        if not found:
            return NextLogits([], self.weight.new_empty(0, self.model.vocab_size))
        logits = torch.cat(found) if len(found) > 1 else found[0]  # (rows, V)
        if any(row > following for row, following in pairwise(ready)):
            order = sorted(range(len(ready)), key=ready.__getitem__)
            ready = [ready[place] for place in order]
            logits = logits[order]  # (rows, V)
        return NextLogits(ready, logits)

    def _read_last(self, tokens: list[int]) -> Tensor:
        """Read the last token of each slot: logits (slots, V)."""
        last = torch.tensor(tokens, device=self.weight.device)  # (slots)
        if self.fast is not None and self.fast.applies():
            return self.fast(last, self.cache, self.cache.memory_mask)  # (slots, V)
        if isinstance(self.model, Decoder):
            return _last_logits(self.model, last[:, None], None, self.cache)  # (slots, V)
        memory = self.weight.new_empty(len(tokens), 0, self.weight.shape[1])  # its keys and values are in the cache
        with self.cache.memory_of_each_slot() as memory_mask:
            return self.model.decode(last[:, None], memory, memory_mask, self.cache)[:, 0]  # (slots, V)

    def _read_waiting(self, rows: Sequence[Sequence[int]]) -> list[tuple[list[int], Tensor]]:
        """Read waiting rows and give slots to those read to their end: groups of them, with logits (rows, V)."""
        chosen = self._next_waiting(rows)
        unread = [self._unread(row, rows[row]) for row in chosen]
        if self.limit is not None and isinstance(self.model, Decoder) and len(unread[0]) > self.limit:
            return self._read_piece(chosen, unread[0], rows)
        slots = self._give_slots(chosen, rows)
        found = []
        most = GROUP_TOKENS.get(self.weight.device.type, MOST_GROUP_TOKENS)
        if self.limit is not None:  # rows that join at any time differ in length: small groups have less padding
            most = self.limit // 2
        for group in batches_by_length([len(each) for each in unread], len(chosen), most):
            group.sort()
            numbers = [chosen[place] for place in group]
            alone = len(group) == len(self.slots)
            if isinstance(self.model, Decoder):
                tokens = [unread[place] for place in group]
                own = self._new_cache(tokens, alone)
                logits = self._read_prompts(tokens, own)  # (group, V)
            else:
                own = self._new_cache([rows[row] for row in numbers], alone)
                logits = self._read_targets(numbers, rows, own)  # (group, V)
            self.cache.fill([slots[place] for place in group], own)
            found.append((numbers, logits))
        return found

    def _read_piece(
        self, chosen: list[int], unread: Sequence[int], rows: Sequence[Sequence[int]]
    ) -> list[tuple[list[int], Tensor]]:
        """Read the next `limit` tokens of one long prompt; its row gets a slot when it is read to its end."""
        state = self.states[chosen[0]]
        if state.cache is None:
            state.cache = self._new_cache([unread], alone=False)
        done = state.cache.length
        logits = self._read_prompts([unread[done : done + (self.limit or 0)]], state.cache)  # (1, V)
        if state.cache.length < len(unread):
            return []
        self.cache.fill(self._give_slots(chosen, rows), state.cache)
        state.cache = None
        return [(chosen, logits)]

    def _next_waiting(self, rows: Sequence[Sequence[int]]) -> list[int]:
        """Return the rows that wait longest: one at least, and as many as the limit allows."""
        if self.limit is None:
            return list(self.waiting)
        chosen: list[int] = []
        left = self.limit
        for row in self.waiting:
            length = len(self._unread(row, rows[row]))
            if chosen and length > left:
                break
            left -= length
            chosen.append(row)
        return chosen

    def _unread(self, row: int, tokens: Sequence[int]) -> Sequence[int]:
        """Return the tokens to read of a row without a slot: its source, or its window."""
        return self.states[row].source if isinstance(self.model, EncoderDecoder) else window(tokens, self.context)

    def _give_slots(self, chosen: list[int], rows: Sequence[Sequence[int]]) -> list[int]:
        """Move rows from the waiting ones to new slots; return these."""
        lengths = []
        columns = 0
        for row in chosen:
            state = self.states[row]
            state.start = window_start(len(rows[row]), self.context)
            lengths.append(len(rows[row]) - state.start)
            columns = max(columns, min(self.context, state.longest - state.start))
        if self.limit is not None:  # rows to come may be longer
            columns = min(self.context, -(-columns // COLUMNS) * COLUMNS)
        source_lengths = [len(self.states[row].source) for row in chosen if isinstance(self.model, EncoderDecoder)]
        first = len(self.slots)
        self.cache.add(lengths, columns, source_lengths)
        self.slots += chosen
        gone = set(chosen)
        self.waiting = [row for row in self.waiting if row not in gone]
        return list(range(first, len(self.slots)))

    def _new_cache(self, tokens: Sequence[Sequence[int]], alone: bool) -> Cache:
        """Return a cache for new rows; if no others have slots, with room to grow, so that `SlotCache` can keep it."""
        capacity = max(map(len, tokens))
        if alone:
            capacity = max(capacity, self.cache.expected)
        return Cache(self.model.config, len(tokens), capacity, self.weight.device, self.dtype)

    def _read_prompts(self, tokens: list[Sequence[int]], own: Cache) -> Tensor:
        """Read pieces of prompts: logits (B, V). Shorter ones are padded on the right, where nobody attends."""
        assert isinstance(self.model, Decoder)
        ids, _ = pad_right(tokens, self.weight.device)  # (B, T)
        x = self.model.stack(ids, self.model.embedding, cache=own)  # (B, T, D)
        return self.model.head(_at_last(x, tokens)[:, None], self.model.embedding)[:, 0]  # (B, V)

    def _read_targets(self, numbers: list[int], rows: Sequence[Sequence[int]], own: Cache) -> Tensor:
        """Encode the sources of rows, read their targets so far, and return next-token logits (B, V)."""
        assert isinstance(self.model, EncoderDecoder)
        targets = [rows[row] for row in numbers]
        source, source_mask = pad_right([self.states[row].source for row in numbers], self.weight.device)  # (B, S)
        target, _ = pad_right(targets, self.weight.device)  # (B, T)
        memory = self.model.encode(source, source_mask)  # (B, S, D)
        return _at_last(self.model.decode(target, memory, source_mask, own), targets)  # (B, V)


def pad_right(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return ids (B, T) padded on the right, and their attention mask (B, T); None without padding."""
    lengths = [len(row) for row in rows]
    width = max(lengths)
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)  # (B, T)
    if min(lengths) == width:
        return ids, None
    return ids, torch.arange(width, device=device) < torch.tensor(lengths, device=device)[:, None]  # (B, T)


def _at_last(x: Tensor, rows: Sequence[Sequence[int]]) -> Tensor:
    """Return the vectors (B, D) of x (B, T, D) at the last token of each row, padded on the right."""
    lengths = [len(row) for row in rows]
    if min(lengths) == x.shape[1]:
        return x[:, -1]  # (B, D)
    last = torch.tensor(lengths, device=x.device) - 1  # (B)
    return x[torch.arange(len(rows), device=x.device), last]  # (B, D)


def _last_logits(model: Decoder, tokens: Tensor, attention_mask: Tensor | None, cache: Cache | None = None) -> Tensor:
    """Return the logits (B, V) after ids (B, T): `Decoder.forward` without the logits of earlier positions."""
    x = model.stack(tokens, model.embedding, attention_mask, cache=cache)  # (B, T, D)
    return model.head(x[:, -1:], model.embedding)[:, 0]  # (B, V)
