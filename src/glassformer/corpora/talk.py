"""`talk`: conversations about a few people; every answer is a fact stated in the first message.

The first message of a conversation states five facts about one to three people and asks the first question. Later
questions are about other facts: three to five questions in total, or fewer if many of the facts are held out. There are
six kinds of facts, each with its question and 56 values: `Ada has the crow.` answers `What animal does Ada have?`. The
facts of a conversation differ in kind, so that the question alone determines which fact answers it. (If two people
lived in two cities, small models would take much longer than ten minutes to learn which city a question is about.)

One in eight facts is held out: `talk` states such facts but never asks about them, and the last question of a
conversation of `talk-held-out` always asks about a held-out fact. For example, `Where does Ada live?` may never be
asked in training when Ada lives in Oslo. A model that answers such a question has learned to look facts up instead of
memorizing answers.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from glassformer.corpora.corpus import below, generator

NAMES = (
    "Ada Ben Cleo Dan Ella Finn Gita Hugo Ida Jon Kim Leo Mia Ned Olga Paul Rita Sam Tara Uma Vera Walt Xenia Yan Zoe "
    "Amir Bela Carl Dora Emil Faye Gus Hana Igor Jill Kofi Lena Max Nina Otto Pia Rahul Sara Tom Ursula Viktor Wanda "
    "Yara Zack Anya Boris Celia Dmitri Esther Farid Greta"
)
CITIES = (
    "Oslo Rome Paris Berlin Madrid Vienna Dublin London Prague Warsaw Athens Lisbon Cairo Lagos Nairobi Dakar Tunis "
    "Delhi Dhaka Mumbai Lahore Tokyo Osaka Seoul Beijing Shanghai Hanoi Bangkok Jakarta Manila Sydney Perth Auckland "
    "Lima Quito Bogota Santiago Havana Boston Chicago Denver Dallas Seattle Toronto Montreal Kyiv Minsk Riga Tallinn "
    "Helsinki Stockholm Bergen Zurich Geneva Lyon Porto"
)
ANIMALS = (
    "cat dog crow goat horse mouse rabbit parrot snake turtle hamster pony donkey sheep lamb goose duck hen pigeon owl "
    "raven falcon fox wolf bear lynx badger hedgehog ferret lizard gecko frog toad newt spider beetle cricket carp "
    "salmon trout eel crab lobster snail squirrel beaver otter seal camel llama yak zebra monkey lemur panda peacock"
)
JOBS = (
    "baker nurse pilot farmer tailor painter plumber teacher lawyer doctor dentist waiter singer dancer driver sailor "
    "soldier miner mason carpenter butcher grocer florist gardener barber chef clerk cashier banker broker editor "
    "writer poet actor composer sculptor potter weaver jeweller optician chemist biologist surgeon vet judge detective "
    "fisherman shepherd forester mechanic welder glazier roofer porter librarian translator"
)
FOODS = (
    "bread cheese rice soup salad pasta pizza curry stew pie cake honey jam butter yogurt porridge pancakes waffles "
    "noodles dumplings sushi tofu lentils beans peas carrots spinach cabbage beetroot onions garlic mushrooms tomatoes "
    "peppers olives apples pears plums cherries grapes melons mangoes bananas oranges lemons dates figs walnuts "
    "almonds chestnuts chocolate custard sorbet biscuits popcorn pretzels"
)
INSTRUMENTS = (
    "piano violin cello guitar banjo flute oboe clarinet bassoon trumpet trombone tuba horn harp lute lyre zither "
    "sitar tabla drum gong cymbals xylophone marimba accordion harmonica organ harpsichord celesta mandolin "
    "fiddle recorder piccolo saxophone cornet bugle bagpipes didgeridoo koto shamisen erhu pipa balalaika bouzouki "
    "ukulele viola oud dulcimer kalimba tambourine triangle maracas castanets bongos timpani theremin"
)
PLANTS = (
    "rose tulip lily daisy violet iris orchid poppy lotus jasmine lavender peony dahlia aster begonia "
    "camellia carnation chrysanthemum clover cosmos crocus cyclamen daffodil fuchsia gardenia geranium "
    "gladiolus hibiscus honeysuckle hyacinth hydrangea lilac lupin magnolia marigold narcissus nasturtium "
    "oleander pansy petunia phlox primrose rhododendron snowdrop sunflower thistle verbena wisteria yarrow "
    "zinnia fern ivy moss bamboo cactus heather"
)
Item = TypeVar("Item")
MOST_PEOPLE = 3
FACTS = 5
FEWEST_QUESTIONS = 3
HELD_OUT = 8
"""One in `HELD_OUT` facts is held out."""


@dataclass(frozen=True)
class FactKind:
    """A kind of fact about a person, with templates for `{name}` and `{value}`.

    Attributes:
        values: possible values.
        statement_template: template of the fact, which is also the answer.
        question_template: template of the question.
    """

    values: tuple[str, ...]
    statement_template: str
    question_template: str


FACT_KINDS = (
    FactKind(tuple(CITIES.split()), "{name} lives in {value}.", "Where does {name} live?"),
    FactKind(tuple(ANIMALS.split()), "{name} has the {value}.", "What animal does {name} have?"),
    FactKind(tuple(JOBS.split()), "{name} is the {value}.", "What is the job of {name}?"),
    FactKind(tuple(FOODS.split()), "{name} eats the {value}.", "What does {name} eat?"),
    FactKind(tuple(INSTRUMENTS.split()), "{name} plays the {value}.", "What does {name} play?"),
    FactKind(tuple(PLANTS.split()), "{name} grows the {value}.", "What does {name} grow?"),
)


@dataclass(frozen=True)
class Fact:
    """A fact about a person."""

    name: str
    kind: FactKind
    value: str

    @property
    def question(self) -> str:
        """Return the question about the fact."""
        return self.kind.question_template.format(name=self.name)

    @property
    def answer(self) -> str:
        """Return the answer to the question, which is the fact itself."""
        return self.kind.statement_template.format(name=self.name, value=self.value)


@dataclass(frozen=True)
class Talk:
    """The corpora `talk` and `talk-held-out`: conversations about people.

    Args:
        name: "talk" or "talk-held-out".
        held_out: whether the last question of each conversation is about a held-out fact.
    """

    name: str = "talk"
    held_out: bool = False
    tasks: tuple[str, ...] = ("chat",)

    @property
    def summary(self) -> str:
        """Return the one-line description that `glass data list` prints."""
        last = "; each ends with a question about a fact that the corpus talk never asks about" if self.held_out else ""
        return f"conversations: facts about people, questions about them, and the right answers{last}"

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return settings with words as tokens, so that each value is one token, and a small model of two layers."""
        return {
            "tokenizer.kind": "words",
            "model.positions": "rotary",
            "model.norm": "layernorm",
            "model.activation": "relu",
            "model.tied": "true",
            "model.zero_output": "false",
            "model.context": "128",
            "model.layers": "2",
            "model.width": "128",
            "model.heads": "4",
            "train.optimizer": "muon",
            "train.learning_rate": "2e-3",
            "train.muon_learning_rate": "0.01",
            "train.schedule": "linear",
            "train.warmup": "50",
            "train.batch": "32",
            "train.steps": "3000",
            "data.size": "40000",
            "sample.tokens": "20",
            "sample.temperature": "0",
        }

    def conversations(self, size: int, seed: int) -> Iterator[list[dict[str, str]]]:
        """Yield the first `size` conversations for this seed, as messages."""
        for index in range(size):
            yield self._conversation(generator(seed, index))

    def answer(self, question: str, told: str) -> str | None:
        """Return the correct answer to a question about the stated facts; None if no fact answers it."""
        return next((fact.answer for fact in parse_facts(told) if fact.question == question), None)

    def _conversation(self, numbers: random.Random) -> list[dict[str, str]]:
        facts = _draw_facts(1 + below(numbers, MOST_PEOPLE), numbers)
        count = FEWEST_QUESTIONS + below(numbers, FACTS - FEWEST_QUESTIONS + 1)
        shuffled_facts = list(facts)
        _shuffle(shuffled_facts, numbers)
        training_facts = [fact for fact in shuffled_facts if not is_held_out(fact)]
        held_out_facts = [fact for fact in shuffled_facts if is_held_out(fact)]
        asked_facts = [*training_facts[: count - 1], *held_out_facts[:1]] if self.held_out else training_facts[:count]
        if not (held_out_facts if self.held_out else asked_facts):  # the corpus cannot ask about these facts
            return self._conversation(numbers)
        messages: list[dict[str, str]] = []
        statements = " ".join(fact.answer for fact in facts)
        for fact in asked_facts:
            messages.append({"role": "user", "content": fact.question if messages else f"{statements} {fact.question}"})
            messages.append({"role": "assistant", "content": fact.answer})
        return messages


def _draw_facts(people: int, numbers: random.Random) -> list[Fact]:
    """Draw `FACTS` facts of different kinds in random order, each about one of `people` people."""
    names = _draw_without_replacement(NAMES.split(), people, numbers)
    kinds = _draw_without_replacement(FACT_KINDS, FACTS, numbers)
    return [Fact(names[below(numbers, people)], kind, kind.values[below(numbers, len(kind.values))]) for kind in kinds]


def parse_facts(text: str) -> list[Fact]:
    """Return the facts stated in a text, in order."""
    facts = []
    for sentence in text.replace(". ", ".\n").split("\n"):
        name = sentence.split(" ")[0]
        for kind in FACT_KINDS:
            prefix, suffix = kind.statement_template.format(name=name, value="\n").split("\n")
            value = sentence.removeprefix(prefix).removesuffix(suffix)
            if sentence == prefix + value + suffix and value in kind.values:
                facts.append(Fact(name, kind, value))
    return facts


@cache
def is_held_out(fact: Fact) -> bool:
    """Return whether this fact is held out, so that `talk` never asks about it."""
    return hashlib.sha256(fact.answer.encode("ascii")).digest()[0] % HELD_OUT == 0


def _draw_without_replacement(items: Sequence[Item], count: int, numbers: random.Random) -> list[Item]:
    """Draw `count` items without replacement, in the order in which they are drawn."""
    remaining = list(items)
    return [remaining.pop(below(numbers, len(remaining))) for _ in range(count)]


def _shuffle(items: list[Item], numbers: random.Random) -> None:
    """Shuffle items in place (Fisher-Yates)."""
    for last in range(len(items) - 1, 0, -1):
        other = below(numbers, last + 1)
        items[last], items[other] = items[other], items[last]
