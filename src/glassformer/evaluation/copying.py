"""The copy meter: the longest stretch of a sample that stands word for word in the training text, and where.

The training text is read once, in pieces, so it may be far larger than memory. Each block of it is compared with all
windows of the sample of one length at once, by polynomial hashes; every hit is checked character by character, so the
answer is exact. A block is searched only for something longer than the best so far: most blocks need one look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 18  # characters looked at together, at least
EXCERPT = 40  # characters shown on each side of an overlap
BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that it has an inverse modulo 2^64

Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Overlap:
    """The longest overlap; of several equally long ones, the first in the training text.

    Args:
        length: in characters (Unicode code points).
        text: the overlap itself.
        position: of its first character in the training text, counted from 0.
        line: of its first character, counted from 1.
        context: the training text there, with up to 40 characters on each side.
    """

    length: int
    text: str
    position: int
    line: int
    context: str


def longest_overlap(sample: str, training_text: Iterable[str]) -> Overlap | None:
    """The longest common substring of `sample` and the pieces of `training_text` joined.

    Args:
        sample: text that a model made.
        training_text: pieces of any length, read once.

    Returns:
        None where not one character of the sample occurs.
    """
    if not sample:
        return None
    block_length = max(BLOCK, 4 * len(sample))
    kept = len(sample) - 1 + EXCERPT  # what an overlap or its excerpt may need of the text before a block
    powers = Powers(kept + block_length)
    windows = _Windows(sample, powers)
    best: Overlap | None = None
    block = ""
    start = 0  # position of `block` in the training text
    lines = 0  # line breaks before it
    for piece in blocks_of(training_text, block_length):
        if best is not None:
            missing = best.position + best.length + EXCERPT - (start + len(block))  # of its excerpt
            if missing > 0:
                best = replace(best, context=best.context + piece[:missing])
            elif best.length == len(sample):
                break
        forget = max(0, len(block) - kept)
        lines += block.count("\n", 0, forget)
        start += forget
        block = block[forget:] + piece
        found = windows.longest_in(block, longer_than=best.length if best else 0)
        if found is not None:
            at, length = found
            best = Overlap(
                length=length,
                text=block[at : at + length],
                position=start + at,
                line=lines + block.count("\n", 0, at) + 1,
                context=block[max(0, at - EXCERPT) : at + length + EXCERPT],
            )
    return best


def blocks_of(pieces: Iterable[str], length: int) -> Iterator[str]:
    """Yield the same text in blocks of `length` characters; the last one is shorter."""
    waiting: list[str] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size < length:
            continue
        text = "".join(waiting)
        whole = size - size % length
        yield from (text[at : at + length] for at in range(0, whole, length))
        waiting = [text[whole:]]
        size -= whole
    if size:
        yield "".join(waiting)


class Powers:
    """BASE^i and its inverse modulo 2^64, for i up to a length; unsigned integers wrap around by themselves."""

    def __init__(self, length: int) -> None:
        self.up = _geometric(BASE, length + 1)
        self.down = _geometric(np.uint64(pow(int(BASE), -1, 1 << 64)), length + 1)

    def prefixes(self, text: str) -> Hashes:
        """Return sums[i] = the sum of character[j] x BASE^j over j < i."""
        return self.sums(np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4"))

    def sums(self, codes: NDArray[np.integer[Any]]) -> Hashes:
        """Return the same sums over any numbers, such as token ids."""
        sums = np.zeros(len(codes) + 1, dtype=np.uint64)
        # One is added so that a run of zeros depends on its length.
        np.cumsum((codes.astype(np.uint64) + np.uint64(1)) * self.up[: len(codes)], out=sums[1:])
        return sums

    def window_hashes(self, sums: Hashes, length: int) -> Hashes:
        """One hash for each window of `length` characters, the same wherever it stands."""
        count = len(sums) - length
        return (sums[length:] - sums[:count]) * self.down[:count]


def _geometric(ratio: np.uint64, length: int) -> Hashes:
    factors = np.full(length, ratio, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)


class _Windows:
    """All windows of a sample, ready to be looked for in blocks of text."""

    def __init__(self, sample: str, powers: Powers) -> None:
        self.sample = sample
        self.powers = powers
        self.sums = powers.prefixes(sample)

    def longest_in(self, block: str, longer_than: int) -> tuple[int, int] | None:
        """Find the longest overlap longer than `longer_than`: where it first begins in `block`, and its length.

        If a window of some length occurs, its shorter parts occur too, so the length can be found by halving; a first
        look at `longer_than` + 1 settles most blocks.
        """
        sums = self.powers.prefixes(block)
        most = min(len(self.sample), len(block))
        low = longer_than
        step = 1
        found: int | None = None
        while low < most:  # grow in doubling steps while there are hits
            tried = min(low + step, most)
            at = self._first(block, sums, tried)
            if at is None:
                most = tried - 1
                break
            found = at
            low = tried
            step = 2 * step
        while found is not None and low < most:
            tried = (low + most + 1) // 2
            at = self._first(block, sums, tried)
            if at is None:
                most = tried - 1
            else:
                found = at
                low = tried
        return None if found is None else (found, low)

    def _first(self, block: str, sums: Hashes, length: int) -> int | None:
        """Return the first position of a window of this length in `block`."""
        wanted = self.powers.window_hashes(self.sums, length)
        order = np.argsort(wanted, kind="stable")
        wanted = wanted[order]
        hashes = self.powers.window_hashes(sums, length)
        # The top 16 bits rule most places out at the price of one look-up; the low bits of such hashes are weak.
        likely = np.zeros(1 << 16, dtype=bool)
        likely[wanted >> np.uint64(48)] = True
        places = np.flatnonzero(likely[hashes >> np.uint64(48)])
        slots = np.minimum(np.searchsorted(wanted, hashes[places]), len(wanted) - 1)
        hits = hashes[places] == wanted[slots]
        for place, slot in zip(places[hits].tolist(), slots[hits].tolist(), strict=True):
            if self._same(block, place, order, wanted, slot, length):
                return int(place)
        return None

    def _same(self, block: str, place: int, order: NDArray[np.intp], wanted: Hashes, slot: int, length: int) -> bool:
        """Return whether any window of the sample with the hash at `slot` really is the text at `place`."""
        text = block[place : place + length]
        value = wanted[slot]
        while slot < len(wanted) and wanted[slot] == value:
            if self.sample.startswith(text, int(order[slot])):
                return True
            slot += 1
        return False
