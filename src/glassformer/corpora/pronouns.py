"""`pronouns-bn`: Bangla sentences in which the verb agrees with one of two pronouns.

A Bangla verb agrees with its subject in person and in respect, not in gender or number: with দেখা (to see), আমি দেখি
(I), তুই দেখিস, তুমি দেখো, আপনি দেখেন (you: intimate, familiar, polite), সে দেখে, তিনি দেখেন (he or she: familiar,
respected). The verb comes last, and the subject may precede or follow the object: "আমি তোমাকে রোজ মাঠে দেখি।" and
"তোমাকে আমি রোজ মাঠে দেখি।" both mean "I see you in the field every day." So only the case of the two pronouns (আমি,
not আমাকে) shows with which one the verb agrees.

In a minimal pair, the verb of the wrong text agrees with the object. Pairs come in groups of four twins with the same
words, except for the case of the pronouns: either of two persons is the subject, which comes first or second. Some
combinations of two persons and a verb are held out: documents never contain them, and minimal pairs contain no others.
All texts are in Unicode form NFC.
"""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import permutations

from glassformer.corpora.corpus import LEARNS_PAIRS, TEXT_TASKS, MinimalPair, below, generator
from glassformer.corpora.grammar import Grammar, Slot, Word, free, render_wording, sentence


@dataclass(frozen=True)
class Pronoun:
    """A personal pronoun.

    Attributes:
        subject: form as the subject, such as আমি.
        object: form as the object, such as আমাকে.
        person: 1, 2 or 3.
        verb: number of the verb form that agrees with the pronoun, in the rows of `VERBS`.
    """

    subject: str
    object: str
    person: int
    verb: int


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


PRONOUNS = (
    Pronoun("আমি", "আমাকে", 1, 0),
    Pronoun("তুমি", "তোমাকে", 2, 1),
    Pronoun("তুই", "তোকে", 2, 2),
    Pronoun("আপনি", "আপনাকে", 2, 3),
    Pronoun("তিনি", "তাঁকে", 3, 3),
    Pronoun("সে", "তাকে", 3, 4),
)
VERBS = [
    _nfc(forms).split()
    for forms in (
        "দেখি দেখো দেখিস দেখেন দেখে",  # to see
        "ডাকি ডাকো ডাকিস ডাকেন ডাকে",  # to call
        "খুঁজি খোঁজো খুঁজিস খোঁজেন খোঁজে",  # to look for
        "ধরি ধরো ধরিস ধরেন ধরে",  # to catch
        "আনি আনো আনিস আনেন আনে",  # to bring
        "আঁকি আঁকো আঁকিস আঁকেন আঁকে",  # to draw
        "থামাই থামাও থামাস থামান থামায়",  # to stop
        "হাসাই হাসাও হাসাস হাসান হাসায়",  # to make laugh
        "শেখাই শেখাও শেখাস শেখান শেখায়",  # to teach
        "জাগাই জাগাও জাগাস জাগান জাগায়",  # to wake
        "খাওয়াই খাওয়াও খাওয়াস খাওয়ান খাওয়ায়",  # to feed
        "পাই পাও পাস পান পায়",  # to find
    )
]
"""Present tense of each verb, for আমি, তুমি, তুই, আপনি and তিনি, and সে."""
TIMES = "রোজ প্রতিদিন সকালে দুপুরে বিকেলে রাতে"  # every day, daily, in the morning, at noon, in the afternoon, at night
PLACES = "মাঠে বাজারে স্কুলে পথে বাগানে দোকানে গ্রামে শহরে"  # field, market, school, way, garden, shop, village, town
WORDINGS = {
    "subject first": "{people:subject} {people:object} {time} {place} {verb}।",
    "object first": "{people:object} {people:subject} {time} {place} {verb}।",
}
PAIRS_FROM = 1 << 32
"""First index of the random generators of minimal pairs; documents start at 0."""


def held_out(first: Pronoun, second: Pronoun, verb: int) -> bool:
    """Return whether two pronouns with this verb are held out from documents; a hash chooses about one in four."""
    names = "/".join(sorted((first.subject, second.subject)))
    return zlib.crc32(f"{names}/{VERBS[verb][0]}".encode()) % 4 == 0


def people() -> list[tuple[Pronoun, Pronoun]]:
    """Return all pairs (subject, object) with different verb forms, of which at most one is the first or second person.

    The second condition is for each of the persons: nobody is addressed as তুমি and as আপনি in one sentence.
    """
    return [
        (subject, other)
        for subject, other in permutations(PRONOUNS, 2)
        if subject.verb != other.verb and (subject.person != other.person or subject.person == 3)
    ]


@dataclass(frozen=True)
class Pronouns:
    """The corpus `pronouns-bn`: sentences, and minimal pairs."""

    name: str = "pronouns-bn"
    summary: str = "Bangla: the verb agrees with the subject, one of two pronouns, in person and respect; minimal pairs"
    tasks: tuple[str, ...] = TEXT_TASKS

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return settings with words as tokens, one sentence per row, and a small model that learns the agreement."""
        return {
            **LEARNS_PAIRS,
            "model.positions": "rotary",
            "tokenizer.kind": "words",
            "data.windows": "documents",
            "data.size": "20000",
            "model.context": "40",
            "model.layers": "2",
            "model.heads": "2",
            "model.width": "64",
            "train.steps": "500",
        }

    def documents(self, size: int, seed: int) -> Iterator[str]:
        """Yield one sentence per document; all choices are uniform."""
        return (grammar().sample(generator(seed, index)) for index in range(size))

    def minimal_pairs(self, size: int, seed: int) -> Iterator[MinimalPair]:
        """Yield minimal pairs; pairs 4i to 4i + 3 are twins, with either order and either subject."""
        wordings = dict(zip(WORDINGS, grammar().sentences[0], strict=True))
        options = [
            (first, second, verb)
            for first, second in people()
            for verb in range(len(VERBS))
            if held_out(first, second, verb)
        ]
        for index in range(size):
            twin, number = divmod(index, 4)
            numbers = generator(seed, PAIRS_FROM + twin)
            subject, other, verb = options[below(numbers, len(options))]
            time, place = (Word(words.split()[below(numbers, len(words.split()))]) for words in (TIMES, PLACES))
            if number % 2:
                subject, other = other, subject
            cell = tuple(WORDINGS)[number // 2]
            good, bad = (
                render_wording(
                    wordings[cell],
                    {"people": _word(subject, other), "time": time, "place": place, "verb": Word(VERBS[verb][form])},
                )
                for form in (subject.verb, other.verb)
            )
            yield MinimalPair(good, bad, 0, cell, 0, twin)

    def entropy(self) -> float:
        """Return the exact entropy in nats per sentence, by the closed form of the grammar."""
        return grammar().entropy()

    def log_probability(self, document: str) -> float:
        """Return ln p of a sentence by parsing it; minus infinity for other text and held-out combinations."""
        return grammar().log_probability(document)

    def mean_characters(self) -> float:
        """Return the exact mean number of characters of a sentence, by the closed form of the grammar."""
        return grammar().mean(len)


def _word(subject: Pronoun, other: Pronoun) -> Word:
    """Return the value of the slot `people`."""
    return Word(f"{subject.subject} {other.object}", {"subject": subject.subject, "object": other.object})


@cache
def grammar() -> Grammar:
    """Return the grammar of `pronouns-bn`, without the held-out combinations; cached."""
    verbs = {
        _word(subject, other).text: [
            Word(VERBS[verb][subject.verb]) for verb in range(len(VERBS)) if not held_out(subject, other, verb)
        ]
        for subject, other in people()
    }
    slots = [
        free("people", [_word(subject, other) for subject, other in people()]),
        free("time", [Word(time) for time in TIMES.split()]),
        free("place", [Word(place) for place in PLACES.split()]),
        Slot("verb", verbs, given="people"),
    ]
    return Grammar(slots, [sentence(*WORDINGS.values())])
