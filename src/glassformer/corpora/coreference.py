"""`coreference`: sentences in which only the adjective determines the referent of "it".

In "The horse did not cross the river because it was too tired.", "it" refers to the horse; with "too wide", "it" refers
to the river (after Levesque et al. 2012, "The Winograd schema challenge"). Documents contain either "it" or a
repetition of the noun.

In a minimal pair, one text has the animal in place of "it", and the other text has the thing; only tokens after that
noun are scored (partial scoring: Trinh and Le 2018, "A simple method for commonsense reasoning"). Pairs come as twins
with different adjectives, so that a different noun is correct in each. Twins count as correct only if both pairs are
correct; chance is one in four. Some combinations of an animal, a thing and an adjective are held out: documents never
contain them, and minimal pairs contain only held-out combinations, unless other combinations are requested.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from statistics import mean

from glassformer.corpora.corpus import TEXT_TASKS, MinimalPair, below, generator

# All nouns have five letters, so that the text after either noun begins at the same position.
ANIMALS = (
    "horse",
    "sheep",
    "tiger",
    "zebra",
    "camel",
    "mouse",
    "puppy",
    "goose",
    "otter",
    "moose",
    "panda",
    "koala",
    "hyena",
    "llama",
)
ANIMAL_ADJECTIVES = ("tired", "hungry", "scared", "sleepy", "lazy", "thirsty", "clumsy", "timid")
# For each thing: verbs, and adjectives that prevent the action. No adjective fits both animals and things.
THINGS = {
    "river": (("cross", "enter"), ("wide", "deep", "rapid", "icy")),
    "canal": (("cross", "enter"), ("wide", "deep", "dirty", "icy")),
    "creek": (("cross", "enter"), ("deep", "rapid", "icy", "muddy")),
    "ditch": (("cross", "enter"), ("wide", "deep", "muddy", "dirty")),
    "field": (("cross", "enter"), ("wide", "muddy", "bumpy", "dirty")),
    "swamp": (("cross", "enter"), ("deep", "muddy", "wide", "foggy")),
    "ridge": (("cross", "climb"), ("steep", "high", "icy", "rocky")),
    "fence": (("climb",), ("high", "shaky", "narrow", "spiky")),
    "tower": (("climb", "enter"), ("high", "narrow", "shaky", "dirty")),
    "trail": (("climb", "follow"), ("steep", "narrow", "muddy", "rocky")),
    "slope": (("climb", "cross"), ("steep", "icy", "slippery", "rocky")),
}
OPENINGS = ("", "yesterday ", "that night ", "in the morning ", "after a while ", "on Monday ")
FRAMES = (
    "the {animal} did not {verb} the {thing}",
    "the {animal} could not {verb} the {thing}",
    "the {thing} was not {verb}ed by the {animal}",
    "the {thing} could not be {verb}ed by the {animal}",
)
ROLES = ("animal", "thing")
PAIRS_FROM = 1 << 32
"""First index of the random generators of minimal pairs; documents start at 0."""


def held_out(animal: str, thing: str, adjective: str) -> bool:
    """Return whether this combination is held out from documents; a hash chooses about one in four."""
    return zlib.crc32(f"{animal}/{thing}/{adjective}".encode()) % 4 == 0


@cache
def adjectives(animal: str, thing: str, role: str, held: bool) -> tuple[str, ...]:
    """Return the adjectives that fit the animal or the thing (`role`).

    With `held`, return only adjectives that make a held-out combination; otherwise, return only the other adjectives.
    """
    suitable = ANIMAL_ADJECTIVES if role == "animal" else THINGS[thing][1]
    return tuple(word for word in suitable if held_out(animal, thing, word) == held)


@cache
def meetings(held: bool) -> tuple[tuple[str, str], ...]:
    """Return the pairs (animal, thing) for which `adjectives` returns at least one adjective in each role."""
    return tuple(
        (animal, thing)
        for animal, thing in product(ANIMALS, THINGS)
        if all(adjectives(animal, thing, role, held) for role in ROLES)
    )


@dataclass(frozen=True)
class Scene:
    """The main clause of a sentence, without the reason."""

    animal: str
    thing: str
    verb: str
    frame: str
    opening: str

    def text(self, named: str, adjective: str) -> str:
        """Return the whole sentence; `named` is the subject of the reason, such as "it"."""
        clause = self.frame.format(animal=self.animal, thing=self.thing, verb=self.verb)
        text = f"{self.opening}{clause} because {named} was too {adjective}."
        return text[0].upper() + text[1:]

    def noun(self, role: str) -> str:
        """Return the noun in this role: the animal or the thing."""
        return self.animal if role == "animal" else self.thing


def draw_scene(seed: int, index: int, held: bool) -> tuple[Scene, float, float]:
    """Return a random scene, and two random numbers in [0, 1) for the choices that complete it."""
    numbers = generator(seed, index)
    options = meetings(held)
    animal, thing = options[below(numbers, len(options))]
    verbs = THINGS[thing][0]
    scene = Scene(
        animal,
        thing,
        verbs[below(numbers, len(verbs))],
        FRAMES[below(numbers, len(FRAMES))],
        OPENINGS[below(numbers, len(OPENINGS))],
    )
    return scene, numbers.random(), numbers.random()


@dataclass(frozen=True)
class Coreference:
    """The corpus `coreference`: sentences, and minimal pairs."""

    name: str = "coreference"
    summary: str = "pronouns: the horse did not cross the river because it was too tired, or too wide; minimal pairs"
    tasks: tuple[str, ...] = TEXT_TASKS

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return settings with words as tokens and one sentence per row."""
        return {"tokenizer.kind": "words", "data.windows": "documents", "model.context": "28"}

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """Yield one sentence per document.

        The reason refers to the animal or the thing, by "it" or by the noun; these four cases are equally likely.
        """
        for index in range(size):
            scene, first, second = draw_scene(seed, index, held=False)
            role, named = divmod(int(second * 4), 2)
            options = adjectives(scene.animal, scene.thing, ROLES[role], held=False)
            adjective = options[int(first * len(options))]
            yield scene.text(f"the {scene.noun(ROLES[role])}" if named else "it", adjective)

    def minimal_pairs(self, size: int, seed: int, held: bool = True) -> Iterator[MinimalPair]:
        """Yield minimal pairs; pairs 2i and 2i + 1 are twins, in which first the animal and then the thing is correct.

        Args:
            size: number of pairs.
            seed: random seed.
            held: whether to use held-out combinations; False: combinations that occur in documents, for comparison.
        """
        for index in range(size):
            twin, role = divmod(index, 2)
            scene, *points = draw_scene(seed, PAIRS_FROM + twin, held)
            options = adjectives(scene.animal, scene.thing, ROLES[role], held)
            adjective = options[int(points[role] * len(options))]
            good, bad = (scene.text(f"the {scene.noun(other)}", adjective) for other in (ROLES[role], ROLES[1 - role]))
            yield MinimalPair(good, bad, good.index(" was too "), ROLES[role], 0, twin)

    def entropy(self) -> float:
        """Return the mean of -ln p over animals, things and roles, in nats per document."""
        options = meetings(held=False)
        return mean(_negative_log_probability(animal, thing, role) for (animal, thing), role in product(options, ROLES))

    def log_probability(self, document: str) -> float:
        """Return ln p of a document by parsing it; minus infinity for other text and held-out combinations."""
        match = _pattern().fullmatch(document[:1].lower() + document[1:])
        if match is None or document[0].islower():
            return -math.inf
        (animal,), (thing,) = ({word for word in match.groups() if word in names} for names in (ANIMALS, THINGS))
        for role in ROLES:
            scene_noun = animal if role == "animal" else thing
            if match["named"] in ("it", f"the {scene_noun}") and match["adjective"] in adjectives(
                animal, thing, role, held=False
            ):
                verb = match["active"] or match["passive"]
                return -_negative_log_probability(animal, thing, role) if verb in THINGS[thing][0] else -math.inf
        return -math.inf

    def mean_characters(self) -> float:
        """Return the exact mean number of characters of a document."""
        options = meetings(held=False)
        fixed = mean(map(len, OPENINGS)) + len(" because  was too .")
        return fixed + mean(
            mean(
                len(frame.format(animal=animal, thing=thing, verb=verb))
                for frame, verb in product(FRAMES, THINGS[thing][0])
            )
            + mean((len("it"), len(f"the {animal if role == 'animal' else thing}")))
            + mean(map(len, adjectives(animal, thing, role, held=False)))
            for (animal, thing), role in product(options, ROLES)
        )


def _negative_log_probability(animal: str, thing: str, role: str) -> float:
    """Return -ln p of a document with these words in nats; every choice is uniform."""
    options = (
        len(meetings(held=False)),
        len(THINGS[thing][0]),
        len(FRAMES),
        len(OPENINGS),
        2 * 2,  # the role of the adjective's noun, and whether the noun is repeated
        len(adjectives(animal, thing, role, held=False)),
    )
    return math.fsum(map(math.log, options))


@cache
def _pattern() -> re.Pattern[str]:
    """Return a pattern that matches every sentence of the corpus, and some with words that do not fit together."""
    animal = "|".join(ANIMALS)
    thing = "|".join(THINGS)
    verb = "|".join(sorted({verb for verbs, _ in THINGS.values() for verb in verbs}))
    clause = (
        rf"the ({animal}) (?:did|could) not (?P<active>{verb}) the ({thing})"
        rf"|the ({thing}) (?:was not|could not be) (?P<passive>{verb})ed by the ({animal})"
    )
    named = rf"it|the (?:{animal}|{thing})"
    start = "|".join(opening[:1].lower() + opening[1:] for opening in OPENINGS)
    return re.compile(rf"(?:{start})(?:{clause}) because (?P<named>{named}) was too (?P<adjective>\w+)\.")
