"""Find all matches of a text in the training text that cannot be longer, word for word.

The sample becomes a suffix automaton (Blumer et al. 1985), which finds, for every place of another text, the longest
match that ends there, in one pass. Python walks it only where windows of the least length occur in the sample, which
hashes find (see `copying`); a walk is exact, so a hash that only looks alike costs time and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from glassformer.evaluation.copying import BLOCK, EXCERPT, Powers, blocks_of


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
    windows = _Windows(sample, least, Powers(kept + size))
    block = ""
    start = 0
    for piece in blocks_of(training_text, size):
        forget = max(0, len(block) - kept)
        start += forget
        block = block[forget:] + piece
        for low, high in windows.stretches(block):
            automaton.walk(block, low, high, start, least)
    return automaton.matches(least)


def cover(length: int, found: Iterable[Match]) -> list[int]:
    """Return for each character of the sample the length of the longest match that it is part of; 0: of none."""
    longest = [0] * length
    for match in found:
        for place in range(match.start, match.start + match.length):
            longest[place] = max(longest[place], match.length)
    return longest


class _Windows:
    """The windows of one length of a sample, to be found in blocks of text."""

    def __init__(self, sample: str, length: int, powers: Powers) -> None:
        self.length = length
        self.powers = powers
        self.known = np.unique(powers.window_hashes(powers.prefixes(sample), length))

    def stretches(self, block: str) -> Iterator[tuple[int, int]]:
        """Yield the bounds of stretches of a block whose windows, one at each character, all stand in the sample."""
        if len(block) < self.length:
            return
        hashes = self.powers.window_hashes(self.powers.prefixes(block), self.length)
        # The top 16 bits rule most places out at the price of one look-up.
        likely = np.zeros(1 << 16, dtype=bool)
        likely[self.known >> np.uint64(48)] = True
        places = np.flatnonzero(likely[hashes >> np.uint64(48)])
        places = places[np.isin(hashes[places], self.known)]
        if not len(places):
            return
        breaks = np.flatnonzero(np.diff(places) > 1)
        firsts = places[np.concatenate([[0], breaks + 1])]
        lasts = places[np.concatenate([breaks, [len(places) - 1]])]
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            yield first, last + self.length


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

    def walk(self, block: str, low: int, high: int, start: int, least: int) -> None:
        """Meet what block[low:high] has; `start` is the place of the block in the text that it is from."""
        state = length = 0
        first = max(0, low - EXCERPT)
        around = block[first : high + EXCERPT]
        for place in range(low, high):
            letter = block[place]
            while state and letter not in self.next[state]:
                state = self.link[state]
                length = self.length[state]
            if letter in self.next[state]:
                state = self.next[state][letter]
                length += 1
            if length >= least and length > self.best[state]:
                self.best[state] = length
                self.met[state] = start + place + 1, around, place + 1 - first

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
        for end, (place, length) in enumerate(zip(ends, lengths, strict=True)):
            more = end < len(self.text) and lengths[end + 1] == length + 1
            if place is None or length < least or more:
                continue
            met = self.met[place]
            assert met is not None
            stop, around, at = met
            before = around[: at - length][-EXCERPT:]
            after = around[at : at + EXCERPT]
            found.append(Match(end - length, length, stop - length, before, after))
        return sorted(found, key=lambda match: match.start)
