"""Exact accuracy of simple heuristics on the minimal pairs of `agreement`, by cell.

The design of the pairs is known: chains of 1 to 4 nouns are equally frequent; half of them have no noun before the
subject, a quarter have a noun with the subject's number, and a quarter have a noun with the other number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import mean

from glassformer.corpora.agreement.corpus import CELLS

LENGTHS = (1, 2, 3, 4)


def last_noun() -> Mapping[str, float]:
    """Return the accuracy of predicting the number of the last noun before the verb."""
    return _by_cell(lambda nouns: float(nouns[-1] == "S"))


def first_noun() -> Mapping[str, float]:
    """Return the accuracy of predicting the number of the first noun of the sentence."""
    return _by_cell(lambda nouns: float(nouns[0] == "S"))


def majority() -> Mapping[str, float]:
    """Return the accuracy of predicting the number of most nouns before the verb; a tie is decided at random."""
    return _by_cell(
        lambda nouns: (1 + (nouns.count("S") > nouns.count("P")) - (nouns.count("S") < nouns.count("P"))) / 2
    )


def always_singular() -> Mapping[str, float]:
    """Return the accuracy of always predicting a singular verb."""
    return _by_cell(lambda nouns: 1.0)


def _by_cell(singular: Callable[[str], float]) -> Mapping[str, float]:
    """Return the accuracy by cell; `singular` gives the probability of a singular verb after numbers such as "SPP"."""
    accuracy = {}
    for cell in CELLS:
        subject, other = tuple(cell)
        wrong = "P" if subject == "S" else "S"
        rows = [front + subject + other * length for length in LENGTHS for front in ("", subject, "", wrong)]
        accuracy[cell] = mean(singular(nouns) if subject == "S" else 1 - singular(nouns) for nouns in rows)
    return accuracy
