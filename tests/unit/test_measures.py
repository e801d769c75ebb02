"""Figures with intervals and paired tests, and the predictor that only remembers."""

from __future__ import annotations

import numpy as np
import pytest

from glassformer.evaluation import pairs
from glassformer.evaluation.measures import compared, facts_of, mean, whole_set
from glassformer.evaluation.nearest import Nearest
from glassformer.evaluation.resampling import bootstrap_interval, mean_of, wilson


def test_a_share_has_wilsons_interval_and_other_means_a_bootstrap() -> None:
    right = [1, 0, 1, 1, 1, 1, 1, 1]
    assert mean("a", "A", right).interval == wilson(7, 8)
    assert mean("a", "A", [1] * 8).interval[0] < 1, "all right is not certainly right"
    lengths = [0.5, 1.5, 2.5, 0.25]
    assert mean("b", "B", lengths).interval == bootstrap_interval(mean_of(lengths), 4)
    assert mean("b", "B", lengths).value == pytest.approx(1.1875)


def test_means_are_compared_by_permutation_and_whole_sets_by_bootstrap() -> None:
    spread = whole_set("s", "S", lambda chosen: float(np.ptp(chosen)), 5)
    tests = compared([mean("a", "A", [1, 1, 0, 1, 1]), spread], [mean("a", "A", [0, 1, 0, 0, 1]), spread], 5)
    assert tests["a"].difference == pytest.approx(0.4)
    assert tests["a"].method == "paired permutation"
    assert tests["s"].difference == 0
    assert tests["s"].method == "paired bootstrap"


def test_facts_have_value_interval_and_signature() -> None:
    facts = facts_of([mean("a", "A", [1, 0], note="how")])
    assert facts["a"] == 0.5
    assert facts["a_signature"] == "how"
    assert facts["a_ci95"] == list(wilson(1, 2))


def test_texts_are_measured_without_sacrebleu_by_what_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = {measure.key: measure.value for measure in pairs.pair_measures(["a b c d e"], ["a b c d f"])}
    assert set(everything) == {"bleu", "bleu_lowercase", "chrf", "rouge1", "rouge2", "rougeL", "exact_match"}
    monkeypatch.setattr(pairs, "can_score", lambda: False)
    without = {measure.key: measure.value for measure in pairs.pair_measures(["a b c d e"], ["a b c d f"])}
    assert without == {key: everything[key] for key in ("rouge1", "rouge2", "rougeL", "exact_match")}


def test_the_nearest_text_shares_the_rare_words() -> None:
    known = [
        ("the dog sleeps in the house", "1"),
        ("the cat sings in the house", "2"),
        ("the cat sings a very long song about the dog in the house of the king", "3"),
        ("আমি বাংলায় গান গাই", "4"),
    ]
    nearest = Nearest(known)
    assert [nearest.answer(text) for text, _ in known] == ["1", "2", "3", "4"]
    assert nearest.answer("a cat sings") == "2", "a short text is nearer than a long one that has its words too"
    assert nearest.answer("the king") == "3"
    assert nearest.answer("গান") == "4"
    assert nearest.answer("xyz") == "1", "nothing is known: the first one"


def test_the_nearest_of_many_is_found_by_a_frequent_word_where_no_other_is_known() -> None:
    nearest = Nearest([(f"word {number}", str(number)) for number in range(500)])
    assert nearest.answer("word unheard") in {str(number) for number in range(500)}
    assert nearest.answer("word 77") == "77"
