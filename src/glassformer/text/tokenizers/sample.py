"""Draw a uniform, reproducible sample of bounded size from a text, for trainers that keep their input in memory."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from random import Random

from glassformer.text.tokenizers.pieces import pieces, utf8

BLOCK = 4096  # characters sampled together: long enough for whole sentences, short enough for a uniform sample
LONGEST_BLOCK = 16 * BLOCK  # a text without a safe position to cut is cut after this length, to bound memory
OVERHEAD = 128  # bytes that Python needs to keep one block; counted, to bound the memory of many tiny documents


def blocks(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts in blocks of about `BLOCK` characters; no block joins two texts."""
    for text in texts:
        for piece in pieces(text, BLOCK):
            for start in range(0, len(piece), LONGEST_BLOCK):
                yield piece[start : start + LONGEST_BLOCK]


def draw(texts: Iterable[str], limit: int, seed: int) -> list[str]:
    """Return a sample of the blocks of the texts, in order, of at most `limit` bytes; all blocks if they fit.

    `OVERHEAD` bytes are counted for each block, and at least one block is kept. Each block gets a random number, and
    the blocks with the smallest numbers are kept (bottom-k sampling: Cohen and Kaplan 2007), so every block has the
    same chance, and the length of the text need not be known. The sample depends only on the texts, the limit and the
    seed.

    Raises:
        GlassError: a text is not valid Unicode.
    """
    random = Random(seed)
    heap: list[tuple[float, int, bytes]] = []  # a heap whose first entry has the largest random number
    size = 0
    for index, block in enumerate(blocks(texts)):
        entry = (-random.random(), index, utf8(block))
        heapq.heappush(heap, entry)
        size += len(entry[2]) + OVERHEAD
        while size > limit and len(heap) > 1:
            size -= len(heapq.heappop(heap)[2]) + OVERHEAD
    heap.sort(key=lambda entry: entry[1])
    return _pop_texts(heap)


def _pop_texts(entries: list[tuple[float, int, bytes]]) -> list[str]:
    """Return the blocks as text; each is removed from `entries` as it is decoded, so only one exists in both forms."""
    entries.reverse()
    texts = []
    while entries:
        texts.append(entries.pop()[2].decode("utf-8"))
    return texts
