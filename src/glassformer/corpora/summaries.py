"""`summaries`: stories of about a hundred words, each with a two-sentence summary.

The summary states the hero's wish, the trouble, the tool that helped and the ending. In the story these facts are far
apart, and all but the trouble have a distractor of the same kind: the friend's wish, a useless tool, the friend's
ending. In half of the stories the hero's facts come first, and in the other half the friend's. The subject of a clause
shows whose fact it states: the hero is an animal, the friend has a trade. The story contains all facts of the summary,
but no single sentence does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from glassformer.corpora.corpus import LEARNS_PAIRS, below, generator
from glassformer.corpora.grammar import Grammar, Slot, Word, free, other_than, render_wording, sentence
from glassformer.corpora.stories import (
    ANIMALS,
    COLOURS,
    NAMES,
    PLACES,
    SPOTS,
    THINGS,
    TIMES,
    TRADES,
    TRAITS,
    TROUBLES,
    pronouns,
    weighted_words,
    with_article,
)

USELESS = "spoon pillow feather sock bottle button broom cushion"
ENDS = (
    "kept it for ever",
    "gave it to a poor child",
    "sold it the next day",
    "hung it on the wall",
    "lost it in the snow",
    "hid it under the bed",
    "showed it to everyone",
    "broke it by mistake",
)

OPENING = (
    "Once upon a time there lived {trait:a} {animal} named {hero}.",
    "{hero} was {trait:a} {animal} from a small town.",
    "This is a tale about {trait:a} {animal} called {hero}.",
)
FRIEND = (
    "{hero:His} best friend was {friend}, {manner:a} {trade}.",
    "{manner:A} {trade} named {friend} lived next door.",
    "Every evening {friend}, {manner:a} {trade}, came to tea.",
)
WISHES = {
    "hero": (
        "The {animal} had always wanted {colour:a} {thing}, while the {trade} dreamed of {shade:a} {toy}.",
        "The {animal} wished for {colour:a} {thing} and the {trade} for {shade:a} {toy}.",
    ),
    "friend": (
        "The {trade} had always wanted {shade:a} {toy}, while the {animal} dreamed of {colour:a} {thing}.",
        "The {trade} wished for {shade:a} {toy} and the {animal} for {colour:a} {thing}.",
    ),
}
JOURNEY = (
    "One {time} they set out for the {place} together.",
    "They left for the {place} early one {time}.",
    "So one {time} the two of them walked to the {place}.",
)
TROUBLE = ("But {trouble}.", "Then {trouble}.", "Soon {trouble}.", "Alas, {trouble}.")
TRIAL = (
    "They tried {useless:a}, but it was of no use.",
    "{friend} had brought {useless:a}, which did not help at all.",
    "{useless:A} was all that {hero} had, and it was no good.",
)
FINDING = (
    "At last they saw {tool:a} {spot} and {rescue}.",
    "Luckily there was {tool:a} {spot}, so they {rescue}.",
    "{hero} noticed {tool:a} {spot}, and they {rescue}.",
)
GIFT = (
    "At the {place} an old man gave both of them what they had longed for.",
    "When they reached the {place}, a kind lady gave each of them the right present.",
    "Everything that they could wish for was waiting at the {place}.",
)
ENDING = {
    "hero": ("In the end the {animal} {end}, and the {trade} {fate}.", "The {animal} {end}, but the {trade} {fate}."),
    "friend": ("In the end the {trade} {fate}, and the {animal} {end}.", "The {trade} {fate}, but the {animal} {end}."),
}
GIST = sentence(
    "{hero} the {animal} wanted {colour:a} {thing}, but {trouble}. "
    "{tool:A} helped them, and in the end {hero:he} {end}."
)[0]


@dataclass(frozen=True)
class Summaries:
    """The corpus `summaries`: stories with their summaries."""

    name: str = "summaries"
    summary: str = "stories with two-sentence summaries: the wish, the trouble, the tool that helped, and the ending"
    tasks: tuple[str, ...] = ("summarize",)

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return settings with words as tokens, and a small model that learns the task in minutes."""
        return {
            **LEARNS_PAIRS,
            "tokenizer.kind": "words",
            "model.positions": "rotary",  # facts are found by their content, not by their position in the story
            "model.context": "160",
            "model.layers": "2",
            "model.width": "128",
            "data.size": "20000",
            "train.steps": "700",
            "train.batch": "32",
        }

    def pairs(self, size: int, seed: int) -> Iterator[tuple[str, str]]:
        """Yield (story, summary) pairs; each story and each summary is one line."""
        plots = tuple(summary_grammars().values())
        for index in range(size):
            numbers = generator(seed, index)
            story, values = plots[below(numbers, len(plots))].draw(numbers)
            yield story, render_wording(GIST, values)

    def answer(self, source: str) -> str | None:
        """Return the summary of a story by parsing it; None for text outside the corpus."""
        for grammar in summary_grammars().values():
            for values in grammar.slot_values(source):
                return render_wording(GIST, values)
        return None


@cache
def summary_grammars() -> Mapping[str, Grammar]:
    """Return the two grammars, by the character whose facts come first, "hero" or "friend"; cached."""
    return {first: _grammar(first) for first in WISHES}


def _grammar(first: str) -> Grammar:
    names = weighted_words(NAMES.split(), pronouns)
    traits = weighted_words(TRAITS.split(), with_article)
    colours = weighted_words(COLOURS.split(), with_article)
    things = weighted_words(THINGS.split())
    ends = weighted_words(ENDS)
    slots = [
        free("hero", names),
        other_than("friend", "hero", names),
        free("animal", weighted_words(ANIMALS.split())),
        free("trade", weighted_words(TRADES.split())),
        free("trait", traits),
        other_than("manner", "trait", traits),
        *_pair_of_slots("colour", "shade", colours, first),
        *_pair_of_slots("thing", "toy", things, first),
        free("time", weighted_words(TIMES.split())),
        free("place", weighted_words(PLACES.split())),
        free("trouble", weighted_words(tuple(TROUBLES))),
        free("useless", weighted_words(USELESS.split(), with_article)),
        Slot(
            "tool",
            {name: weighted_words(tools, with_article) for name, (tools, _) in TROUBLES.items()},
            given="trouble",
        ),
        Slot("rescue", {name: [Word(rescue)] for name, (_, rescue) in TROUBLES.items()}, given="trouble"),
        free("spot", weighted_words(SPOTS)),
        *_pair_of_slots("end", "fate", ends, first),
    ]
    plot = (OPENING, FRIEND, WISHES[first], JOURNEY, TROUBLE, TRIAL, FINDING, GIFT, ENDING[first])
    return Grammar(slots, [sentence(*wordings) for wordings in plot])


def _pair_of_slots(hero_slot: str, friend_slot: str, values: list[Word], first: str) -> list[Slot]:
    """Return a slot of the hero and a slot of the friend with different values, in the order of the story."""
    first_slot, second_slot = (hero_slot, friend_slot) if first == "hero" else (friend_slot, hero_slot)
    return [free(first_slot, values), other_than(second_slot, first_slot, values)]
