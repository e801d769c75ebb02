"""The window of a row of tokens that the model sees, and two ways to read it: with a cache, and anew each time.

**Past the context limit.** With C the model's context, a row of n tokens is seen from token `window_start(n, C)` on,
and places are counted from there. The start is 0 while n <= C; then it moves in hops of half a context, so that between
hops a cache can keep growing, and the model always sees more than half of its context. This holds for every kind of
position, with and without a cache, and depends on nothing but the row's own length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from glassformer.generation.fast import FastDecoder, fast_decoder
from glassformer.generation.rows import select
from glassformer.model.cache import Cache
from glassformer.model.transformer import Decoder


def hop_length(context: int) -> int:
    """Return the tokens that the window moves by: half a context, and at least 1."""
    return max(1, context // 2)


def window_start(length: int, context: int) -> int:
    """The first token seen of a row: the smallest multiple of `hop_length` with at most `context` tokens after it.

    >>> [window_start(n, 8) for n in (1, 8, 9, 12, 13)]
    [0, 0, 4, 4, 8]
    """
    hop = hop_length(context)
    return -(-max(0, length - context) // hop) * hop


class Reader(Protocol):
    """Reads rows of tokens and gives the logits of what follows. The rows grow by one token between two reads."""

    def read(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """The next token's logits (rows, V). `rows` are whole: every token from the prompt's first on."""

    def select(self, rows: Sequence[int]) -> None:
        """Row i becomes what row `rows[i]` was; rows that are not named are forgotten."""


class PlainReader:
    """Reads every window anew: slow, and what `CachedReader` must agree with."""

    def __init__(self, model: Decoder) -> None:
        self.model = model

    def read(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """The next token's logits, (rows, V)."""
        return _read_windows(self.model, windows(rows, self.model.config.context), None)

    def select(self, rows: Sequence[int]) -> None:
        """Nothing is kept, so nothing is to do."""


class CachedReader:
    """Reads each token once, until a row's window hops: then that row's window is read again.

    Args:
        model: any decoder.
        longest: tokens that the longest row will have in the end; more are possible, but slower.

    The cache's columns are shared by all rows, and a row's tokens stand at its right end. A row that hops is read into
    a cache of its own, which is then copied over the row's part of the shared one. When the columns are used up, all
    rows are read again.
    """

    def __init__(self, model: Decoder, longest: int) -> None:
        self.model = model
        self.longest = longest
        self.cache: Cache | None = None
        self.fast: FastDecoder | None = None
        self.starts: list[int] = []

    def read(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """The next token's logits, (rows, V)."""
        context = self.model.config.context
        starts = [window_start(len(row), context) for row in rows]
        before = self.starts or starts
        hopped = [slot for slot, start in enumerate(starts) if start != before[slot]]
        self.starts = starts
        if self.cache is None or self.cache.length == self.cache.capacity or len(hopped) == len(rows):
            seen = windows(rows, context)
            self.cache = self._new_cache(seen, max(len(row) for row in rows))
            return _read_windows(self.model, seen, self.cache)
        if hopped:
            self._read_again(self.cache, hopped, [rows[slot][starts[slot] : -1] for slot in hopped])
        last = torch.tensor([row[-1:] for row in rows], device=self.cache.attention_mask.device)  # (rows, 1)
        if self.fast is not None and self.fast.applies():
            return self.fast(last[:, 0], self.cache)
        return _last_logits(self.model, last, None, self.cache)

    def select(self, rows: Sequence[int]) -> None:
        """Row i becomes what row `rows[i]` was."""
        self.starts = [self.starts[row] for row in rows]
        if self.cache is not None:
            select(self.cache, rows)

    def _new_cache(self, seen: list[Sequence[int]], longest_now: int) -> Cache:
        """Room for the windows and for what is still to come; half a context more where rows hop at different times."""
        context = self.model.config.context
        widths = [len(window) for window in seen]
        most = context if min(widths) == max(widths) else context + hop_length(context)
        capacity = min(most, max(widths) + max(1, self.longest - longest_now))
        self.fast = self.fast or fast_decoder(self.model, self.longest - longest_now)
        weight = self.model.embedding.tokens.weight
        dtype = weight.dtype if self.fast is None else self.fast.cache_type
        return Cache(self.model.config, len(seen), capacity, weight.device, dtype)

    def _read_again(self, cache: Cache, slots: list[int], seen: list[Sequence[int]]) -> None:
        """Replace what the cache holds of these rows. Just after a hop all windows have one length: no padding."""
        width = len(seen[0])
        end = cache.length
        device = cache.attention_mask.device
        dtype = cache.layers[0].keys.dtype
        own = Cache(self.model.config, len(slots), width, device, dtype)
        self.model.stack(torch.tensor(seen, device=device), self.model.embedding, cache=own)
        columns = slice(end - width, end)
        cache.attention_mask[slots, :end] = False
        cache.attention_mask[slots, columns] = True
        cache.positions[slots, columns] = own.positions
        cache.padded = True
        for layer, own_layer in zip(cache.layers, own.layers, strict=True):
            layer.keys[slots, :, columns] = own_layer.keys
            layer.values[slots, :, columns] = own_layer.values


def windows(rows: Sequence[Sequence[int]], context: int) -> list[Sequence[int]]:
    """The part of each row that the model sees."""
    return [row[window_start(len(row), context) :] for row in rows]


def _read_windows(model: Decoder, seen: list[Sequence[int]], cache: Cache | None) -> Tensor:
    """Logits after each window, (B, V). Shorter windows are padded on the left, so all end in the last column."""
    device = model.embedding.tokens.weight.device
    width = max(len(window) for window in seen)
    padding = [width - len(window) for window in seen]
    tokens = torch.tensor([[0] * missing + list(w) for missing, w in zip(padding, seen, strict=True)], device=device)
    if not any(padding):
        return _last_logits(model, tokens, None, cache)
    real = torch.arange(width, device=device) >= torch.tensor(padding, device=device)[:, None]  # (B, T)
    return _last_logits(model, tokens, real, cache)


def _last_logits(model: Decoder, tokens: Tensor, real: Tensor | None, cache: Cache | None) -> Tensor:
    """Ids (B, T) -> the last place's logits (B, V): `Decoder.forward` without the logits that nobody looks at."""
    x = model.stack(tokens, model.embedding, real, cache=cache)  # (B, T, D)
    return model.head(x[:, -1:], model.embedding)[:, 0]  # (B, V)
