"""The agreement corpus: verb agreement by an independent parser, balance, held-out combinations, probabilities."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import product

import pytest

from glassformer.base.errors import GlassError
from glassformer.corpora import MinimalPair, find_minimal_pair_corpus
from glassformer.corpora.agreement.corpus import CELLS, Agreement
from glassformer.corpora.agreement.items import (
    NOUNS,
    PEOPLE,
    PREDICATES,
    PREPOSITIONS,
    VERBS,
    form,
    held_out,
    partners,
    prepositions,
)
from tests.unit import agreement_rules as rules

SINGULAR = {"is", "was", "has", "laughs", "smiles", "sings", "falls", "shakes", "disappears"}
PLURAL = {"are", "were", "have", "laugh", "smile", "sing", "fall", "shake", "disappear"}
PAIRS = list(Agreement().minimal_pairs(640, seed=5))


def nouns_of(text: str) -> list[tuple[str, str, int]]:
    """Return the lemma, the number and the position of every noun."""
    found = []
    for match in re.finditer(r"\b[Tt]he (\w+)", text):
        word = match[1]
        lemma = next(noun for noun in NOUNS if word in (noun, noun + "s", noun + "es"))
        found.append((lemma, "S" if word == lemma else "P", match.start()))
    return found


def structure(text: str) -> tuple[str, str, list[tuple[str, str]], str]:
    """Parse a text: return the subject, its number, the nouns between subject and verb, and the verb's number."""
    front = text.partition(", ")[0] if ", " in text else ""
    (subject, number, _), *rest = [noun for noun in nouns_of(text) if noun[2] >= len(front)]
    words = re.findall(r"\w+", text)
    verb = next(word for word in (words[-1], words[-2]) if word in SINGULAR | PLURAL)
    return subject, number, [noun[:2] for noun in rest], "S" if verb in SINGULAR else "P"


def test_verbs_agree_in_documents() -> None:
    lengths: Counter[int] = Counter()
    for text in Agreement().documents(4000, seed=1):
        subject, number, between, verb = structure(text)
        assert verb == number, text
        assert subject not in [noun for noun, _ in between]
        lengths[len(between)] += 1
        inner = re.search(r" who (\w+?)(s?) the ", text)
        assert inner is None or (inner[2] == "s") == (number == "S"), text
    assert set(lengths) == {0, 1, 2, 3, 4}
    assert min(lengths.values()) > 600


def test_inner_verbs_agree_with_their_own_subject() -> None:
    seen = 0
    for text in Agreement().documents(4000, seed=2):
        match = re.search(r" that the (\w+) .*?\b(" + "|".join(VERBS) + r")(s?) (?!the)", text)
        if match:
            assert (match[1] in PEOPLE) == (match[3] == "s"), text
            seen += 1
    assert seen > 500


def test_no_document_has_a_held_out_combination() -> None:
    combinations = set()
    for text in Agreement().documents(20_000, seed=3):
        front = text.index(", ") if ", " in text else -1
        nouns = nouns_of(text)
        subject = next(noun for noun, _, place in nouns if place > front)
        combinations.update((subject, noun) for noun, _, _ in nouns if noun != subject)
    assert not any(held_out(*pair) for pair in combinations)
    assert len(combinations) == sum(len(partners(noun, held=False)) for noun in NOUNS)  # all others occur


def test_enough_combinations_are_held_out_and_enough_are_not() -> None:
    for noun in NOUNS:
        held = partners(noun, held=True)
        free = partners(noun, held=False)
        assert len(held) >= 5
        assert len(free) >= 8
        assert set(held) | set(free) == set(NOUNS) - {noun}
        assert any(one in PEOPLE for one in held)
        assert any(one in PEOPLE for one in free)


@pytest.mark.parametrize("held", [True, False])
def test_pairs_have_only_or_no_held_out_combinations(held: bool) -> None:
    for pair in Agreement().minimal_pairs(400, seed=4, held=held):
        subject, _, between, _ = structure(pair.good)
        others = {noun for noun, _, _ in nouns_of(pair.good)} - {subject}
        assert between
        assert all(held_out(subject, noun) == held for noun in others), pair


def test_a_pair_differs_only_in_the_number_of_the_verb() -> None:
    for pair in PAIRS:
        good = pair.good.split()
        bad = pair.bad.split()
        assert len(good) == len(bad)
        assert sum(a != b for a, b in zip(good, bad, strict=True)) == 1
        _, number, between, verb = structure(pair.good)
        assert verb == number != structure(pair.bad)[3]
        assert pair.scored_from == 0
        assert pair.cell == number + between[-1][1]
        assert pair.attractors == sum(other != number for _, other in between)
        assert {other for _, other in between} == {pair.cell[1]}


def test_pairs_are_balanced() -> None:
    assert Counter(pair.cell for pair in PAIRS) == dict.fromkeys(CELLS, 160)
    lengths = Counter((pair.cell, len(structure(pair.good)[2])) for pair in PAIRS)
    assert lengths == dict.fromkeys(product(CELLS, (1, 2, 3, 4)), 40)
    assert Counter(pair.attractors for pair in PAIRS) == {0: 320, 1: 80, 2: 80, 3: 80, 4: 80}
    for start in range(0, len(PAIRS), 4):
        four = PAIRS[start : start + 4]
        assert len({pair.twin for pair in four}) == 1
        assert [pair.cell for pair in four] == list(CELLS)
        lemmas = [[noun for noun, _, _ in nouns_of(pair.good)] for pair in four]
        assert lemmas == [lemmas[0]] * 4


def test_pairs_depend_only_on_seed_and_number() -> None:
    corpus = find_minimal_pair_corpus("agreement")
    assert list(corpus.minimal_pairs(9, seed=5)) == PAIRS[:9]
    assert list(corpus.minimal_pairs(9, seed=6)) != PAIRS[:9]
    assert {len(structure(pair.good)[2]) for pair in Agreement().minimal_pairs(80, 1, nouns=(4,))} == {4}


def by_cell(guess: dict[str, list[float]]) -> dict[str, float]:
    return {cell: sum(hits) / len(hits) for cell, hits in guess.items()}


def test_heuristics_reach_their_computed_accuracies() -> None:
    """Heuristics reach the accuracies of `agreement_rules` on a balanced set of pairs."""
    names = ("last_noun", "first_noun", "majority", "always_singular")
    reached: dict[str, dict[str, list[float]]] = {name: {cell: [] for cell in CELLS} for name in names}
    for pair in PAIRS:
        before = [number for _, number, _ in nouns_of(pair.good)]
        singular = before.count("S") - before.count("P")
        guesses = {
            "last_noun": float(before[-1] == "S"),
            "first_noun": float(before[0] == "S"),
            "majority": 0.5 if not singular else float(singular > 0),
            "always_singular": 1.0,
        }
        for name, guess in guesses.items():
            reached[name][pair.cell].append(guess if pair.cell[0] == "S" else 1 - guess)
    for name in names:
        assert by_cell(reached[name]) == pytest.approx(dict(getattr(rules, name)())), name
    assert rules.last_noun() == {"SS": 1, "SP": 0, "PS": 0, "PP": 1}
    assert rules.first_noun() == dict.fromkeys(CELLS, 0.75)
    assert rules.always_singular() == {"SS": 1, "SP": 1, "PS": 0, "PP": 0}


@pytest.mark.parametrize(
    "wrong",
    [
        "The keys to the cabinet is old.",
        "The author who like the song is tall.",
        "The author that the pilot like is tall.",
        "The key likes the author and is old.",
        "The key to the key is old.",
        "The key of the door is old.",
        "The key laughs.",
        "The author is old",
        "the author is old.",
        "The author that the key likes is old.",
    ],
)
def test_impossible_documents_have_probability_zero(wrong: str) -> None:
    assert Agreement().log_probability(wrong) == -math.inf


def test_pairs_are_not_documents() -> None:
    """Neither wrong verbs nor held-out combinations occur in documents; correct sentences of seen combinations can."""
    assert all(Agreement().log_probability(text) == -math.inf for pair in PAIRS for text in (pair.good, pair.bad))
    for pair in Agreement().minimal_pairs(100, seed=8, held=False):
        chance = Agreement().log_probability(pair.good)
        assert -math.inf < chance < 0, pair
        assert Agreement().log_probability(pair.bad) == -math.inf


def test_probabilities_of_all_sentences_about_keys_sum_correctly() -> None:
    """One document in 24 has this subject; two thirds of these documents have no noun before the subject."""
    corpus = Agreement(most=1)
    texts = []
    for number in (0, 1):
        key = ("key", "keys")[number]
        for pair in PREDICATES["thing"]:
            main = pair[number]
            texts.append(f"The {key} {main}.")
            for noun in partners("key", held=False):
                for other in "SP":
                    said = form(noun, other)
                    texts += [f"The {key} {link} the {said} {main}." for link in prepositions("key")]
                    if noun in PEOPLE:
                        ending = "s" if other == "S" else ""
                        texts += [f"The {key} that the {said} {verb}{ending} {main}." for verb in VERBS]
    total = math.fsum(math.exp(corpus.log_probability(text)) for text in texts)
    assert total == pytest.approx(2 / 3 / 24, rel=1e-9)
    fronted = [
        f"{link.capitalize()} the {form(noun, other)}, the key {main}."
        for link in PREPOSITIONS
        for noun in partners("key", held=False)
        for other in "SP"
        for main, _ in PREDICATES["thing"]
    ]
    total = math.fsum(math.exp(corpus.log_probability(text)) for text in fronted)
    assert total == pytest.approx(1 / 3 / 24 / 2 / 2, rel=1e-9)


def test_pairs_with_equal_fields_are_equal() -> None:
    assert PAIRS[0] == MinimalPair(PAIRS[0].good, PAIRS[0].bad, 0, "SS", 0, 0)


@pytest.mark.parametrize(
    ("nouns", "held", "allowed"), [(0, True, "1 to 4"), (5, True, "1 to 4"), (10, False, "1 to 9")]
)
def test_too_many_nouns_in_a_chain_are_refused(nouns: int, held: bool, allowed: str) -> None:
    with pytest.raises(GlassError, match=f"a sentence with {nouns} nouns") as refused:
        next(Agreement().minimal_pairs(4, 1, held, nouns=(nouns,)))
    assert refused.value.remedy == f"Give a number of nouns: {allowed}."
    longest = int(allowed[-1])
    assert len(list(Agreement().minimal_pairs(400, 1, held, nouns=(longest,)))) == 400


def test_the_length_of_chains_in_documents_is_limited() -> None:
    with pytest.raises(GlassError, match="a sentence with 10 nouns"):
        Agreement(most=10)
    corpus = Agreement(most=9)
    assert all(math.isfinite(corpus.log_probability(text)) for text in corpus.documents(500, 1))
