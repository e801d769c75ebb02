"""The corpus pronouns-bn: forms, twins, held-out combinations and probabilities."""

from __future__ import annotations

import math
import unicodedata
from itertools import product

import pytest

from glassformer.corpora.pronouns import PLACES, PRONOUNS, TIMES, VERBS, Pronouns, grammar, held_out, people

CORPUS = Pronouns()
PAIRS = list(CORPUS.minimal_pairs(800, seed=5))
SUBJECTS = {pronoun.subject: pronoun for pronoun in PRONOUNS}
OBJECTS = {pronoun.object: pronoun for pronoun in PRONOUNS}


def parts(text: str) -> tuple[int, int, str]:
    """Return the numbers of the verb forms that agree with the subject and with the object, and the verb."""
    first, second, time, place, verb = text.removesuffix("।").split()
    assert (time in TIMES.split(), place in PLACES.split()) == (True, True)
    subject, other = (first, second) if first in SUBJECTS else (second, first)
    return SUBJECTS[subject].verb, OBJECTS[other].verb, verb


def test_all_forms_are_different_and_in_nfc() -> None:
    forms = [form for verb in VERBS for form in verb]
    assert len(set(forms)) == len(forms) == 5 * len(VERBS)
    assert not SUBJECTS.keys() & OBJECTS.keys()
    for text in [*forms, *SUBJECTS, *OBJECTS, *CORPUS.documents(200, seed=1)]:
        assert text == unicodedata.normalize("NFC", text)


def test_the_verb_of_a_document_agrees_with_the_subject() -> None:
    orders = set()
    for text in CORPUS.documents(3000, seed=1):
        subject, other, verb = parts(text)
        assert subject != other
        assert [forms[subject] for forms in VERBS].count(verb) == 1
        orders.add(text.split()[0] in SUBJECTS)
    assert orders == {True, False}


def test_a_known_sentence_is_right_and_its_alternatives_are_not() -> None:
    free = next(verb for verb in range(len(VERBS)) if not held_out(PRONOUNS[0], PRONOUNS[1], verb))
    right, wrong = VERBS[free][0], VERBS[free][1]
    assert CORPUS.log_probability(f"আমি তোমাকে রোজ মাঠে {right}।") > -math.inf
    assert CORPUS.log_probability(f"তোমাকে আমি রোজ মাঠে {right}।") > -math.inf
    for text in (f"আমি তোমাকে রোজ মাঠে {wrong}।", f"আমি তুমি রোজ মাঠে {right}।", f"আমি তোকে রোজ মাঠে {wrong}।", ""):
        assert CORPUS.log_probability(text) == -math.inf


def test_pairs_differ_in_the_verb_which_agrees_with_subject_or_object() -> None:
    for pair in PAIRS:
        subject, other, good = parts(pair.good)
        forms = next(forms for forms in VERBS if good in forms)
        assert (good, parts(pair.bad)) == (forms[subject], (subject, other, forms[other]))
        assert pair.good.split()[:4] == pair.bad.split()[:4]
        assert pair.cell == ("subject first" if pair.good.split()[0] in SUBJECTS else "object first")


def test_twins_have_either_subject_in_either_order() -> None:
    for start in range(0, len(PAIRS), 4):
        twins = PAIRS[start : start + 4]
        assert {pair.twin for pair in twins} == {start // 4}
        assert len({pair.good for pair in twins}) == 4
        assert [pair.cell for pair in twins] == ["subject first"] * 2 + ["object first"] * 2
        assert len({tuple(sorted(parts(pair.good)[:2])) for pair in twins}) == 1
        assert sorted(parts(pair.good)[2] for pair in twins) == sorted(parts(pair.bad)[2] for pair in twins)


def test_documents_and_pairs_share_no_combination() -> None:
    def combination(text: str) -> tuple[frozenset[str], str]:
        words = text.removesuffix("।").split()
        verb = next(forms[0] for forms in VERBS if words[-1] in forms)
        return frozenset({**SUBJECTS, **OBJECTS}[word].subject for word in words[:2]), verb

    trained = {combination(text) for text in CORPUS.documents(8000, seed=2)}
    asked = {combination(pair.good) for pair in PAIRS}
    assert not trained & asked
    assert len(trained | asked) == len(people()) // 2 * len(VERBS)


def test_probabilities_of_all_documents_sum_to_one() -> None:
    total = 0.0
    for (subject, other), forms, order in product(people(), VERBS, (1, -1)):
        first, second = (subject.subject, other.object)[::order]
        text = f"{first} {second} রোজ মাঠে {forms[subject.verb]}।"
        assert len(grammar().derivations(text)) <= 1
        total += math.exp(CORPUS.log_probability(text))
    assert total * len(TIMES.split()) * len(PLACES.split()) == pytest.approx(1)
