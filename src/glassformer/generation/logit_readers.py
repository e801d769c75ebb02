"""Readers: read rows of tokens and return next-token logits, with or without a key-value cache.

Generation uses `CachedReader`, or `SlotReader` with another engine. `PlainReader` is the reference for tests and for
`glass verify`, and reads models for which a cache would be wrong (without a causal mask). Rows can be added and removed
at any time. A decoder reads the context window of a row; a row of an encoder-decoder is a target with a source: see
`generation.context_window`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from glassformer.generation.context_window import window
from glassformer.generation.fast import fast_decoder
from glassformer.generation.slot_cache import SlotCache
from glassformer.generation.slot_reader import Engine, NextLogits, SlotReader
from glassformer.model.cache import Cache
from glassformer.model.transformer import Decoder, EncoderDecoder


class Reader(Protocol):
    """Protocol of readers. Between two reads, every row that was read to its end grows by one token.

    Attributes:
        torch_threads: see `Engine`.
    """

    model: Decoder | EncoderDecoder
    torch_threads: int | None

    def add(self, source: Sequence[int] = (), longest: int = 0) -> None:
        """Append a row.

        Args:
            source: source ids of the row, for an encoder-decoder.
            longest: expected final number of tokens, for which memory is reserved.
        """

    def select(self, rows: Sequence[int]) -> None:
        """Reorder, repeat or drop rows: new row i is old row `rows[i]`."""

    def read(self, rows: Sequence[Sequence[int]]) -> NextLogits:
        """Return the next-token logits of each row that is now read to its end; `rows` has all tokens of each row."""


class PlainReader:
    """Reader without a cache: reads every row again for each token."""

    def __init__(self, model: Decoder | EncoderDecoder) -> None:
        self.model = model
        self.torch_threads: int | None = None
        self.sources: list[Sequence[int]] = []

    def add(self, source: Sequence[int] = (), longest: int = 0) -> None:
        """Append a row; see `Reader`."""
        self.sources.append(source)

    def select(self, rows: Sequence[int]) -> None:
        """Reorder, repeat or drop rows: new row i is old row `rows[i]`."""
        self.sources = [self.sources[row] for row in rows]

    def read(self, rows: Sequence[Sequence[int]]) -> NextLogits:
        """Read all rows and return their next-token logits."""
        return NextLogits(list(range(len(rows))), next_logits(self.model, rows, self.sources))


def next_logits(
    model: Decoder | EncoderDecoder, rows: Sequence[Sequence[int]], sources: Sequence[Sequence[int]] = ()
) -> Tensor:
    """Return the next-token logits (rows, V) of rows, or of targets with their sources, without a cache.

    Windows of a decoder are padded on the left, sources and targets on the right.
    """
    device = model.embedding.tokens.weight.device
    if isinstance(model, EncoderDecoder):
        return target_logits(model, sources, rows, None)  # (B, V)
    windows = [window(row, model.config.context) for row in rows]
    width = max(map(len, windows))
    padding = [width - len(each) for each in windows]
    tokens = torch.tensor([[0] * n + list(each) for n, each in zip(padding, windows, strict=True)], device=device)
    attention_mask = None
    if any(padding):
        attention_mask = torch.arange(width, device=device) >= torch.tensor(padding, device=device)[:, None]  # (B, T)
    return _last_logits(model, tokens, attention_mask)  # (B, V)


def make_reader(
    model: Decoder | EncoderDecoder,
    steps: int,
    engine: Engine | None = None,
    limit: int | None = None,
    cached: bool = True,
) -> Reader:
    """Return a reader of a model.

    Args:
        model: model that must not change between two reads.
        steps: approximate number of reads to come.
        engine: engine of this model, which computes the logits; None: PyTorch.
        limit: see `SlotReader`; ignored without a cache.
        cached: whether to use a key-value cache; if not, `steps` and `engine` are ignored too.
    """
    if not cached:
        return PlainReader(model)
    if engine is None:
        return CachedReader(model, steps, limit)
    return SlotReader(model, engine, limit)


class CachedReader(SlotReader):
    """Reader with a key-value cache that computes with PyTorch.

    Args:
        model: model that must not change between two reads, because the cache and copies of its weights would not
            change with it.
        steps: approximate number of reads to come; determines whether reordering the weights is worthwhile.
        limit: see `SlotReader`.
    """

    def __init__(self, model: Decoder | EncoderDecoder, steps: int, limit: int | None = None) -> None:
        engine = TorchEngine(model, steps)
        super().__init__(model, engine, limit)
        self.fast = engine.fast


class TorchEngine:
    """Engine that computes with PyTorch: the model reads prompts, and a `FastDecoder`, if possible, the last tokens.

    Implements `Engine`.
    """

    def __init__(self, model: Decoder | EncoderDecoder, steps: int) -> None:
        self.name = "torch"
        self.torch_threads: int | None = None
        self.model = model
        self.weight = model.embedding.tokens.weight
        self.precision = str(self.weight.dtype).removeprefix("torch.")
        self.fast = fast_decoder(model, steps)
        self.cache_config = model.config
        self.cache_type = self.weight.dtype if self.fast is None else self.fast.cache_type

    def read_last(self, tokens: Tensor, cache: SlotCache) -> Tensor:
        """Read one token per slot, ids (slots), and return next-token logits (slots, V)."""
        if self.fast is not None and self.fast.applies():
            return self.fast(tokens, cache, cache.memory_mask)  # (slots, V)
        if isinstance(self.model, Decoder):
            return _last_logits(self.model, tokens[:, None], None, cache)  # (slots, V)
        memory = self.weight.new_empty(len(tokens), 0, self.weight.shape[1])  # unused: the cache has keys and values
        with cache.memory_of_each_slot() as memory_mask:
            return self.model.decode(tokens[:, None], memory, memory_mask, cache)[:, 0]  # (slots, V)

    def read_prompts(self, tokens: Sequence[Sequence[int]], cache: Cache) -> Tensor:
        """Read chunks of prompts, and return next-token logits (B, V).

        Padding is on the right, where no token attends to it.
        """
        assert isinstance(self.model, Decoder)
        ids, _ = pad_right(tokens, self.weight.device)  # (B, T)
        x = self.model.stack(ids, self.model.embedding, cache=cache)  # (B, T, D)
        return self.model.head(_at_last(x, tokens)[:, None], self.model.embedding)[:, 0]  # (B, V)

    def read_targets(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], cache: Cache) -> Tensor:
        """Encode sources, read their targets so far, and return next-token logits (B, V)."""
        assert isinstance(self.model, EncoderDecoder)
        return target_logits(self.model, sources, targets, cache)  # (B, V)


def target_logits(
    model: EncoderDecoder, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], cache: Cache | None
) -> Tensor:
    """Return the next-token logits (B, V) of targets with their sources; add both to the cache, if given."""
    device = model.embedding.tokens.weight.device
    source, source_mask = pad_right(sources, device)  # (B, S) each
    target, _ = pad_right(targets, device)  # (B, T)
    memory = model.encode(source, source_mask)  # (B, S, D)
    return _at_last(model.decode(target, memory, source_mask, cache), targets)  # (B, V)


def pad_right(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return ids (B, T) padded on the right and their attention mask (B, T), None without padding."""
    lengths = [len(row) for row in rows]
    width = max(lengths)
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)  # (B, T)
    if min(lengths) == width:
        return ids, None
    return ids, torch.arange(width, device=device) < torch.tensor(lengths, device=device)[:, None]  # (B, T)


def _at_last(x: Tensor, rows: Sequence[Sequence[int]]) -> Tensor:
    """Return the vectors (B, D) of x (B, T, D) at the last token of each row; rows are padded on the right."""
    lengths = [len(row) for row in rows]
    if min(lengths) == x.shape[1]:
        return x[:, -1]  # (B, D)
    last = torch.tensor(lengths, device=x.device) - 1  # (B)
    return x[torch.arange(len(rows), device=x.device), last]  # (B, D)


def _last_logits(model: Decoder, tokens: Tensor, attention_mask: Tensor | None, cache: Cache | None = None) -> Tensor:
    """Return the next-token logits (B, V) of ids (B, T): `Decoder.forward` at the last position only."""
    x = model.stack(tokens, model.embedding, attention_mask, cache=cache)  # (B, T, D)
    return model.head(x[:, -1:], model.embedding)[:, 0]  # (B, V)
