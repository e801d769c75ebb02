"""`senses`: sentences in which the other words determine the sense of "bank".

In "Because of the flood, the old bank crumbled, Mina said.", the bank is the side of a river; in "Because of the loan,
the old bank invested, Mina said.", it is a bank for money. A *cue word* ("flood", "loan") precedes the bank, and a verb
of the same sense follows it at once, so that a model must know the sense at "bank" to predict the verb. All other words
are independent of the sense.

Cue words and verbs have two halves (`halves`). The probe of this name finds the two senses in the vectors of "bank" in
sentences of one half, and tests them on sentences of the other half, which have no cue word and no verb in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from glassformer.corpora.corpus import LEARNS_PAIRS, TEXT_TASKS, below, generator
from glassformer.corpora.grammar import Grammar, Slot, Word, free, render_wording, sentence

WORD = "bank"
CUES = {
    "river": "flood rain current tide water boat canoe ferry fish otter beaver duck heron reed willow mud eel "
    "storm bridge swan raft trout frog stream",
    "money": "loan debt cash cheque salary mortgage deposit account coin credit budget invoice tax profit payment "
    "pension price wage currency dollar rent fee bond wallet",
}
VERBS = {
    "river": "crumbled slid eroded collapsed sank dried overflowed froze",
    "money": "invested lent paid profited borrowed charged refunded saved",
}
SENSES = tuple(CUES)
NAMES = "Mina Omar Nora Ravi Lily Sam Zoe Max"
WORDINGS = (
    "{name} talked about the {cue} before the bank {verb}.",
    "Because of the {cue}, the old bank {verb}, {name} said.",
    "The {cue} surprised {name} when the bank {verb}.",
    "{name} thought of the {cue} long after the bank {verb}.",
    "After the {cue}, {name} saw how the other bank {verb}.",
    "The {cue} is why the bank {verb}, wrote {name}.",
)
SENTENCES_FROM = 1 << 32
"""First index of the random generators of the probe's sentences; documents start at 0."""


@dataclass(frozen=True)
class SenseSentence:
    """A sentence of the probe.

    Attributes:
        text: the sentence; it contains `WORD` once.
        cue: the cue word.
        sense: "river" or "money".
        half: half of the cue word and of the verb, 0 or 1.
    """

    text: str
    cue: str
    sense: str
    half: int


@dataclass(frozen=True)
class Senses:
    """The corpus `senses`: one sentence per document."""

    name: str = "senses"
    summary: str = "one word with two senses: because of the flood, the bank crumbled; because of the loan, it invested"
    tasks: tuple[str, ...] = TEXT_TASKS

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return settings with words as tokens, one sentence per row, and a small model that learns the senses."""
        return {
            **LEARNS_PAIRS,
            "model.positions": "rotary",
            "tokenizer.kind": "words",
            "data.windows": "documents",
            "data.size": "10000",
            "model.context": "24",
            "model.layers": "2",
            "model.heads": "2",
            "model.width": "64",
            "train.steps": "300",
        }

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """Yield one sentence per document; all choices are uniform and, except the verb's sense, independent."""
        return (grammar().sample(generator(seed, index)) for index in range(size))

    def sentences(self, size: int, seed: int) -> Iterator[SenseSentence]:
        """Yield `size` sentences for each cue word, in which all words but the cue word and the verb are the same.

        Sentence i has the same name, wording and number of the verb for every cue word.
        """
        [wordings] = grammar().sentences
        for index in range(size):
            numbers = generator(seed, SENTENCES_FROM + index)
            wording = wordings[below(numbers, len(wordings))]
            name = NAMES.split()[below(numbers, len(NAMES.split()))]
            point = numbers.random()
            for sense in SENSES:
                for half, (cues, verbs) in enumerate(zip(halves(CUES[sense]), halves(VERBS[sense]), strict=True)):
                    for cue in cues:
                        verb = verbs[int(point * len(verbs))]
                        values = {"name": Word(name), "cue": Word(cue), "verb": Word(verb)}
                        yield SenseSentence(render_wording(wording, values), cue, sense, half)

    def entropy(self) -> float:
        """Return the exact entropy in nats per sentence, by the closed form of the grammar."""
        return grammar().entropy()

    def log_probability(self, document: str) -> float:
        """Return the exact ln p of a sentence by parsing it; minus infinity for other text."""
        return grammar().log_probability(document)

    def mean_characters(self) -> float:
        """Return the exact mean number of characters of a sentence, by the closed form of the grammar."""
        return grammar().mean(len)


def halves(words: str) -> tuple[list[str], list[str]]:
    """Return every other word, beginning with the first, and the remaining words.

    >>> halves("flood rain current tide")
    (['flood', 'current'], ['rain', 'tide'])
    """
    return words.split()[::2], words.split()[1::2]


@cache
def grammar() -> Grammar:
    """Return the grammar of `senses`; cached."""
    cues = [Word(cue) for sense in SENSES for cue in CUES[sense].split()]
    verbs = {cue: [Word(verb) for verb in VERBS[sense].split()] for sense in SENSES for cue in CUES[sense].split()}
    slots = [free("name", [Word(name) for name in NAMES.split()]), free("cue", cues), Slot("verb", verbs, given="cue")]
    return Grammar(slots, [sentence(*WORDINGS)])
