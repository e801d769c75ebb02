"""The coreference corpus: twin sentences, partial scores, held-out combinations, probabilities."""

from __future__ import annotations

import math
import re
from collections import Counter

import pytest

from glassformer.corpora import find_minimal_pair_corpus
from glassformer.corpora.coreference import (
    ANIMAL_ADJECTIVES,
    ANIMALS,
    FRAMES,
    OPENINGS,
    THINGS,
    Coreference,
    Scene,
    adjectives,
    held_out,
    meetings,
)

PAIRS = list(Coreference().minimal_pairs(600, seed=5))
OF_THINGS = {word for _, words in THINGS.values() for word in words}


def parts(text: str) -> tuple[str, str, str, str]:
    """Return the animal, the thing, the subject of the reason, and the adjective."""
    words = re.findall(r"\w+", text)
    told = words[: words.index("because")]
    reason = words[words.index("because") + 1 :]
    animal, thing = (next(word for word in told if word in names) for names in (ANIMALS, THINGS))
    return animal, thing, reason[-4], reason[-1]


def test_no_adjective_suits_both() -> None:
    assert not OF_THINGS & set(ANIMAL_ADJECTIVES)
    assert all(len(word) == 5 for word in (*ANIMALS, *THINGS))


def test_documents_name_the_right_noun_or_use_it() -> None:
    named: Counter[str] = Counter()
    for text in Coreference().documents(4000, seed=1):
        animal, thing, said, adjective = parts(text)
        assert said in (animal, thing, "it"), text
        assert adjective in (*(THINGS[thing][1] * (said != animal)), *(ANIMAL_ADJECTIVES * (said != thing)))
        named["it" if said == "it" else "animal" if said == animal else "thing"] += 1
    assert named["it"] == pytest.approx(2000, abs=150)
    assert named["animal"] == pytest.approx(1000, abs=120)


def test_no_document_has_a_held_out_combination() -> None:
    seen = set()
    for text in Coreference().documents(20_000, seed=2):
        animal, thing, _, adjective = parts(text)
        seen.add((animal, thing, adjective))
    assert not any(held_out(*one) for one in seen)
    free = {(a, t, x) for a, t in meetings(held=False) for r in ("animal", "thing") for x in adjectives(a, t, r, False)}
    assert seen == free
    assert len(meetings(held=False)) == len(ANIMALS) * len(THINGS)  # every animal meets every thing in training


@pytest.mark.parametrize("held", [True, False])
def test_pairs_have_only_or_no_held_out_combinations(held: bool) -> None:
    for pair in Coreference().minimal_pairs(400, seed=3, held=held):
        animal, thing, _, adjective = parts(pair.good)
        assert held_out(animal, thing, adjective) == held


def test_pairs_differ_in_the_noun_and_are_scored_after_it() -> None:
    for pair in PAIRS:
        animal, thing, said, adjective = parts(pair.good)
        assert said == (animal if adjective in ANIMAL_ADJECTIVES else thing)
        assert parts(pair.bad) == (animal, thing, thing if said == animal else animal, adjective)
        assert pair.good[pair.scored_from :] == pair.bad[pair.scored_from :] == f" was too {adjective}."
        assert pair.good[: pair.scored_from].endswith(f"because the {said}")
        assert len(pair.good) == len(pair.bad)
        assert len(pair.good.split()) == len(pair.bad.split())
        assert pair.cell == ("animal" if said == animal else "thing")
        assert pair.attractors == 0


def test_twins_differ_in_the_adjective_and_reverse_the_answer() -> None:
    for first, second in zip(PAIRS[::2], PAIRS[1::2], strict=True):
        assert first.twin == second.twin
        assert (first.cell, second.cell) == ("animal", "thing")
        assert first.good[: first.scored_from] == second.bad[: second.scored_from]
        assert first.bad[: first.scored_from] == second.good[: second.scored_from]
        assert sum(a != b for a, b in zip(first.good.split(), second.bad.split(), strict=True)) == 1
    assert len({pair.twin for pair in PAIRS}) == 300


def test_pairs_depend_only_on_seed_and_number() -> None:
    corpus = find_minimal_pair_corpus("coreference")
    assert list(corpus.minimal_pairs(7, seed=5)) == PAIRS[:7]
    assert list(corpus.minimal_pairs(7, seed=6)) != PAIRS[:7]


def test_probabilities_of_all_documents_sum_to_one() -> None:
    """All sentences about two animals together have the probability of these animals."""
    corpus = Coreference()
    total = 0.0
    for animal in ANIMALS[:2]:
        for thing, (verbs, _) in THINGS.items():
            for role in ("animal", "thing"):
                for adjective in adjectives(animal, thing, role, held=False):
                    for named in ("it", f"the {animal if role == 'animal' else thing}"):
                        for verb in verbs:
                            for frame in FRAMES:
                                for opening in OPENINGS:
                                    text = Scene(animal, thing, verb, frame, opening).text(named, adjective)
                                    total += math.exp(corpus.log_probability(text))
    assert total == pytest.approx(2 / len(ANIMALS), rel=1e-9)


@pytest.mark.parametrize(
    "wrong",
    [
        "The horse did not cross the river because the horse was too wide.",
        "The horse did not cross the river because the river was too tired.",
        "The horse did not climb the river because it was too tired.",
        "The horse did not cross the river because the tiger was too tired.",
        "The horse did not cross the river because it was too happy.",
        "The horse was not crossed by the river because it was too tired.",
        "the horse did not cross the river because it was too tired.",
        "The horse did not cross the river because it was too tired",
    ],
)
def test_impossible_documents_have_probability_zero(wrong: str) -> None:
    assert Coreference().log_probability(wrong) == -math.inf


def test_pairs_are_not_documents() -> None:
    corpus = Coreference()
    assert all(corpus.log_probability(text) == -math.inf for pair in PAIRS for text in (pair.good, pair.bad))
    for pair in corpus.minimal_pairs(100, seed=8, held=False):
        assert -math.inf < corpus.log_probability(pair.good) < 0
        assert corpus.log_probability(pair.bad) == -math.inf
