"""Two ways to read what an encoder-decoder has written so far of its targets: with a cache, and anew each time.

All targets begin with the same tokens, most often the one that also ends them, and have no padding: all rows are
equally long. Several rows may share a source, as the hypotheses of a beam do: they stand side by side, and every source
has the same number of them.

**The context limit.** The decoder reads at most C tokens, C the model's context, the first ones included; having read
C, it can write one more. So a target ends after C written tokens at the latest: see `most_tokens`. Nothing hops here:
a target whose beginning is forgotten would no longer say which part of the source is translated already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from glassformer.base.config import SampleConfig
from glassformer.generation.fast import FastDecoder, fast_decoder
from glassformer.generation.rows import select, sources_of
from glassformer.model.cache import Cache
from glassformer.model.transformer import EncoderDecoder


def most_tokens(model: EncoderDecoder, settings: SampleConfig, begun: int = 1) -> int:
    """Return how many tokens to write at most after `begun` ones: `settings.tokens`, or the room in the context."""
    return min(settings.tokens, model.config.context - begun + 1)


class PlainTargetReader:
    """Reads sources and targets anew for every token: slow, and what `CachedTargetReader` must agree with."""

    def __init__(self, model: EncoderDecoder, sources: Sequence[Sequence[int]]) -> None:
        self.model = model
        self.sources = list(sources)
        self.per_source = 1

    def read(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """The next token's logits, (rows, V)."""
        self.per_source = len(rows) // len(self.sources)
        source, attention_mask = padded(self.sources, _device(self.model))  # (sources, S) each
        target = torch.tensor(rows, device=source.device)  # (rows, T)
        memory = self.model.encode(source, attention_mask)  # (sources, S, D)
        memory = for_each_row(memory, self.per_source)  # (rows, S, D)
        if attention_mask is not None:
            attention_mask = for_each_row(attention_mask, self.per_source)  # (rows, S)
        return self.model.decode(target, memory, attention_mask)[:, -1]  # (rows, V)

    def select(self, rows: Sequence[int]) -> None:
        """Row i becomes what row `rows[i]` was."""
        self.sources = [self.sources[source] for source in sources_of(rows, self.per_source)]


class CachedTargetReader:
    """Encodes the sources once, and reads each target token once.

    Args:
        model: any encoder-decoder.
        sources: one for each row of the first read.
        longest: tokens that are written at most; those that a target begins with come before them.
    """

    def __init__(self, model: EncoderDecoder, sources: Sequence[Sequence[int]], longest: int) -> None:
        self.model = model
        self.longest = longest
        self.sources: Sequence[Sequence[int]] = sources
        self.cache: Cache | None = None
        self.fast: FastDecoder | None = None
        self.memory: Tensor | None = None  # (sources, S, D)
        self.attention_mask: Tensor | None = None  # (sources, S)

    def read(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """The next token's logits, (rows, V)."""
        new = [row[-1:] for row in rows]
        if self.memory is None or self.cache is None:
            weight = self.model.embedding.tokens.weight
            source, self.attention_mask = padded(self.sources, weight.device)  # (sources, S) each
            self.memory = self.model.encode(source, self.attention_mask)  # (sources, S, D)
            new = list(rows)
            longest = self.longest + len(rows[0]) - 1
            self.fast = fast_decoder(self.model, self.longest)
            dtype = weight.dtype if self.fast is None else self.fast.cache_type
            self.cache = Cache(self.model.config, len(rows), longest, weight.device, dtype)
        last = torch.tensor(new, device=self.memory.device)  # (rows, 1), or all that targets begin with
        if self.cache.length and self.fast is not None and self.fast.applies():
            return self.fast(last[:, 0], self.cache, self.attention_mask)  # (rows, V)
        per_source = len(rows) // len(self.memory)
        attention_mask = self.attention_mask  # (sources, S)
        if attention_mask is not None:
            attention_mask = for_each_row(attention_mask, per_source)  # (rows, S)
        with memory_for_each_row(self.cache, per_source):
            return self.model.decode(last, self.memory, attention_mask, self.cache)[:, -1]  # (rows, V)

    def select(self, rows: Sequence[int]) -> None:
        """Row i becomes what row `rows[i]` was; a source without rows is forgotten."""
        if self.memory is None or self.cache is None:
            raise AssertionError("nothing was read yet")
        per_source = self.cache.attention_mask.shape[0] // self.memory.shape[0]
        sources = sources_of(rows, per_source)
        select(self.cache, rows)
        if sources != list(range(self.memory.shape[0])):
            self.memory = self.memory[sources]  # (sources, S, D)
            if self.attention_mask is not None:
                self.attention_mask = self.attention_mask[sources]  # (sources, S)


@contextmanager
def memory_for_each_row(cache: Cache, per_source: int) -> Iterator[None]:
    """Expand the cache's memory keys and values to one for each row; restore one for each source on exit.

    The model attends with one row of keys for each row of queries, while rows of a beam share those of their source.
    """
    shared = [layer.memory for layer in cache.layers]
    if per_source > 1:
        for layer in cache.layers:
            if layer.memory is not None:
                k, v = layer.memory  # (sources, G, S, K) each
                layer.memory = (for_each_row(k, per_source), for_each_row(v, per_source))  # (rows, G, S, K) each
    try:
        yield
    finally:
        if per_source > 1:
            for layer, memory in zip(cache.layers, shared, strict=True):
                layer.memory = memory


def for_each_row(of_sources: Tensor, per_source: int) -> Tensor:
    """Repeat each source's tensor (sources, ...) for each of its rows: (sources x per_source, ...)."""
    return of_sources.repeat_interleave(per_source, dim=0) if per_source > 1 else of_sources


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Ids (B, S), padded on the right, and which are real, (B, S); None where all are."""
    lengths = [len(row) for row in rows]
    width = max(lengths)
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)  # (B, S)
    if min(lengths) == width:
        return ids, None
    return ids, torch.arange(width, device=device) < torch.tensor(lengths, device=device)[:, None]


def _device(model: EncoderDecoder) -> torch.device:
    return model.embedding.tokens.weight.device
