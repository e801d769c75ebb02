"""Probabilistic template grammar with exact entropy and exact probabilities of its texts.

A text is a fixed sequence of sentences. Each sentence is one of several wordings, drawn independently. A wording
mentions slots, as in ``"{hero} wanted {thing:a}."``. A slot is drawn at its first mention and keeps its value; a name
in the first sentence can thus occur in the last one. ``{slot:form}`` is another form of the same value, for example
with an article, with a capital letter, or as a pronoun. The distribution of a slot may depend on the value of one
other slot.

Every wording of a sentence draws the same slots. All texts therefore draw the same slots, and the chain rule gives the
entropy in closed form:

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
        words: value of the slot that this slot depends on -> possible values; the only key is "" if there is no such
            slot.
        given: name of the slot that this slot depends on, or "".
    """

    name: str
    words: Mapping[str, Sequence[Word]]
    given: str = ""

    @cached_property
    def _tables(self) -> dict[str, list[tuple[Word, float]]]:
        totals = {key: sum(word.weight for word in words) for key, words in self.words.items()}
        return {key: [(word, word.weight / totals[key]) for word in words] for key, words in self.words.items()}

    def probabilities(self, values: Mapping[str, Word]) -> list[tuple[Word, float]]:
        """Return each possible value with its probability, given the values of the slots drawn so far."""
        return self._tables[values[self.given].text if self.given else ""]


def free(name: str, words: Sequence[Word]) -> Slot:
    """Return a slot that depends on no other slot."""
    return Slot(name, {"": words})


def other_than(name: str, given: str, words: Sequence[Word]) -> Slot:
    """Return a slot with the same possible values as the slot `given`, but never equal to it in one text."""
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


def render_wording(wording: Wording, values: Mapping[str, Word]) -> str:
    """Return the text of a wording with the values of its slots."""
    return "".join(piece if isinstance(piece, str) else values[piece.slot].form(piece.form) for piece in wording.pieces)


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


class _PartialParse(NamedTuple):
    """A partial parse of a text up to `position`: the drawn slots, and the log probability of the draws."""

    position: int
    values: Mapping[str, Word]
    log_probability: float


class Grammar:
    """A grammar of slots and sentences; sentences are joined by one space.

    Raises:
        ValueError: wordings of one sentence draw different slots, a slot is drawn before the slot it depends on, or
            some slot is not drawn by any sentence.
    """

    def __init__(self, slots: Sequence[Slot], sentences: Sequence[Sequence[Wording]]) -> None:
        self.slots = {slot.name: slot for slot in slots}
        self.sentences = tuple(tuple(wordings) for wordings in sentences)
        drawn_slots: set[str] = set()
        for wordings in self.sentences:
            slots_by_wording = [self._new_slots(wording, drawn_slots) for wording in wordings]
            if any(set(slots) != set(slots_by_wording[0]) for slots in slots_by_wording):
                raise ValueError(f"the wordings of one sentence use different slots: {slots_by_wording}")
            drawn_slots.update(slots_by_wording[0])
        if drawn_slots != set(self.slots):
            raise ValueError(f"no sentence uses these slots: {sorted(set(self.slots) - drawn_slots)}")

    def _new_slots(self, wording: Wording, drawn_slots: set[str]) -> list[str]:
        """Return the slots that a wording draws, in order."""
        new_slots: list[str] = []
        for piece in wording.pieces:
            if isinstance(piece, Mention) and piece.slot not in drawn_slots and piece.slot not in new_slots:
                given = self.slots[piece.slot].given
                if given and given not in drawn_slots and given not in new_slots:
                    raise ValueError(f"slot {piece.slot!r} is used before {given!r}, on which it depends")
                new_slots.append(piece.slot)
        return new_slots

    def sample(self, numbers: random.Random) -> str:
        """Sample one text; uses `numbers.random` only."""
        return self.draw(numbers)[0]

    def draw(self, numbers: random.Random) -> tuple[str, Mapping[str, Word]]:
        """Sample one text, and return it with the value of each slot; uses `numbers.random` only."""
        values: dict[str, Word] = {}
        parts: list[str] = []
        for wordings in self.sentences:
            wording = _draw([(wording, wording.probability) for wording in wordings], numbers)
            for piece in wording.pieces:
                if isinstance(piece, Mention) and piece.slot not in values:
                    values[piece.slot] = _draw(self.slots[piece.slot].probabilities(values), numbers)
            parts.append(render_wording(wording, values))
        return " ".join(parts), values

    def derivations(self, text: str) -> list[float]:
        """Return the log probability of every derivation of `text`; empty for text outside the grammar."""
        return [parse.log_probability for parse in self._parses(text)]

    def slot_values(self, text: str) -> list[Mapping[str, Word]]:
        """Return the value of each slot, for every derivation of `text`."""
        return [parse.values for parse in self._parses(text)]

    def _parses(self, text: str) -> list[_PartialParse]:
        parses = [_PartialParse(0, {}, 0.0)]
        for number, wordings in enumerate(self.sentences):
            gap: tuple[Piece, ...] = (" ",) if number else ()
            parses = [
                continuation
                for parse in parses
                for wording in wordings
                for continuation in self._continuations(
                    (*gap, *wording.pieces), text, parse, math.log(wording.probability)
                )
            ]
        return [parse for parse in parses if parse.position == len(text)]

    def _continuations(
        self, pieces: tuple[Piece, ...], text: str, parse: _PartialParse, log_probability: float
    ) -> Iterator[_PartialParse]:
        """Yield every parse that extends `parse` by the pieces of a wording that has this log probability."""
        position = parse.position
        values = parse.values
        for index, piece in enumerate(pieces):
            if isinstance(piece, Mention) and piece.slot not in values:
                for word, probability in self.slots[piece.slot].probabilities(values):
                    form = word.form(piece.form)
                    if text.startswith(form, position):
                        new_values = {**values, piece.slot: word}
                        next_parse = _PartialParse(
                            position + len(form), new_values, parse.log_probability + math.log(probability)
                        )
                        yield from self._continuations(pieces[index + 1 :], text, next_parse, log_probability)
                return
            expected = piece if isinstance(piece, str) else values[piece.slot].form(piece.form)
            if not text.startswith(expected, position):
                return
            position += len(expected)
        yield _PartialParse(position, values, parse.log_probability + log_probability)

    def log_probability(self, text: str) -> float:
        """Return ln p(text), summed over its derivations; minus infinity for text outside the grammar."""
        log_probabilities = self.derivations(text)
        if not log_probabilities:
            return -math.inf
        largest = max(log_probabilities)
        return largest + math.log(sum(math.exp(log_probability - largest) for log_probability in log_probabilities))

    def entropy(self) -> float:
        """Return the exact mean of -ln p(text) in nats (the closed form in the module docstring)."""
        wordings = sum(_entropy([wording.probability for wording in wordings]) for wordings in self.sentences)
        return wordings + sum(self._slot_entropy(slot) for slot in self.slots.values())

    def _slot_entropy(self, slot: Slot) -> float:
        """Return E[H(slot | the slot it depends on)] in nats."""
        if not slot.given:
            return _entropy([probability for _, probability in slot.probabilities({})])
        return sum(
            given_probability * _entropy([probability for _, probability in slot.probabilities({slot.given: value})])
            for value, given_probability in self.marginal(slot.given)
        )

    def marginal(self, name: str) -> list[tuple[Word, float]]:
        """Return each value of a slot with its marginal probability over all texts."""
        slot = self.slots[name]
        if not slot.given:
            return slot.probabilities({})
        marginals: dict[str, tuple[Word, float]] = {}
        for value, given_probability in self.marginal(slot.given):
            for word, probability in slot.probabilities({slot.given: value}):
                earlier = marginals[word.text][1] if word.text in marginals else 0.0
                marginals[word.text] = (word, earlier + given_probability * probability)
        return list(marginals.values())

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
        return sum(probability * measure(word.form(piece.form)) for word, probability in self.marginal(piece.slot))


def _entropy(probabilities: Sequence[float]) -> float:
    return -sum(p * math.log(p) for p in probabilities)


def _draw(options: Sequence[tuple[Value, float]], numbers: random.Random) -> Value:
    point = numbers.random()
    for value, probability in options:
        point -= probability
        if point < 0:
            return value
    return options[-1][0]  # rounding may leave `point` slightly above zero
