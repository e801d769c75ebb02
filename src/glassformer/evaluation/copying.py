"""The copy meter: the stretches of a sample that stand word for word in the training text, and where.

The training text is read once, in pieces, so it may be far larger than memory. The sample becomes a suffix automaton
(Blumer et al. 1985), which finds, for every position of another text, the longest match that ends there, in one pass.
Python walks it only where windows of the least length occur in the sample, which polynomial hashes find; a walk is
exact, so a hash that only looks alike costs time and changes nothing.
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


@dataclass(frozen=True)
class Match:
    """A stretch of the sample that stands in the training text, and would not if it were longer on either side.

    Attributes:
        start, length: in characters (Unicode code points) of the sample.
        position: of one place in the training text where it stands, from 0.
        before, after: the training text around that place, up to 40 characters each.
    """

    start: int
    length: int
    position: int
    before: str
    after: str


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
    windows = _Windows(sample, Powers(kept + block_length))
    automaton = _Automaton(sample)
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
        found = _longest_in(block, windows, automaton, longer_than=best.length if best else 0)
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


def _longest_in(block: str, windows: _Windows, automaton: _Automaton, longer_than: int) -> tuple[int, int] | None:
    """Find the longest overlap longer than `longer_than`: where it first begins in `block`, and its length."""
    start: int | None = None
    longest = longer_than
    for low, high in windows.stretches(block, longer_than + 1):
        for position, _, length in automaton.walk(block, low, high):
            if length > longest:
                start = position + 1 - length
                longest = length
    return None if start is None else (start, longest)


def matches(sample: str, training_text: Iterable[str], least: int) -> list[Match]:
    """List all matches of at least so many characters, by where they start in the sample.

    Args:
        sample: text that a model made.
        training_text: pieces of any length, read once.
        least: shorter ones are not looked for; 1 or more.
    """
    if len(sample) < least:
        return []
    automaton = _Automaton(sample)
    size = max(BLOCK, 4 * len(sample))
    kept = len(sample) + EXCERPT  # of the text before a block, for matches that cross its edge
    windows = _Windows(sample, Powers(kept + size))
    block = ""
    start = 0
    for piece in blocks_of(training_text, size):
        forget = max(0, len(block) - kept)
        start += forget
        block = block[forget:] + piece
        for low, high in windows.stretches(block, least):
            automaton.meet(block, low, high, start, least)
    return automaton.matches(least)


def cover(length: int, found: Iterable[Match]) -> list[int]:
    """Return for each character of the sample the length of the longest match that it is part of; 0: of none."""
    longest = [0] * length
    for match in found:
        for position in range(match.start, match.start + match.length):
            longest[position] = max(longest[position], match.length)
    return longest


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
    """The windows of a sample, to be found in blocks of text."""

    def __init__(self, sample: str, powers: Powers) -> None:
        self.powers = powers
        self.sums = powers.prefixes(sample)
        self._known: tuple[int, Hashes] | None = None  # a length, and the hashes of the windows of that length

    def stretches(self, block: str, length: int) -> Iterator[tuple[int, int]]:
        """Yield the bounds of stretches of a block whose windows of this length all stand in the sample."""
        if min(len(block), len(self.sums) - 1) < length:
            return
        known = self._hashes(length)
        hashes = self.powers.window_hashes(self.powers.prefixes(block), length)
        # The top 16 bits rule most positions out at the price of one look-up; the low bits of such hashes are weak.
        likely = np.zeros(1 << 16, dtype=bool)
        likely[known >> np.uint64(48)] = True
        positions = np.flatnonzero(likely[hashes >> np.uint64(48)])
        positions = positions[np.isin(hashes[positions], known)]
        if not len(positions):
            return
        breaks = np.flatnonzero(np.diff(positions) > 1)
        firsts = positions[np.concatenate([[0], breaks + 1])]
        lasts = positions[np.concatenate([breaks, [len(positions) - 1]])]
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            yield first, last + length

    def _hashes(self, length: int) -> Hashes:
        if self._known is None or self._known[0] != length:
            self._known = (length, np.unique(self.powers.window_hashes(self.sums, length)))
        return self._known[1]


class _Automaton:
    """A suffix automaton of a text; a state is the substrings with the same ends, the longest `length` long."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.next: list[dict[str, int]] = [{}]
        self.link = [-1]
        self.length = [0]
        self.prefixes = [0]  # the state of text[:n]
        for letter in text:
            self.prefixes.append(self._add(letter))
        self.best = [0] * len(self.next)  # of each state, the longest of its strings that was met
        # Where it ended, the text around it, and where in that text it ended. Many states share such a text.
        self.met: list[tuple[int, str, int] | None] = [None] * len(self.next)

    def _add(self, letter: str) -> int:
        last = self.prefixes[-1]
        new = self._state({}, -1, self.length[last] + 1)
        while last >= 0 and letter not in self.next[last]:
            self.next[last][letter] = new
            last = self.link[last]
        if last < 0:
            self.link[new] = 0
            return new
        other = self.next[last][letter]
        if self.length[other] == self.length[last] + 1:
            self.link[new] = other
            return new
        clone = self._state(dict(self.next[other]), self.link[other], self.length[last] + 1)
        while last >= 0 and self.next[last].get(letter) == other:
            self.next[last][letter] = clone
            last = self.link[last]
        self.link[other] = self.link[new] = clone
        return new

    def _state(self, following: dict[str, int], link: int, length: int) -> int:
        self.next.append(following)
        self.link.append(link)
        self.length.append(length)
        return len(self.next) - 1

    def walk(self, text: str, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """Yield each position of text[low:high], and the state and length of the longest match that ends there."""
        state = length = 0
        for position in range(low, high):
            letter = text[position]
            while state and letter not in self.next[state]:
                state = self.link[state]
                length = self.length[state]
            if letter in self.next[state]:
                state = self.next[state][letter]
                length += 1
            yield position, state, length

    def meet(self, block: str, low: int, high: int, start: int, least: int) -> None:
        """Note the matches in block[low:high]; `start` is the position of the block in the text that it is from."""
        first = max(0, low - EXCERPT)
        around = block[first : high + EXCERPT]
        for position, state, length in self.walk(block, low, high):
            if length >= least and length > self.best[state]:
                self.best[state] = length
                self.met[state] = start + position + 1, around, position + 1 - first

    def matches(self, least: int) -> list[Match]:
        """List the matches that were met."""
        by_length = sorted(range(1, len(self.next)), key=lambda each: -self.length[each])
        for state in by_length:
            above = self.link[state]  # the strings of that state end every string of this one
            if self.best[state] and above > 0 and self.best[above] < self.length[above]:
                self.best[above] = self.length[above]
                self.met[above] = self.met[state]
        nearest: list[int | None] = [None] * len(self.next)  # of each state: itself, or the next above it, that was met
        for state in reversed(by_length):  # one step for each: a text that repeats itself has very long chains
            nearest[state] = state if self.best[state] else nearest[self.link[state]]
        ends = [nearest[state] for state in self.prefixes]
        lengths = [0 if state is None else self.best[state] for state in ends]
        found = []
        for end, (last, length) in enumerate(zip(ends, lengths, strict=True)):
            more = end < len(self.text) and lengths[end + 1] == length + 1
            if last is None or length < least or more:
                continue
            met = self.met[last]
            assert met is not None
            stop, around, at = met
            before = around[: at - length][-EXCERPT:]
            after = around[at : at + EXCERPT]
            found.append(Match(end - length, length, stop - length, before, after))
        return sorted(found, key=lambda match: match.start)
