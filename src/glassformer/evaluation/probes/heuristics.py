"""Rules of thumb for minimal pairs: what is right without knowing the rule that is asked for.

Each takes a pair and gives a number above 0 if it finds `good` better, 0 if it cannot tell, and below 0 otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from glassformer.corpora import MinimalPair
from glassformer.corpora.agreement.items import NOUNS, NUMBERS, form
from glassformer.corpora.brackets import last_opened
from glassformer.corpora.coreference import ANIMAL_ADJECTIVES, ANIMALS, ROLES, THINGS

Rule = Callable[[MinimalPair], float]
_NUMBER_OF = {form(noun, number): number for noun in NOUNS for number in NUMBERS}
_ROLE_OF = dict.fromkeys(ANIMALS, "animal") | dict.fromkeys(THINGS, "thing")


def numbers_of_nouns(text: str) -> str:
    """The numbers of the nouns of a sentence of `agreement`, such as "SPP"; all of them stand before the main verb.

    >>> numbers_of_nouns("The keys to the cabinet are old.")
    'PS'
    """
    return "".join(_NUMBER_OF[noun] for noun in re.findall(r"\bthe (\w+)", text.lower()))


def _agrees(number: Callable[[str], str]) -> Rule:
    """The verb has this number of the nouns before it; "" where the rule cannot tell."""

    def rule(pair: MinimalPair) -> float:
        said = number(numbers_of_nouns(pair.good))
        if not said:
            return 0.0
        return 1.0 if said == pair.cell[0] else -1.0

    return rule


def _most(numbers: str) -> str:
    singular = numbers.count("S")
    plural = numbers.count("P")
    if singular == plural:
        return ""
    return "S" if singular > plural else "P"


def _noun(place: int) -> Rule:
    """The adjective is about the noun at this place of those before "because"."""

    def rule(pair: MinimalPair) -> float:
        told = re.findall(r"\w+", pair.good.lower().partition(" because ")[0])
        said = [_ROLE_OF[word] for word in told if word in _ROLE_OF][place]
        return 1.0 if said == pair.cell else -1.0

    return rule


def _suits(pair: MinimalPair) -> float:
    """The noun that is put in and the adjective go together, whatever the text tells: a list of words knows that."""

    def together(text: str) -> bool:
        *_, noun, _, _, adjective = re.findall(r"\w+", text)
        return adjective in (ANIMAL_ADJECTIVES if noun in ANIMALS else THINGS[noun][1])

    return float(together(pair.good)) - float(together(pair.bad))


def _closes_last(pair: MinimalPair) -> float:
    """Close what was opened last, be it closed already or not."""
    said = last_opened(pair.good[: pair.scored_from])
    return float(pair.good.endswith(said)) - float(pair.bad.endswith(said))


RULES: Mapping[str, Mapping[str, Rule]] = {
    "agreement": {
        "last noun": _agrees(lambda numbers: numbers[-1]),
        "first noun": _agrees(lambda numbers: numbers[0]),
        "majority": _agrees(_most),
    },
    "coreference": {
        "last noun": _noun(-1),
        "first noun": _noun(0),
        "animal": lambda pair: 1.0 if pair.cell == ROLES[0] else -1.0,
        "word list": _suits,
    },
    "brackets": {"last opened": _closes_last},
}
"""By corpus; those of frequency and of neighbours are the same for all and need the training text."""
