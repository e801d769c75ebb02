"""Grammar rules for nouns, adjectives, noun phrases and verbs; category names encode the features that must agree.

Examples of category names: "noun man pl gen", "np thing f sg acc", "verb person sg past no". The features in such names
are a kind ("man", "woman", "thing m", "thing f") or its animacy ("person", "thing"), a number ("sg", "pl"), a Bangla
classifier, a Bangla case ("nom", "acc", "gen"), a tense, "yes" or "no" for affirmative or negative, and the index of a
French form (see `agreement`); each name contains some of these features. Languages are always in the order English,
French, Bangla.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from glassformer.corpora.synchronous import Rules
from glassformer.corpora.translation.lexicon import ADJECTIVES, FALL, NOUNS, NUMERALS, PREPOSITIONS, VERBS, Noun, Verb

PERSONS = ("man", "woman")
THINGS = ("thing m", "thing f")
KINDS = (*PERSONS, *THINGS)
NUMBERS = ("sg", "pl")
CASES = ("nom", "acc", "gen")
TRUTHS = ("yes", "no")
TENSES = ("present", "past", "future")
CLASSIFIERS = {"man": ("টি", "জন"), "woman": ("টি", "জন"), "thing m": ("টি",), "thing f": ("টি",)}


def animacy(kind: str) -> str:
    """Return the animacy of a kind of noun, "person" or "thing", which limits its adjectives and verbs."""
    return "person" if kind in PERSONS else "thing"


def agreement(kind: str, number: str) -> int:
    """Return the index of a French form: masculine singular, feminine singular, masculine plural, feminine plural."""
    return (kind in ("woman", "thing f")) + 2 * (number == "pl")


def add_nouns(rules: Rules) -> None:
    """Add definite nouns by number and case, and counted nouns by classifier."""
    for noun in NOUNS:
        person = noun.kind in PERSONS
        plural = (noun.genitive + "া", noun.bangla + "দেরকে", noun.bangla + "দের")
        if not person:
            plural = (noun.bangla + "গুলো", noun.bangla + "গুলো", noun.bangla + "গুলোর")
        single = (noun.bangla + "টি", noun.bangla + ("টিকে" if person else "টি"), noun.bangla + "টির")
        counted = (noun.bangla, noun.bangla + ("কে" if person else ""), noun.genitive)
        for case, *forms in zip(CASES, single, plural, counted, strict=True):
            for index, number in enumerate(NUMBERS):
                _add_noun(rules, noun, f"{number} {case}", index, forms[index])
                _add_noun(rules, noun, f"{number} {noun.classifier} {case}", index, forms[2])


def _add_noun(rules: Rules, noun: Noun, form: str, index: int, bangla: str) -> None:
    rules.add(f"noun {noun.kind} {form}", [], noun.english[index], noun.french[index], bangla)


def add_adjectives(rules: Rules) -> None:
    """Add adjectives before or after the French noun, and predicative adjectives, in the spelling before consonants."""
    for adjective in ADJECTIVES:
        for of in adjective.of.split():
            for form, french in enumerate(adjective.french):
                forms = (adjective.english, french, adjective.bangla)
                rules.add(f"{adjective.position} {of} {form}", [], *forms)
                rules.add(f"predicate {of} {form}", [], adjective.english, french.split("|")[0], adjective.bangla)


def add_noun_phrases(rules: Rules) -> None:
    """Add noun phrases with articles, numerals, adjectives and prepositional phrases of place."""
    for of, english, french, bangla in PREPOSITIONS:
        for kind in of.split():
            rules.add(f"preposition {kind}", [], english, french, bangla)
    for animate in ("person", "thing"):
        for category, spot in (("place", "spot"), ("far place", "plain spot")):
            parts = [f"preposition {animate}", f"{spot} {animate}"]
            rules.add(category, parts, "0 1", "0 1", "1 0", weight=1 if animate == "person" else 2)
    for kind, number in product(KINDS, NUMBERS):
        for case in CASES:
            _add_phrases(rules, kind, number, case)
        who = animacy(kind)
        plain = f"plain {kind} {number} gen"
        rules.choose(f"plain spot {who}", plain)
        rules.choose(f"spot {who}", plain, 3)
        rules.add(f"spot {who}", [plain, "far place"], "0 1", "0 1", "1 0")
        rules.choose(f"object {who} yes", f"np {kind} {number} acc")
        # French negation would turn an indefinite object "un livre" into "de livre".
        rules.choose(f"object {who} no", f"known {kind} {number} acc")


def _add_phrases(rules: Rules, kind: str, number: str, case: str) -> None:
    """Add noun phrases.

    `the` has a definite article, `some` has an indefinite article or a numeral, and `plain` is either of these. `known`
    is `the`, and `np` is `plain`, with or without a prepositional phrase of place.
    """
    form = agreement(kind, number)
    article = ("le|l'", "la|l'", "les", "les")[form]
    the, some, plain = (f"{name} {kind} {number} {case}" for name in ("the", "some", "plain"))
    _add_described(rules, the, kind, number, f"noun {kind} {number} {case}", ("the", article, ""))
    for classifier in CLASSIFIERS[kind]:
        noun = f"noun {kind} {number} {classifier} {case}"
        weight = sum(entry.kind == kind and entry.classifier == classifier for entry in NOUNS)
        one = ("a|an", ("un", "une")[form % 2], "এক")
        for english, french, bangla in (one,) if number == "sg" else NUMERALS:
            _add_described(rules, some, kind, number, noun, (english, french, bangla + classifier), weight)
    rules.choose(plain, the, 3)
    rules.choose(plain, some, 1)
    for name, core in (("known", the), ("np", plain)):
        category = f"{name} {kind} {number} {case}"
        rules.choose(category, core, 3)
        rules.add(category, [core, "place"], "0 1", "0 1", "1 0")


def _add_described(
    rules: Rules, category: str, kind: str, number: str, noun: str, first: Sequence[str], weight: float = 1.0
) -> None:
    """Add a noun with its article or numeral and zero to two adjectives."""
    pre, post = (f"{position} {animacy(kind)} {agreement(kind, number)}" for position in ("pre", "post"))
    english, french, bangla = first
    rules.add(category, [noun], f"{english} 0", f"{french} 0", f"{bangla} 0", weight=3 * weight)
    rules.add(category, [pre, noun], f"{english} 0 1", f"{french} 0 1", f"{bangla} 0 1", weight=weight)
    rules.add(category, [post, noun], f"{english} 0 1", f"{french} 1 0", f"{bangla} 0 1", weight=weight)
    parts = [pre, post, noun]
    rules.add(category, parts, f"{english} 0 1 2", f"{french} 0 2 1", f"{bangla} 0 1 2", weight=weight / 3)


def add_verbs(rules: Rules) -> None:
    """Add verb forms.

    `act` has no object, and its French participle may agree with the subject. `verb` has an object that follows it in
    English and French. `gap` has an object that precedes it, with which the French participle agrees.
    """
    for tense, number in product(TENSES, NUMBERS):
        for verb in VERBS:
            for of in verb.object.split():
                for truth in TRUTHS:
                    rules.add(f"verb {of} {number} {tense} {truth}", [], *verb_forms(verb, number, tense, truth, 0))
                for form in range(4):
                    forms = verb_forms(verb, number, tense, "yes", form)
                    rules.add(f"gap {of} {number} {tense} {form}", [], *forms)
        for kind, truth in product(KINDS, TRUTHS):
            form = agreement(kind, number)
            for verb in [FALL, *(verb for verb in VERBS if not verb.object and kind in PERSONS)]:
                forms = verb_forms(verb, number, tense, truth, form if verb.etre else 0)
                rules.add(f"act {kind} {number} {tense} {truth}", [], *forms)


def verb_forms(verb: Verb, number: str, tense: str, truth: str, form: int) -> tuple[str, str, str]:
    """Return one verb form in the three languages; `form` is the index of the French participle form."""
    plural = number == "pl"
    base, third, past = verb.english
    if truth == "yes":
        english = {"present": base if plural else third, "past": past, "future": f"will {base}"}[tense]
    else:
        english = {"present": "do" if plural else "does", "past": "did", "future": "will"}[tense] + f" not {base}"
    auxiliary = (("est", "sont") if verb.etre else ("a", "ont"))[plural]
    french = {
        "present": verb.french[plural],
        "past": auxiliary,
        "future": verb.french[3] + ("ont" if plural else "a"),
    }[tense]
    if truth == "no":
        french = f"ne|n' {french} pas"
    if tense == "past":
        french += f" {verb.french[2]}{('', 'e', 's', 'es')[form]}"
    bangla = verb.bangla[TENSES.index(tense)]
    if truth == "no":
        bangla = verb.bangla[3] if tense == "past" else f"{bangla} না"
    return english, french, bangla


def add_predicates(rules: Rules) -> None:
    """Add `vp`: a verb with its object, if it has one, or "to be" with an adjective.

    The affirmative Bangla present of "to be" is expressed without a verb.
    """
    for kind, number, tense in product(KINDS, NUMBERS, TENSES):
        category = f"vp {kind} {number} {tense}"
        for truth in TRUTHS:
            _add_predicate(rules, kind, number, tense, truth)
        rules.choose(category, f"{category} yes", 4)
        rules.choose(category, f"{category} no", 1)


def _add_predicate(rules: Rules, kind: str, number: str, tense: str, truth: str) -> None:
    category = f"vp {kind} {number} {tense} {truth}"
    plural = number == "pl"
    person = kind in PERSONS
    rules.choose(category, f"act {kind} {number} {tense} {truth}", 2 if person else 1)
    english = {"present": ("is", "are"), "past": ("was", "were"), "future": ("will", "will")}[tense][plural]
    english += (" not" if truth == "no" else "") + (" be" if tense == "future" else "")
    french = {"present": ("est", "sont"), "past": ("était", "étaient"), "future": ("sera", "seront")}[tense][plural]
    french = f"ne|n' {french} pas" if truth == "no" else french
    bangla = {"present": "", "past": "ছিল", "future": "হবে"}[tense]
    if truth == "no":
        bangla = "নয়" if tense == "present" else f"{bangla} না"
    predicate = f"predicate {animacy(kind)} {agreement(kind, number)}"
    rules.add(category, [predicate], f"{english} 0", f"{french} 0", f"0 {bangla}", weight=2)
    for of in ("person", "thing") if person else ():
        parts = [f"verb {of} {number} {tense} {truth}", f"object {of} {truth}"]
        rules.add(category, parts, "0 1", "0 1", "1 0", weight=2)
