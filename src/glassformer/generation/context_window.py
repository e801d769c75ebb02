"""Context window: the part of a row of tokens that the model reads, and the maximum length of a target.

**Decoders.** With C the model's context, a row of n tokens is read from token `window_start(n, C)` on, and positions
are counted from there. The start is 0 while n <= C. For longer rows it moves in hops of half a context, so that a cache
can grow between two hops and the model still reads more than half a context. The window depends only on the row's
length, so it is the same with and without a cache, alone and in a batch.

**Targets of an encoder-decoder** have a maximum length instead of a window: without the beginning of the target, the
model would not know which part of the source has already been translated. See `max_new_tokens`.
"""

from __future__ import annotations

from collections.abc import Sequence

from glassformer.base.config import SampleConfig
from glassformer.model.transformer import EncoderDecoder


def hop_length(context: int) -> int:
    """Return the number of tokens that the window moves by: half a context, at least 1."""
    return max(1, context // 2)


def window_start(length: int, context: int) -> int:
    """Return the index of the first token in the window of a row of `length` tokens.

    It is the smallest multiple of `hop_length` that leaves at most `context` tokens.

    >>> [window_start(n, 8) for n in (1, 8, 9, 12, 13)]
    [0, 0, 4, 4, 8]
    """
    hop = hop_length(context)
    return -(-max(0, length - context) // hop) * hop


def window(row: Sequence[int], context: int) -> Sequence[int]:
    """Return the tokens of a row that are in the context window."""
    return row[window_start(len(row), context) :]


def max_new_tokens(model: EncoderDecoder, settings: SampleConfig, prefix_length: int) -> int:
    """Return the maximum number of tokens to generate after a target prefix of `prefix_length` tokens.

    The decoder can read a full context of tokens and then generate one more.
    """
    return min(settings.tokens, model.config.context - prefix_length + 1)
