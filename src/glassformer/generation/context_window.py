"""Context window: the part of a row of tokens that a model reads, and the limit of what it writes.

**Past the context.** With C the model's context, a row of n tokens is read from token `window_start(n, C)` on, and
positions are counted from there. The start is 0 while n <= C; then it moves in hops of half a context, so that a cache
can grow between two hops and the model always reads more than half a context. The rule depends on the row's length
only, so it is the same with and without a cache, alone and in a batch.

**Targets of an encoder-decoder** have an end instead of a window, as a target whose beginning is forgotten no longer
tells which part of the source is translated: see `most_tokens`.
"""

from __future__ import annotations

from collections.abc import Sequence

from glassformer.base.config import SampleConfig
from glassformer.model.transformer import EncoderDecoder


def hop_length(context: int) -> int:
    """Return the tokens that the window moves by: half a context, and at least 1."""
    return max(1, context // 2)


def window_start(length: int, context: int) -> int:
    """Return the first token of the window: the smallest multiple of `hop_length` with at most `context` tokens after.

    >>> [window_start(n, 8) for n in (1, 8, 9, 12, 13)]
    [0, 0, 4, 4, 8]
    """
    hop = hop_length(context)
    return -(-max(0, length - context) // hop) * hop


def window(row: Sequence[int], context: int) -> Sequence[int]:
    """Return the part of a row that the model reads."""
    return row[window_start(len(row), context) :]


def most_tokens(model: EncoderDecoder, settings: SampleConfig, begun: int) -> int:
    """Return the most tokens to write after the `begun` tokens that start a target.

    The decoder reads as many tokens as the context has, and writes one more.
    """
    return min(settings.tokens, model.config.context - begun + 1)
