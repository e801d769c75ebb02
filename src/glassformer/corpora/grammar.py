"""Probabilistic template grammar with exact entropy and exact probabilities of its texts.

A text is a fixed sequence of sentences. Each sentence is one of several wordings, drawn independently. A wording
mentions slots, as in ``"{hero} wanted {thing:a}."``. A slot is drawn at its first mention and keeps its value; a name
in the first sentence can thus return in the last one. ``{slot:form}`` is another form of the same value, for example
with an article, with a capital letter, or as a pronoun. The distribution of a slot may depend on the value of one
other slot.

Every wording of a sentence draws the same slots. All texts therefore have the same list of draws, and the chain rule
gives the entropy in closed form:

    H = sum over sentences of H(wording)  +  sum over slots of E[H(slot | the slot it depends on)]

This is the entropy of the text if texts and draws correspond one to one, which tests check with `derivations`.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

Value = TypeVar("Value")
MENTION = re.compile(r"\{(\w+)(?::(\w+))?\}")


@dataclass(frozen=True)
class Word:
    """One value of a slot.

    Args:
        text: plain form, for `{slot}`; it also identifies the value.
        forms: other forms by name, for `{slot:name}`.
        weight: unnormalized probability among the values of its slot.
    """

    text: str
    forms: Mapping[str, str] = field(default_factory=dict)
    weight: float = 1.0

    def form(self, name: str) -> str:
        """Return the text of a form; the empty name is the plain form."""
        return self.forms[name] if name else self.text


@dataclass(frozen=True)
class Slot:
    """A random variable that is drawn once per text.

    Args:
        name: name in wordings.
        words: values, for each value of the slot that it depends on; under "" if it depends on none.
        given: name of the slot that it depends on, or "".
    """

    name: str
    words: Mapping[str, Sequence[Word]]
    given: str = ""

    @cached_property
    def _tables(self) -> dict[str, list[tuple[Word, float]]]:
        totals = {key: sum(word.weight for word in words) for key, words in self.words.items()}
        return {key: [(word, word.weight / totals[key]) for word in words] for key, words in self.words.items()}

    def probabilities(self, known: Mapping[str, Word]) -> list[tuple[Word, float]]:
        """Return each possible value with its probability, given the drawn slots in `known`."""
        return self._tables[known[self.given].text if self.given else ""]


def free(name: str, words: Sequence[Word]) -> Slot:
    """Return a slot that depends on no other slot."""
    return Slot(name, {"": words})


def other_than(name: str, given: str, words: Sequence[Word]) -> Slot:
    """Return a slot that has the values of the slot `given`, but never the same value as that slot."""
    return Slot(name, {word.text: [other for other in words if other is not word] for word in words}, given)


@dataclass(frozen=True)
class Mention:
    """A slot in a wording, and the form in which its value appears."""

    slot: str
    form: str


Piece = str | Mention


@dataclass(frozen=True)
class Wording:
    """One wording of a sentence: its fixed text and mentions in order, and its probability."""

    pieces: tuple[Piece, ...]
    probability: float


def sentence(*wordings: str) -> tuple[Wording, ...]:
    """Return a sentence with equally likely wordings."""
    return tuple(Wording(_pieces(wording), 1 / len(wordings)) for wording in wordings)


def render_wording(wording: Wording, known: Mapping[str, Word]) -> str:
    """Return the text of a wording with the values of its slots."""
    return "".join(piece if isinstance(piece, str) else known[piece.slot].form(piece.form) for piece in wording.pieces)


def _pieces(wording: str) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    end = 0
    for match in MENTION.finditer(wording):
        if match.start() > end:
            pieces.append(wording[end : match.start()])
        pieces.append(Mention(match[1], match[2] or ""))
        end = match.end()
    if end < len(wording):
        pieces.append(wording[end:])
    return tuple(pieces)


class _Reading(NamedTuple):
    """A partial parse of a text up to `position`: the drawn slots, and the log probability of the draws."""

    position: int
    known: Mapping[str, Word]
    log_probability: float


class Grammar:
    """A grammar of slots and sentences; sentences are joined by one space.

    Raises:
        ValueError: wordings of one sentence draw different slots, a slot is drawn before the slot it depends on, or no
            sentence draws a slot.
    """

    def __init__(self, slots: Sequence[Slot], sentences: Sequence[Sequence[Wording]]) -> None:
        self.slots = {slot.name: slot for slot in slots}
        self.sentences = tuple(tuple(wordings) for wordings in sentences)
        known: set[str] = set()
        for wordings in self.sentences:
            drawn = [self._drawn(wording, known) for wording in wordings]
            if any(set(one) != set(drawn[0]) for one in drawn):
                raise ValueError(f"the wordings of one sentence draw different slots: {drawn}")
            known.update(drawn[0])
        if known != set(self.slots):
            raise ValueError(f"slots that no sentence draws: {sorted(set(self.slots) - known)}")

    def _drawn(self, wording: Wording, known: set[str]) -> list[str]:
        """Return the slots that a wording draws, in order."""
        drawn: list[str] = []
        for piece in wording.pieces:
            if isinstance(piece, Mention) and piece.slot not in known and piece.slot not in drawn:
                given = self.slots[piece.slot].given
                if given and given not in known and given not in drawn:
                    raise ValueError(f"slot {piece.slot!r} is drawn before {given!r}, on which it depends")
                drawn.append(piece.slot)
        return drawn

    def sample(self, numbers: random.Random) -> str:
        """Sample one text; uses `numbers.random` only."""
        return self.draw(numbers)[0]

    def draw(self, numbers: random.Random) -> tuple[str, Mapping[str, Word]]:
        """Sample one text, and return it with the value of each slot; uses `numbers.random` only."""
        known: dict[str, Word] = {}
        parts: list[str] = []
        for wordings in self.sentences:
            wording = _draw([(wording, wording.probability) for wording in wordings], numbers)
            for piece in wording.pieces:
                if isinstance(piece, Mention) and piece.slot not in known:
                    known[piece.slot] = _draw(self.slots[piece.slot].probabilities(known), numbers)
            parts.append(render_wording(wording, known))
        return " ".join(parts), known

    def derivations(self, text: str) -> list[float]:
        """Return the log probability of every derivation of `text`; empty for text outside the grammar."""
        return [reading.log_probability for reading in self._readings(text)]

    def drawn(self, text: str) -> list[Mapping[str, Word]]:
        """Return the value of each slot, for every derivation of `text`."""
        return [reading.known for reading in self._readings(text)]

    def _readings(self, text: str) -> list[_Reading]:
        readings = [_Reading(0, {}, 0.0)]
        for number, wordings in enumerate(self.sentences):
            gap: tuple[Piece, ...] = (" ",) if number else ()
            readings = [
                after
                for before in readings
                for wording in wordings
                for after in self._read((*gap, *wording.pieces), text, before, math.log(wording.probability))
            ]
        return [reading for reading in readings if reading.position == len(text)]

    def _read(self, pieces: tuple[Piece, ...], text: str, before: _Reading, chance: float) -> Iterator[_Reading]:
        """Yield every continuation of a parse with these pieces of a wording of log probability `chance`."""
        position = before.position
        known = before.known
        for index, piece in enumerate(pieces):
            if isinstance(piece, Mention) and piece.slot not in known:
                for word, probability in self.slots[piece.slot].probabilities(known):
                    form = word.form(piece.form)
                    if text.startswith(form, position):
                        drawn = {**known, piece.slot: word}
                        here = _Reading(position + len(form), drawn, before.log_probability + math.log(probability))
                        yield from self._read(pieces[index + 1 :], text, here, chance)
                return
            expected = piece if isinstance(piece, str) else known[piece.slot].form(piece.form)
            if not text.startswith(expected, position):
                return
            position += len(expected)
        yield _Reading(position, known, before.log_probability + chance)

    def log_probability(self, text: str) -> float:
        """Return ln p(text), summed over its derivations; minus infinity for text outside the grammar."""
        ways = self.derivations(text)
        if not ways:
            return -math.inf
        most = max(ways)
        return most + math.log(sum(math.exp(way - most) for way in ways))

    def entropy(self) -> float:
        """Return the exact mean of -ln p(text) in nats (the closed form in the module docstring)."""
        wordings = sum(_entropy([wording.probability for wording in wordings]) for wordings in self.sentences)
        return wordings + sum(self._slot_entropy(slot) for slot in self.slots.values())

    def _slot_entropy(self, slot: Slot) -> float:
        """Return E[H(slot | the slot it depends on)] in nats."""
        if not slot.given:
            return _entropy([probability for _, probability in slot.probabilities({})])
        return sum(
            chance * _entropy([probability for _, probability in slot.probabilities({slot.given: value})])
            for value, chance in self.marginal(slot.given)
        )

    def marginal(self, name: str) -> list[tuple[Word, float]]:
        """Return each value of a slot with its marginal probability over all texts."""
        slot = self.slots[name]
        if not slot.given:
            return slot.probabilities({})
        chances: dict[str, tuple[Word, float]] = {}
        for value, chance in self.marginal(slot.given):
            for word, probability in slot.probabilities({slot.given: value}):
                earlier = chances[word.text][1] if word.text in chances else 0.0
                chances[word.text] = (word, earlier + chance * probability)
        return list(chances.values())

    def mean(self, measure: Callable[[str], float]) -> float:
        """Return the exact mean over texts of a measure that is additive over parts, such as `len`.

        Wordings are drawn independently of the slots, so the mean of each mention needs only the marginal of its slot.
        """
        total = (len(self.sentences) - 1) * measure(" ")
        for wordings in self.sentences:
            for wording in wordings:
                for piece in wording.pieces:
                    total += wording.probability * self._piece_mean(piece, measure)
        return total

    def _piece_mean(self, piece: Piece, measure: Callable[[str], float]) -> float:
        if isinstance(piece, str):
            return measure(piece)
        return sum(chance * measure(word.form(piece.form)) for word, chance in self.marginal(piece.slot))


def _entropy(probabilities: Sequence[float]) -> float:
    return -sum(p * math.log(p) for p in probabilities)


def _draw(options: Sequence[tuple[Value, float]], numbers: random.Random) -> Value:
    point = numbers.random()
    for value, probability in options:
        point -= probability
        if point < 0:
            return value
    return options[-1][0]  # rounding may leave `point` slightly above zero
