"""Heuristics for minimal pairs: simple functions that do not use the grammatical rule under test.

Each heuristic takes a pair and returns a positive number if it prefers `good`, 0 if it has no preference, and a
negative number otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from glassformer.corpora import MinimalPair
from glassformer.corpora.agreement.items import NOUNS, NUMBERS, form
from glassformer.corpora.brackets import last_opened
from glassformer.corpora.coreference import ANIMAL_ADJECTIVES, ANIMALS, ROLES, THINGS

Heuristic = Callable[[MinimalPair], float]
_NUMBER_OF = {form(noun, number): number for noun in NOUNS for number in NUMBERS}
_ROLE_OF = dict.fromkeys(ANIMALS, "animal") | dict.fromkeys(THINGS, "thing")


def numbers_of_nouns(text: str) -> str:
    """Return the grammatical numbers (S or P) of the nouns in a sentence of `agreement`, in order, such as "SPP".

    In these sentences, all nouns precede the main verb.

    >>> numbers_of_nouns("The keys to the cabinet are old.")
    'PS'
    """
    return "".join(_NUMBER_OF[noun] for noun in re.findall(r"\bthe (\w+)", text.lower()))


def _agreement_heuristic(number: Callable[[str], str]) -> Heuristic:
    """Return the heuristic that predicts the verb's number by calling `number` with the nouns' numbers.

    If `number` returns an empty string, the heuristic has no preference.
    """

    def rule(pair: MinimalPair) -> float:
        predicted = number(numbers_of_nouns(pair.good))
        if not predicted:
            return 0.0
        return 1.0 if predicted == pair.cell[0] else -1.0

    return rule


def _majority_number(numbers: str) -> str:
    singular = numbers.count("S")
    plural = numbers.count("P")
    if singular == plural:
        return ""
    return "S" if singular > plural else "P"


def _nth_noun(index: int) -> Heuristic:
    """Return the heuristic that links the adjective to the noun at `index` among the nouns before "because"."""

    def rule(pair: MinimalPair) -> float:
        clause = re.findall(r"\w+", pair.good.lower().partition(" because ")[0])
        predicted = [_ROLE_OF[word] for word in clause if word in _ROLE_OF][index]
        return 1.0 if predicted == pair.cell else -1.0

    return rule


def _fits_word_list(pair: MinimalPair) -> float:
    """Prefer the sentence whose last noun and adjective fit according to a word list, regardless of the other words."""

    def fits(text: str) -> bool:
        *_, noun, _, _, adjective = re.findall(r"\w+", text)
        return adjective in (ANIMAL_ADJECTIVES if noun in ANIMALS else THINGS[noun][1])

    return float(fits(pair.good)) - float(fits(pair.bad))


def _closes_last(pair: MinimalPair) -> float:
    """Prefer the closing bracket that matches the last opening bracket, even if that bracket is already closed."""
    predicted = last_opened(pair.good[: pair.scored_from])
    return float(pair.good.endswith(predicted)) - float(pair.bad.endswith(predicted))


HEURISTICS: Mapping[str, Mapping[str, Heuristic]] = {
    "agreement": {
        "last noun": _agreement_heuristic(lambda numbers: numbers[-1]),
        "first noun": _agreement_heuristic(lambda numbers: numbers[0]),
        "majority": _agreement_heuristic(_majority_number),
    },
    "coreference": {
        "last noun": _nth_noun(-1),
        "first noun": _nth_noun(0),
        "animal": lambda pair: 1.0 if pair.cell == ROLES[0] else -1.0,
        "word list": _fits_word_list,
    },
    "pronouns-bn": {
        "last pronoun": lambda pair: 1.0 if pair.cell == "object first" else -1.0,
        "first pronoun": lambda pair: 1.0 if pair.cell == "subject first" else -1.0,
    },
    "brackets": {"last opened": _closes_last},
}
"""Corpus -> its heuristics. The unigram and bigram heuristics apply to every corpus and need the training text."""
