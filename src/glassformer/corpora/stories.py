"""`stories`: little English stories from a grammar whose true entropy is known exactly.

Every story has a hero with a wish, a friend, a way, a trouble, a thing found that helps, a gift and an evening.
What the first sentences bring in (names, trades, the place, the thing wished for) is needed again in the last ones, so
a model must look far back; what is drawn freely keeps the floor well above zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from glassformer.corpora.corpus import TEXT_TASKS, generator
from glassformer.corpora.grammar import Grammar, Slot, Word, free, other_than, sentence

NAMES = "Mia Leo Nora Tom Ella Sam Lily Max Ruby Finn Zoe Ben"
GIRLS = "Mia Nora Ella Lily Ruby Zoe"
ANIMALS = "fox bear rabbit mouse owl frog hedgehog duck badger otter"
TRADES = "baker sailor farmer painter doctor hunter miller teacher"
TRAITS = "brave shy kind clever curious quiet merry eager lazy honest"
COLOURS = "red blue green yellow golden silver orange purple white black"
THINGS = "kite drum book hat bell flute ring whistle mirror clock"
WEATHERS = "bright cold windy warm misty snowy sunny rainy"
TIMES = "morning afternoon evening day"
PLACES = "market harbor castle village garden palace fair lighthouse"
FEELINGS = "afraid sad worried tired cross lonely nervous cold"
COMFORTS = (
    "Do not give up",
    "We can do it",
    "Let us look around",
    "I have an idea",
    "Stay close to me",
    "Never mind",
    "Wait a moment",
    "Trust me",
)
SPOTS = (
    "under a bush",
    "behind a rock",
    "beside an oak",
    "in the grass",
    "on a log",
    "near a well",
    "by the road",
    "between two stones",
)
GIVERS = "king queen giant fairy wizard knight dragon witch"
DEEDS = "danced sang laughed played feasted rested"
SKIES = "stars moon clouds rainbow lanterns trees"

# What goes wrong -> what may be found against it, and what that does.
TROUBLES: dict[str, tuple[tuple[str, str], str]] = {
    "night fell too soon": (("lantern", "candle"), "lit the way"),
    "a river stopped them": (("boat", "raft"), "crossed it"),
    "heavy rain began": (("tent", "umbrella"), "stayed dry"),
    "they met a locked gate": (("key", "hammer"), "opened it"),
    "they lost the way": (("map", "compass"), "turned north"),
    "they grew very hungry": (("pie", "apple"), "ate it all"),
    "a wall stood before them": (("ladder", "rope"), "climbed over"),
    "an icy wind blew": (("blanket", "stove"), "stayed warm"),
}

OPENING = (
    "Once upon a time, {trait:a} {animal} named {hero} wished for {colour:a} {thing}.",
    "{hero} was {trait:a} {animal} who wanted {colour:a} {thing}.",
    "{trait:A} {animal} called {hero} dreamed of {colour:a} {thing}.",
    "There once was {trait:a} {animal} named {hero} who longed for {colour:a} {thing}.",
)
JOURNEY = (
    "One {weather} {time} {hero:he} set out for the {place} with {friend}, {manner:a} {trade}.",
    "On {weather:a} {time} {friend}, {manner:a} {trade}, took {hero:him} to the {place}.",
    "{friend}, {manner:a} {trade}, led {hero:him} to the {place} one {weather} {time}.",
)
TROUBLE = ("But {trouble}.", "Then {trouble}.", "Soon {trouble}.", "Alas, {trouble}.")
COMFORT = (
    '"{comfort}," {friend} told the {feeling} {animal}.',
    '{hero} felt {feeling}. "{comfort}," said {friend}.',
    '"{comfort}," said the {trade}, for {hero} felt {feeling}.',
)
FINDING = (
    "They found {tool:a} {spot} and {rescue}.",
    "{spot:first} lay {tool:a}, so they {rescue}.",
    "{hero} spotted {tool:a} {spot}, and they {rescue}.",
    "Luckily the {trade} saw {tool:a} {spot}, and they {rescue}.",
)
GIFT = (
    "At the {place}, {giver:a} gave {hero} {colour:a} {thing}.",
    "{giver:A} at the {place} gave {hero} the {colour} {thing}.",
    "{hero} got the {colour} {thing} from {giver:a} at the {place}.",
)
EVENING = (
    "That night {hero} and {friend} {deed} under the {sky}.",
    "So the {animal} and the {trade} {deed} under the {sky}.",
    "{hero} hugged {friend}, and they {deed} under the {sky}.",
    "No longer {feeling}, {hero} {deed} with {friend} under the {sky}.",
)


@dataclass(frozen=True)
class Stories:
    """The embedded default corpus."""

    name: str = "stories"
    summary: str = "small English stories; names and things come back later; true entropy known exactly"
    tasks: tuple[str, ...] = TEXT_TASKS

    def recommended(self, task: str) -> Mapping[str, str]:
        """Words as tokens, one story per row."""
        return {"tokenizer.kind": "words", "data.windows": "documents", "model.context": "128"}

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """One story per document, on one line."""
        grammar = story_grammar()
        return (grammar.sample(generator(seed, index)) for index in range(size))

    def entropy(self) -> float:
        """Nats per story, by the grammar's closed form."""
        return story_grammar().entropy()

    def log_probability(self, document: str) -> float:
        """By reading the story back into the draws that made it."""
        return story_grammar().log_probability(document)

    def mean_characters(self) -> float:
        """By the grammar's closed form."""
        return story_grammar().mean(len)


@cache
def story_grammar() -> Grammar:
    """The grammar behind `stories`, made once when first asked for."""
    names = words(NAMES.split(), pronouns)
    traits = words(TRAITS.split(), with_article)
    slots = [
        free("hero", names),
        other_than("friend", "hero", names),
        free("animal", words(ANIMALS.split())),
        free("trade", words(TRADES.split())),
        free("trait", traits),
        other_than("manner", "trait", traits),
        free("colour", words(COLOURS.split(), with_article)),
        free("thing", words(THINGS.split())),
        free("weather", words(WEATHERS.split(), with_article)),
        free("time", words(TIMES.split())),
        free("place", words(PLACES.split())),
        free("trouble", words(tuple(TROUBLES))),
        free("feeling", words(FEELINGS.split())),
        free("comfort", words(COMFORTS)),
        Slot(
            "tool",
            {trouble: words(tools, with_article) for trouble, (tools, _) in TROUBLES.items()},
            given="trouble",
        ),
        Slot("rescue", {trouble: [Word(rescue)] for trouble, (_, rescue) in TROUBLES.items()}, given="trouble"),
        free("spot", words(SPOTS, with_capital)),
        free("giver", words(GIVERS.split(), with_article)),
        free("deed", words(DEEDS.split())),
        free("sky", words(SKIES.split())),
    ]
    plot = (OPENING, JOURNEY, TROUBLE, COMFORT, FINDING, GIFT, EVENING)
    return Grammar(slots, [sentence(*wordings) for wordings in plot])


def words(texts: Sequence[str], forms: Callable[[str], dict[str, str]] = lambda text: {}) -> list[Word]:
    """Values of a slot: the first in a list is twice as likely as the last, the others in between."""
    last = len(texts) - 1
    return [Word(text, forms(text), weight=2 - place / last) for place, text in enumerate(texts)]


def pronouns(name: str) -> dict[str, str]:
    return (
        {"he": "she", "him": "her", "His": "Her"} if name in GIRLS.split() else {"he": "he", "him": "him", "His": "His"}
    )


def with_article(word: str) -> dict[str, str]:
    """`a`: the article in front, `A`: the same with a capital. The h of "honest" is silent."""
    article = "an" if word[0] in "aeiou" or word == "honest" else "a"
    return {"a": f"{article} {word}", "A": f"{article.capitalize()} {word}"}


def with_capital(phrase: str) -> dict[str, str]:
    """`first`: as a sentence begins."""
    return {"first": phrase[0].upper() + phrase[1:]}
