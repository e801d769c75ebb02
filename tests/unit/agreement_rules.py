"""How often simple rules choose the right verb of the minimal pairs of `agreement`, exactly, by cell.

The pairs' design is known: chains of 1 to 4 nouns, equally often; half of them without a noun in front of the subject,
a quarter with one of the subject's number, a quarter with one of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import mean

from glassformer.corpora.agreement.corpus import CELLS

LENGTHS = (1, 2, 3, 4)


def last_noun() -> Mapping[str, float]:
    """The verb has the number of the last noun before it."""
    return _by_cell(lambda nouns: float(nouns[-1] == "S"))


def first_noun() -> Mapping[str, float]:
    """The verb has the number of the first noun of the sentence."""
    return _by_cell(lambda nouns: float(nouns[0] == "S"))


def majority() -> Mapping[str, float]:
    """The verb has the number of most nouns before it; a coin where it is even."""
    return _by_cell(
        lambda nouns: (1 + (nouns.count("S") > nouns.count("P")) - (nouns.count("S") < nouns.count("P"))) / 2
    )


def always_singular() -> Mapping[str, float]:
    """The verb is singular."""
    return _by_cell(lambda nouns: 1.0)


def _by_cell(singular: Callable[[str], float]) -> Mapping[str, float]:
    """`singular`: how likely the rule takes the singular verb after nouns of these numbers, such as "SPP"."""
    accuracy = {}
    for cell in CELLS:
        subject, other = tuple(cell)
        wrong = "P" if subject == "S" else "S"
        rows = [front + subject + other * length for length in LENGTHS for front in ("", subject, "", wrong)]
        accuracy[cell] = mean(singular(nouns) if subject == "S" else 1 - singular(nouns) for nouns in rows)
    return accuracy
