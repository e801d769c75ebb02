"""A synchronous grammar: every rule writes the same content in several languages at once.

A rule of a category lists the categories of its parts and, for each language, in which order it says them and with
which words of its own. One derivation is therefore a sentence and its translations. Agreement is in the names of the
categories ("noun woman plural"), so that a rule cannot be used where it would not agree.

Reading goes the other way: all derivations of a sentence, by memoised descent (Norvig 1991, "Techniques for
automatic memoization with applications to context-free parsing"). No rule may be empty or begin with its own
category.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

Item = str | int
"""A word, or the number of a part."""


class Rule(NamedTuple):
    """One way to say a category."""

    weight: float
    parts: tuple[str, ...]
    sides: Mapping[str, tuple[Item, ...]]
    """For each language: words, and numbers of parts, in its order. "a|b" is a word that has two spellings."""


class Derivation(NamedTuple):
    """A rule and what its parts were made of."""

    rule: Rule
    parts: tuple[Derivation, ...]

    def words(self, language: str) -> list[str]:
        """The words in one language, with both spellings of those that have two."""
        said: list[str] = []
        self._say(language, said)
        return said

    def _say(self, language: str, said: list[str]) -> None:
        for item in self.rule.sides[language]:
            if isinstance(item, int):
                self.parts[item]._say(language, said)
            else:
                said.append(item)


class Rules:
    """A list of rules in the making."""

    def __init__(self, languages: Sequence[str]) -> None:
        self.languages = tuple(languages)
        self.table: dict[str, list[Rule]] = {}

    def add(self, category: str, parts: Sequence[str], *sides: str, weight: float = 1.0) -> None:
        """One more rule; `sides`: for each language, words and numbers of parts, separated by spaces."""
        read = {
            language: tuple(int(item) if item.isdigit() else item for item in side.split())
            for language, side in zip(self.languages, sides, strict=True)
        }
        self.table.setdefault(category, []).append(Rule(weight, tuple(parts), read))

    def choose(self, category: str, other: str, weight: float = 1.0) -> None:
        """A category that may simply be another one."""
        self.add(category, [other], *["0"] * len(self.languages), weight=weight)


class SynchronousGrammar:
    """Draws derivations, and reads them back from the words of any of the languages."""

    def __init__(self, rules: Rules, start: str) -> None:
        self.rules = {category: tuple(found) for category, found in rules.table.items()}
        self.start = start
        self._bounds = {
            category: list(accumulate(rule.weight for rule in found)) for category, found in self.rules.items()
        }

    def draw(self, numbers: random.Random) -> Derivation:
        """One derivation; uses `numbers.random` only."""
        return self._draw(self.start, numbers)

    def _draw(self, category: str, numbers: random.Random) -> Derivation:
        found = self.rules[category]
        if len(found) == 1:
            rule = found[0]
        else:
            bounds = self._bounds[category]
            rule = found[min(bisect(bounds, numbers.random() * bounds[-1]), len(found) - 1)]
        return Derivation(rule, tuple([self._draw(part, numbers) for part in rule.parts]))

    def read(self, words: Sequence[str], language: str) -> list[Derivation]:
        """Every derivation whose words these may be; a word with two spellings is met by either."""
        reader = _Reader(self, words, language)
        return [derivation for end, derivation in reader.found(self.start, 0) if end == len(words)]

    @cached_property
    def beginnings(self) -> dict[str, dict[str, frozenset[str]]]:
        """Return for each language and category every word that it can begin with."""
        return {language: self._beginnings(language) for language in self.rules[self.start][0].sides}

    def _beginnings(self, language: str) -> dict[str, frozenset[str]]:
        known: dict[str, frozenset[str]] = {}

        def look(category: str) -> frozenset[str]:
            if category not in known:
                words: set[str] = set()
                for rule in self.rules[category]:
                    first = rule.sides[language][0]
                    words.update(look(rule.parts[first]) if isinstance(first, int) else first.split("|"))
                known[category] = frozenset(words)
            return known[category]

        for category in self.rules:
            look(category)
        return known


Found = list[tuple[int, Derivation]]


class _Reader:
    """One reading of one sentence: what every category may be at every place, looked up once."""

    def __init__(self, grammar: SynchronousGrammar, words: Sequence[str], language: str) -> None:
        self._grammar = grammar
        self._words = words
        self._language = language
        self._beginnings = grammar.beginnings[language]
        self._known: dict[tuple[str, int], Found] = {}

    def found(self, category: str, start: int) -> Found:
        """Return where a category that begins at `start` may end, and as what."""
        if start == len(self._words) or self._words[start] not in self._beginnings[category]:
            return []
        key = (category, start)
        if key not in self._known:
            self._known[key] = [
                (end, Derivation(rule, tuple(parts[number] for number in range(len(rule.parts)))))
                for rule in self._grammar.rules[category]
                for end, parts in self._follow(rule.sides[self._language], rule, start)
            ]
        return self._known[key]

    def _follow(self, side: tuple[Item, ...], rule: Rule, start: int) -> list[tuple[int, dict[int, Derivation]]]:
        states: list[tuple[int, dict[int, Derivation]]] = [(start, {})]
        for item in side:
            if isinstance(item, int):
                states = [
                    (end, {**parts, item: derivation})
                    for at, parts in states
                    for end, derivation in self.found(rule.parts[item], at)
                ]
            else:
                states = [
                    (at + 1, parts)
                    for at, parts in states
                    if at < len(self._words) and self._words[at] in item.split("|")
                ]
            if not states:
                break
        return states
