"""Sentences of `agreement`: the words are drawn once, and can be inflected with any grammatical numbers."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from glassformer.corpora.corpus import below

PEOPLE = "author pilot guard dancer farmer surgeon senator chef tailor singer banker poet".split()  # noqa: SIM905
# Each thing and its specific preposition; people have "with".
THINGS = {
    "key": "to",
    "cabinet": "with",
    "picture": "of",
    "book": "about",
    "letter": "about",
    "door": "to",
    "box": "with",
    "song": "about",
    "table": "with",
    "chair": "with",
    "window": "with",
    "bridge": "to",
}
NOUNS = (*PEOPLE, *THINGS)
PREPOSITIONS = ("near", "behind", "next to", "in front of", "across from")
VERBS = ("like", "see", "remember", "draw", "avoid", "follow")
COPULAS = (("is", "are"), ("was", "were"))
PREDICATES = {
    "person": (
        *((f"{one} {word}", f"{many} {word}") for one, many in COPULAS for word in ("tall", "old", "young", "happy")),
        *((f"{verb}s", verb) for verb in ("laugh", "smile", "sing")),
        ("has arrived", "have arrived"),
    ),
    "thing": (
        *((f"{one} {word}", f"{many} {word}") for one, many in COPULAS for word in ("small", "old", "new", "heavy")),
        *((f"{verb}s", verb) for verb in ("fall", "shake", "disappear")),
        ("has moved", "have moved"),
    ),
}
FRAMES = {"person": ("across", "who", "that", "and"), "thing": ("across", "that")}
"""Constructions that connect the chain to its subject: preposition, "who like ...", "that ... like", "like ... and"."""
NUMBERS = "SP"


def held_out(subject: str, noun: str) -> bool:
    """Return whether this combination is held out from documents; a hash chooses about one in three."""
    return zlib.crc32(f"{subject}/{noun}".encode()) % 3 == 0


@cache
def partners(subject: str, held: bool) -> tuple[str, ...]:
    """Return the nouns that may occur with this subject in held-out combinations, or in the other combinations."""
    return tuple(noun for noun in NOUNS if noun != subject and held_out(subject, noun) == held)


def longest_chain(held: bool) -> int:
    """Return the maximum chain length for which every subject has enough nouns for a chain and one noun before it."""
    return min(len(partners(subject, held)) for subject in NOUNS) - 1


def animacy(noun: str) -> str:
    """Return the animacy of a noun, "person" or "thing", which determines its frames and predicates."""
    return "thing" if noun in THINGS else "person"


def form(noun: str, number: str) -> str:
    """Return the noun in this number, "S" or "P"."""
    return noun if number == "S" else noun + ("es" if noun == "box" else "s")


def prepositions(noun: str) -> tuple[str, ...]:
    """Return the prepositions that may follow the noun."""
    return (*PREPOSITIONS, THINGS.get(noun, "with"))


@dataclass(frozen=True)
class Item:
    """The words of a sentence, without grammatical numbers.

    Args:
        subject: noun of the subject.
        frame: construction that connects the chain; "" without a chain.
        chain: nouns between the subject and its verb.
        links: preposition before each noun of the chain; the first is "" unless the frame is "across".
        verb: verb of the frame; "" for "across" and without a frame.
        predicate: index in the `PREDICATES` of the subject's animacy.
        front: preposition and noun at the beginning, or None.
    """

    subject: str
    frame: str
    chain: tuple[str, ...]
    links: tuple[str, ...]
    verb: str
    predicate: int
    front: tuple[str, str] | None

    def text(self, subject: str, chain: str, front: str, verb: str) -> str:
        """Return the sentence with these grammatical numbers, "S" or "P".

        Args:
            subject: number of the subject.
            chain: number of each noun in the chain, as one string.
            front: number of the noun at the beginning.
            verb: number of the main verb.
        """
        nouns = " ".join(
            f"{link} the {form(noun, number)}".strip()
            for link, noun, number in zip(self.links, self.chain, chain, strict=True)
        )
        verb_number = chain[0] if self.frame == "that" else subject
        inner = self.verb + ("s" if verb_number == "S" else "")
        chain_text = {
            "": "",
            "across": f" {nouns}",
            "who": f" who {inner} {nouns}",
            "that": f" that {nouns} {inner}",
            "and": f" {inner} {nouns} and",
        }[self.frame]
        main = PREDICATES[animacy(self.subject)][self.predicate][NUMBERS.index(verb)]
        start = "" if self.front is None else f"{self.front[0]} the {form(self.front[1], front)}, "
        text = f"{start}the {form(self.subject, subject)}{chain_text} {main}."
        return text[0].upper() + text[1:]


def draw_item(numbers: random.Random, nouns: int, fronted: bool, held: bool) -> Item:
    """Draw the words of a sentence with `nouns` nouns in the chain, all different and allowed with the subject."""
    subject = _draw_one(numbers, NOUNS)
    frame = _draw_one(numbers, FRAMES[animacy(subject)]) if nouns else ""
    pool = list(partners(subject, held))
    chain: list[str] = []
    for index in range(nouns + fronted):
        fitting = [noun for noun in pool if animacy(noun) == "person"] if frame == "that" and not index else pool
        chain.append(_draw_one(numbers, fitting))
        pool.remove(chain[-1])
    heads = (subject, *chain)
    links = tuple(
        _draw_one(numbers, prepositions(heads[index])) if index or frame == "across" else "" for index in range(nouns)
    )
    verb = _draw_one(numbers, VERBS) if frame in ("who", "that", "and") else ""
    predicate = below(numbers, len(PREDICATES[animacy(subject)]))
    front = (_draw_one(numbers, PREPOSITIONS), chain[-1]) if fronted else None
    return Item(subject, frame, tuple(chain[:nouns]), links, verb, predicate, front)


def _draw_one(numbers: random.Random, options: Sequence[str]) -> str:
    return options[below(numbers, len(options))]
