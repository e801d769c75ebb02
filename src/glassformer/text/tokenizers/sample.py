"""A bounded, even, repeatable draw from a text of any size, for the trainers that keep what they see in memory."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from random import Random

from glassformer.text.tokenizers.pieces import pieces, utf8

BLOCK = 4096  # characters drawn together: long enough for whole sentences, short enough for an even draw
LONGEST_BLOCK = 16 * BLOCK  # where a text offers no place to cut, it is cut anyway: memory comes first
OVERHEAD = 128  # what Python needs to keep one block, so that many tiny documents stay within the bound too


def blocks(texts: Iterable[str]) -> Iterator[str]:
    """The texts as blocks of about `BLOCK` characters; no block joins two texts."""
    for text in texts:
        for piece in pieces(text, BLOCK):
            for start in range(0, len(piece), LONGEST_BLOCK):
                yield piece[start : start + LONGEST_BLOCK]


def draw(texts: Iterable[str], limit: int, seed: int) -> list[str]:
    """At most `limit` bytes of the texts, in their order; everything where everything fits.

    Each block gets a random number and the blocks with the smallest numbers stay (bottom-k sampling: Cohen and Kaplan
    2007), so that every part of the text has the same chance, whatever its place and however long the text turns out
    to be. The draw depends on the texts, the limit and the seed alone.

    Raises:
        GlassError: a text is not valid Unicode.
    """
    random = Random(seed)
    kept: list[tuple[float, int, bytes]] = []  # a heap whose first entry has the largest random number
    size = 0
    for index, block in enumerate(blocks(texts)):
        entry = (-random.random(), index, utf8(block))
        heapq.heappush(kept, entry)
        size += len(entry[2]) + OVERHEAD
        while size > limit and len(kept) > 1:
            size -= len(heapq.heappop(kept)[2]) + OVERHEAD
    kept.sort(key=lambda entry: entry[1])
    return _emptied(kept)


def _emptied(kept: list[tuple[float, int, bytes]]) -> list[str]:
    """The blocks as text, each taken out of `kept` as it is decoded: both forms never stand in memory at once."""
    kept.reverse()
    texts = []
    while kept:
        texts.append(kept.pop()[2].decode("utf-8"))
    return texts
