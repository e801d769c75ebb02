"""`stories`: short English stories from a grammar whose entropy is known exactly.

Every story has a hero with a wish, a friend, a journey, some trouble, a tool that helps, a gift and an evening. The
last sentences mention the hero, the place and the wish of the first sentences again, so a model must use distant
context. The random choices keep the entropy well above zero.
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

# Trouble -> (tools that help, result of using the tool).
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
    """The corpus `stories`, which is the default corpus."""

    name: str = "stories"
    summary: str = "short English stories that repeat names and things later; the true entropy is known exactly"
    tasks: tuple[str, ...] = TEXT_TASKS

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return settings with words as tokens and one story per row."""
        return {"tokenizer.kind": "words", "data.windows": "documents", "model.context": "128"}

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """Yield one story per document, on one line."""
        grammar = story_grammar()
        return (grammar.sample(generator(seed, index)) for index in range(size))

    def entropy(self) -> float:
        """Return the exact entropy in nats per story, by the closed form of the grammar."""
        return story_grammar().entropy()

    def log_probability(self, document: str) -> float:
        """Return the exact ln p of a story by parsing it; minus infinity for other text."""
        return story_grammar().log_probability(document)

    def mean_characters(self) -> float:
        """Return the exact mean number of characters of a story, by the closed form of the grammar."""
        return story_grammar().mean(len)


@cache
def story_grammar() -> Grammar:
    """Return the grammar of `stories`; cached."""
    names = weighted_words(NAMES.split(), pronouns)
    traits = weighted_words(TRAITS.split(), with_article)
    slots = [
        free("hero", names),
        other_than("friend", "hero", names),
        free("animal", weighted_words(ANIMALS.split())),
        free("trade", weighted_words(TRADES.split())),
        free("trait", traits),
        other_than("manner", "trait", traits),
        free("colour", weighted_words(COLOURS.split(), with_article)),
        free("thing", weighted_words(THINGS.split())),
        free("weather", weighted_words(WEATHERS.split(), with_article)),
        free("time", weighted_words(TIMES.split())),
        free("place", weighted_words(PLACES.split())),
        free("trouble", weighted_words(tuple(TROUBLES))),
        free("feeling", weighted_words(FEELINGS.split())),
        free("comfort", weighted_words(COMFORTS)),
        Slot(
            "tool",
            {trouble: weighted_words(tools, with_article) for trouble, (tools, _) in TROUBLES.items()},
            given="trouble",
        ),
        Slot("rescue", {trouble: [Word(rescue)] for trouble, (_, rescue) in TROUBLES.items()}, given="trouble"),
        free("spot", weighted_words(SPOTS, with_capital)),
        free("giver", weighted_words(GIVERS.split(), with_article)),
        free("deed", weighted_words(DEEDS.split())),
        free("sky", weighted_words(SKIES.split())),
    ]
    plot = (OPENING, JOURNEY, TROUBLE, COMFORT, FINDING, GIFT, EVENING)
    return Grammar(slots, [sentence(*wordings) for wordings in plot])


def weighted_words(texts: Sequence[str], forms: Callable[[str], dict[str, str]] = lambda text: {}) -> list[Word]:
    """Return the values of a slot, with weights that fall linearly from 2 for the first to 1 for the last."""
    last = len(texts) - 1
    return [Word(text, forms(text), weight=2 - index / last) for index, text in enumerate(texts)]


def pronouns(name: str) -> dict[str, str]:
    """Return the pronoun forms of a hero's name."""
    return (
        {"he": "she", "him": "her", "His": "Her"} if name in GIRLS.split() else {"he": "he", "him": "him", "His": "His"}
    )


def with_article(word: str) -> dict[str, str]:
    """Return the forms `a` and `A`: the word with its indefinite article, without and with a capital letter."""
    article = "an" if word[0] in "aeiou" or word == "honest" else "a"  # the h of "honest" is silent
    return {"a": f"{article} {word}", "A": f"{article.capitalize()} {word}"}


def with_capital(phrase: str) -> dict[str, str]:
    """Return the form `first`: the phrase with a capital letter, for the beginning of a sentence."""
    return {"first": phrase[0].upper() + phrase[1:]}
