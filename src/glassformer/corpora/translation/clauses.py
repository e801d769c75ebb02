"""Grammar rules for sentences: relative clauses, pronouns with distant antecedents, and joined clauses.

A pronoun subject refers to the subject or the object of the clause before it. A pronoun refers to the object only if
subject and object take different pronouns in all three languages, so that the antecedent is unambiguous in each
language.
"""

from __future__ import annotations

from functools import cache
from itertools import product

from glassformer.corpora.synchronous import Rules, SynchronousGrammar
from glassformer.corpora.translation.lexicon import DAYS
from glassformer.corpora.translation.phrases import (
    KINDS,
    NUMBERS,
    PERSONS,
    TENSES,
    THINGS,
    add_adjectives,
    add_noun_phrases,
    add_nouns,
    add_predicates,
    add_verbs,
    agreement,
    animacy,
)

LANGUAGES = ("english", "french", "bangla")
WHO = tuple(product(KINDS, NUMBERS))
PEOPLE = tuple(product(PERSONS, NUMBERS))
SHARE = {kind: 2.0 if kind in PERSONS else 1.0 for kind in KINDS}


def pronouns(kind: str, number: str) -> tuple[str, str, str]:
    """Return the pronouns for the subject of a clause, in each language."""
    plural = number == "pl"
    english = "they" if plural else {"man": "he", "woman": "she"}.get(kind, "it")
    french = ("il", "elle", "ils", "elles")[agreement(kind, number)]
    return english, french, _bangla_pronoun(kind, plural)


def _bangla_pronoun(kind: str, plural: bool) -> str:
    if kind in THINGS:
        return "সেগুলো" if plural else "সেটি"
    return "তারা" if plural else "সে"


def bangla_object_pronoun(kind: str, number: str) -> str:
    """Return the Bangla pronoun for the object of a clause."""
    if kind in THINGS:
        return pronouns(kind, number)[2]
    return "তাদেরকে" if number == "pl" else "তাকে"


@cache
def translation_grammar() -> SynchronousGrammar:
    """Return the grammar of all directions of `translation`; cached."""
    rules = Rules(LANGUAGES)
    add_nouns(rules)
    add_adjectives(rules)
    add_noun_phrases(rules)
    add_verbs(rules)
    add_predicates(rules)
    _add_relative_clauses(rules)
    _add_clauses(rules)
    _add_sentences(rules)
    return SynchronousGrammar(rules, "sentence")


def _add_relative_clauses(rules: Rules) -> None:
    """Add `described`: a noun with a relative clause.

    In Bangla the clause with যে precedes the main clause, which refers to the noun with a pronoun.
    """
    for kind, number in WHO:
        category = f"described {kind} {number}"
        for tense in TENSES:
            if kind in PERSONS:
                parts = [f"the {kind} {number} nom", f"vp {kind} {number} {tense} yes"]
                rules.add(category, parts, "0 who 1", "0 qui 1", "যে 0 1", weight=4)
            for doer, doers in PEOPLE:
                gap = f"gap {animacy(kind)} {doers} {tense} {agreement(kind, number)}"
                parts = [f"the {kind} {number} acc", f"np {doer} {doers} nom", gap]
                rules.add(category, parts, "0 that 1 2", "0 que|qu' 1 2", "1 যে 0 2")


def _add_clauses(rules: Rules) -> None:
    """Add clauses: `simple` has a noun subject, `said` has a pronoun subject, `main` may have a relative clause."""
    for (kind, number), tense in product(WHO, TENSES):
        ending = f"{kind} {number} {tense}"
        subject = f"np {kind} {number} nom"
        predicate = f"vp {ending}"
        english, french, bangla = pronouns(kind, number)
        rules.add(f"simple {ending}", [subject, predicate], "0 1", "0 1", "0 1")
        rules.add(f"said {ending}", [predicate], f"{english} 0", f"{french} 0", f"{bangla} 0")
        rules.choose(f"simple {tense}", f"simple {ending}", SHARE[kind])
        rules.choose(f"main {ending}", f"simple {ending}", 4)
        rules.add(
            f"main {ending}", [f"described {kind} {number}", predicate], "0 1", "0 1", f"0 , {bangla} 1", weight=3
        )
        if kind in PERSONS:
            for other, others in WHO:
                parts = [subject, f"verb {animacy(other)} {number} {tense} yes", f"described {other} {others}"]
                order = f"2 , 0 {bangla_object_pronoun(other, others)} 1"
                rules.add(f"main {ending}", parts, "0 1 2", "0 1 2", order, weight=3 / len(WHO))


def _add_sentences(rules: Rules) -> None:
    for tense in TENSES:
        english, french, bangla = DAYS[tense]
        rules.add("sentence", [f"simple {tense}"], f"{english} 0", f"{french} , 0", f"{bangla} 0", weight=20)
        any_two = [f"simple {tense}"] * 2
        rules.add("sentence", any_two, "0 and 1", "0 et 1", "0 আর 1", weight=12)
        if tense != "future":  # English uses no future tense after "when"
            rules.add("sentence", any_two, "when 0 , 1", "quand 0 , 1", "যখন 0 , তখন 1", weight=9)
        for kind, number in WHO:
            _add_sentences_about(rules, kind, number, tense, weight=SHARE[kind])
        for (kind, number), (other, others) in product(PEOPLE, WHO):
            if all(a != b for a, b in zip(pronouns(kind, number), pronouns(other, others), strict=True)):
                parts = [
                    f"np {kind} {number} nom",
                    f"verb {animacy(other)} {number} {tense} yes",
                    f"np {other} {others} acc",
                    f"said {other} {others} {tense}",
                ]
                rules.add("sentence", parts, "0 1 2 because 3", "0 1 2 parce que|qu' 3", "0 2 1 , কারণ 3")


def _add_sentences_about(rules: Rules, kind: str, number: str, tense: str, weight: float) -> None:
    """Add sentences whose second clause, if any, has the same subject as the first."""
    ending = f"{kind} {number} {tense}"
    rules.choose("sentence", f"main {ending}", 3 * weight)
    main = f"main {ending}"
    simple = f"simple {ending}"
    said = f"said {ending}"
    rules.add("sentence", [main, said], "0 because 1", "0 parce que|qu' 1", "0 , কারণ 1", weight=2 * weight)
    rules.add("sentence", [simple, said], "0 , but 1", "0 , mais 1", "0 , কিন্তু 1", weight=1.5 * weight)
    if tense != "future":
        rules.add("sentence", [simple, said], "when 0 , 1", "quand 0 , 1", "যখন 0 , তখন 1", weight=weight)
