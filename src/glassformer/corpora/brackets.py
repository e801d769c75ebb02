"""`brackets`: balanced brackets of four kinds (a Dyck language).

In "([]{<>})", a closing bracket matches the most recently opened bracket that is still open, at any distance. Documents
have one to `most` pairs of brackets; for each number of pairs, all arrangements and kinds are equally likely.

A minimal pair ends with the closing bracket that is tested. The wrong text ends with another kind of bracket: the kind
of the bracket opened last, if it differs, so that the heuristic "close the bracket opened last" fails. The distance is
the number of brackets between the two matching brackets; each range of distances is used in turn. Nothing is held out:
documents also contain the short texts of minimal pairs, but almost never the long ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from glassformer.corpora.corpus import TEXT_TASKS, MinimalPair, below, generator

KINDS = ("()", "[]", "{}", "<>")
OPENING = {kind[0]: kind[1] for kind in KINDS}
DISTANCES = ((0, 0), (1, 3), (4, 6), (7, 10), (11, 18))
"""(minimum, maximum) of each range of distances, divided by two: numbers of pairs between the two matching brackets."""
PAIRS_FROM = 1 << 32
"""First index of the random generators of minimal pairs; documents start at 0."""


def endings(left: int, depth: int) -> int:
    """Return the number of balanced completions with `left` more brackets when `depth` are open, ignoring kinds.

    `left` and `depth` must be both even or both odd. The results are the ballot numbers (Feller 1968, section III.1);
    from depth 0 they are the Catalan numbers.

    >>> [endings(2 * pairs, 0) for pairs in range(6)]
    [1, 1, 2, 5, 14, 42]
    """
    if depth < 0 or depth > left:
        return 0
    return math.comb(left, (left - depth) // 2) * (depth + 1) // ((left + depth) // 2 + 1)


def draw_word(numbers: random.Random, pairs: int) -> str:
    """Draw a balanced string of `pairs` pairs of brackets; all arrangements and kinds are equally likely."""
    text = ""
    unclosed = ""
    for remaining in range(2 * pairs, 0, -1):
        if below(numbers, endings(remaining, len(unclosed))) < endings(remaining - 1, len(unclosed) + 1):
            kind = KINDS[below(numbers, len(KINDS))]
            text += kind[0]
            unclosed += kind[1]
        else:
            text += unclosed[-1]
            unclosed = unclosed[:-1]
    return text


def closes(text: str) -> bool:
    """Return whether a text consists of balanced brackets."""
    unclosed = ""
    for bracket in text:
        if bracket in OPENING:
            unclosed += OPENING[bracket]
        elif unclosed[-1:] == bracket:
            unclosed = unclosed[:-1]
        else:
            return False
    return not unclosed


def last_opened(text: str) -> str:
    """Return the closing bracket for the bracket opened last, even if it is closed already; "" if none was opened."""
    return next((OPENING[bracket] for bracket in reversed(text) if bracket in OPENING), "")


@dataclass(frozen=True)
class Brackets:
    """The corpus `brackets`: balanced brackets, and minimal pairs.

    Args:
        most: maximum number of pairs of brackets in a document; all numbers from 1 to `most` are equally likely.
    """

    most: int = 20
    name: str = "brackets"
    summary: str = "brackets of four kinds, closed in the right order at any distance: ([]{<>}); minimal pairs"
    tasks: tuple[str, ...] = TEXT_TASKS

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return settings with characters as tokens and one document per row."""
        return {"tokenizer.kind": "characters", "data.windows": "documents", "model.context": str(2 * self.most + 2)}

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """Yield one balanced string per document."""
        for index in range(size):
            numbers = generator(seed, index)
            yield draw_word(numbers, 1 + below(numbers, self.most))

    def minimal_pairs(self, size: int, seed: int) -> Iterator[MinimalPair]:
        """Yield minimal pairs; pair i has a distance in range i, cycling through `DISTANCES`."""
        for index in range(size):
            numbers = generator(seed, PAIRS_FROM + index)
            low, high = DISTANCES[index % len(DISTANCES)]
            pairs_inside = low + below(numbers, high - low + 1)
            pairs_before = below(numbers, self.most - pairs_inside)
            right = KINDS[below(numbers, len(KINDS))]
            text = draw_word(numbers, pairs_before) + right[0] + draw_word(numbers, pairs_inside)
            others = [kind[1] for kind in KINDS if kind != right]
            other = others[below(numbers, len(others))]
            opened = last_opened(text)
            misled = opened != right[1]
            yield MinimalPair(
                good=text + right[1],
                bad=text + (opened if misled else other),
                scored_from=len(text),
                cell=f"distance {2 * low}" + (f" to {2 * high}" if high > low else ""),
                attractors=int(misled),
                twin=index,
            )

    def entropy(self) -> float:
        """Return the entropy in nats per document.

        It is the sum of the entropies of the number of pairs, of their arrangement, and of their kinds.
        """
        return math.fsum(self._negative_log_probability(pairs) for pairs in range(1, self.most + 1)) / self.most

    def log_probability(self, document: str) -> float:
        """Return ln p of a document; minus infinity if it is empty, not balanced, or has more than `most` pairs."""
        pairs = len(document) // 2
        possible = 1 <= pairs <= self.most and closes(document)
        return -self._negative_log_probability(pairs) if possible else -math.inf

    def mean_characters(self) -> float:
        """Return the mean length of a document: two characters for each pair."""
        return float(self.most + 1)

    def _negative_log_probability(self, pairs: int) -> float:
        """Return -ln p of a document with this many pairs."""
        return math.log(self.most) + math.log(endings(2 * pairs, 0)) + pairs * math.log(len(KINDS))
