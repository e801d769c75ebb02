"""Synchronous context-free grammar: every rule expresses the same content in several languages.

A rule of a category lists the categories of its parts and, for each language, their order and the words between them.
One derivation is therefore a sentence with its translations. Category names encode agreement ("noun woman pl nom"), so
that the grammar cannot combine words that do not agree.

Parsing finds all derivations of a sentence by memoized recursive descent (Norvig 1991, "Techniques for automatic
memoization with applications to context-free parsing"). No rule may be empty, and no category may expand to a sequence
that begins with the same category (left recursion).
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

Item = str | int
"""A word, or the index of a part."""


class Rule(NamedTuple):
    """One expansion of a category."""

    weight: float
    parts: tuple[str, ...]
    items_by_language: Mapping[str, tuple[Item, ...]]
    """For each language: words and indices of parts in its word order. "a|b" is a word with two spellings."""


class Derivation(NamedTuple):
    """A rule with the derivations of its parts."""

    rule: Rule
    parts: tuple[Derivation, ...]

    def words(self, language: str) -> list[str]:
        """Return the words in one language; a word with two spellings is given as "a|b"."""
        words: list[str] = []
        self._add_words(language, words)
        return words

    def _add_words(self, language: str, words: list[str]) -> None:
        for item in self.rule.items_by_language[language]:
            if isinstance(item, int):
                self.parts[item]._add_words(language, words)
            else:
                words.append(item)


class Rules:
    """Builder for the rules of a grammar."""

    def __init__(self, languages: Sequence[str]) -> None:
        self.languages = tuple(languages)
        self.table: dict[str, list[Rule]] = {}

    def add(self, category: str, parts: Sequence[str], *sides: str, weight: float = 1.0) -> None:
        """Add a rule; `sides` has one string for each language: words and indices of parts, separated by spaces."""
        items_by_language = {
            language: tuple(int(item) if item.isdigit() else item for item in side.split())
            for language, side in zip(self.languages, sides, strict=True)
        }
        self.table.setdefault(category, []).append(Rule(weight, tuple(parts), items_by_language))

    def choose(self, category: str, other: str, weight: float = 1.0) -> None:
        """Add a rule that expands a category into another category."""
        self.add(category, [other], *["0"] * len(self.languages), weight=weight)


class SynchronousGrammar:
    """A grammar that samples derivations, and parses the words of any of its languages into derivations."""

    def __init__(self, rules: Rules, start: str) -> None:
        self.rules = {category: tuple(expansions) for category, expansions in rules.table.items()}
        self.start = start
        self._cumulative_weights = {
            category: list(accumulate(rule.weight for rule in expansions))
            for category, expansions in self.rules.items()
        }

    def draw(self, numbers: random.Random) -> Derivation:
        """Sample one derivation; uses `numbers.random` only."""
        return self._draw(self.start, numbers)

    def _draw(self, category: str, numbers: random.Random) -> Derivation:
        expansions = self.rules[category]
        if len(expansions) == 1:
            rule = expansions[0]
        else:
            cumulative_weights = self._cumulative_weights[category]
            rule = expansions[
                min(bisect(cumulative_weights, numbers.random() * cumulative_weights[-1]), len(expansions) - 1)
            ]
        return Derivation(rule, tuple([self._draw(part, numbers) for part in rule.parts]))

    def parse(self, words: Sequence[str], language: str) -> list[Derivation]:
        """Return every derivation with these words; either spelling matches a word with two spellings."""
        parser = _Parser(self, words, language)
        return [derivation for end, derivation in parser.derivations(self.start, 0) if end == len(words)]

    @cached_property
    def beginnings(self) -> dict[str, dict[str, frozenset[str]]]:
        """Return the possible first words of each category, by language."""
        return {language: self._beginnings(language) for language in self.rules[self.start][0].items_by_language}

    def _beginnings(self, language: str) -> dict[str, frozenset[str]]:
        first_words: dict[str, frozenset[str]] = {}

        def find(category: str) -> frozenset[str]:
            if category not in first_words:
                words: set[str] = set()
                for rule in self.rules[category]:
                    first = rule.items_by_language[language][0]
                    words.update(find(rule.parts[first]) if isinstance(first, int) else first.split("|"))
                first_words[category] = frozenset(words)
            return first_words[category]

        for category in self.rules:
            find(category)
        return first_words


EndedDerivations = list[tuple[int, Derivation]]


class _Parser:
    """A parser for one sentence that remembers the derivations of each category at each position."""

    def __init__(self, grammar: SynchronousGrammar, words: Sequence[str], language: str) -> None:
        self._grammar = grammar
        self._words = words
        self._language = language
        self._beginnings = grammar.beginnings[language]
        self._memo: dict[tuple[str, int], EndedDerivations] = {}

    def derivations(self, category: str, start: int) -> EndedDerivations:
        """Return the (end, derivation) pairs of a category that begins at `start`."""
        if start == len(self._words) or self._words[start] not in self._beginnings[category]:
            return []
        key = (category, start)
        if key not in self._memo:
            self._memo[key] = [
                (end, Derivation(rule, tuple(parts[number] for number in range(len(rule.parts)))))
                for rule in self._grammar.rules[category]
                for end, parts in self._match_items(rule.items_by_language[self._language], rule, start)
            ]
        return self._memo[key]

    def _match_items(self, items: tuple[Item, ...], rule: Rule, start: int) -> list[tuple[int, dict[int, Derivation]]]:
        states: list[tuple[int, dict[int, Derivation]]] = [(start, {})]
        for item in items:
            if isinstance(item, int):
                states = [
                    (end, {**parts, item: derivation})
                    for position, parts in states
                    for end, derivation in self.derivations(rule.parts[item], position)
                ]
            else:
                states = [
                    (position + 1, parts)
                    for position, parts in states
                    if position < len(self._words) and self._words[position] in item.split("|")
                ]
            if not states:
                break
        return states
