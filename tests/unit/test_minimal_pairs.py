"""Minimal pairs with known models: a perfect one, an indifferent one, heuristics, and unusual tokens."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.base.errors import GlassError
from glassformer.corpora import MinimalPair
from glassformer.evaluation.minimal_pairs import PairResults, Proportion, TokenScores, log_ratios, results_of
from glassformer.evaluation.resampling import wilson

VERBS = {"S": "is", "P": "are"}
KEYS = {"S": "the key", "P": "the keys"}
CABINETS = {"S": "the cabinet", "P": "the cabinets"}


def score_pairs(pairs: list[MinimalPair], model: object) -> PairResults:
    """Return the results of a model on pairs."""
    return results_of(pairs, log_ratios(pairs, model))  # type: ignore[arg-type]


def agreement() -> list[MinimalPair]:
    """Return pairs of all four cells; a singular and a plural subject before the same noun are twins."""
    pairs = []
    for last in "SP":
        for subject in "SP":
            prefix = f"{KEYS[subject]} to {CABINETS[last]} "
            good = VERBS[subject]
            bad = VERBS["P" if subject == "S" else "S"]
            pairs.append(
                MinimalPair(
                    good=f"{prefix}{good} here",
                    bad=f"{prefix}{bad} here",
                    scored_from=len(prefix),
                    cell=subject + last,
                    attractors=int(subject != last),
                    twin=ord(last),
                )
            )
    return pairs


def by_words(score: dict[str, float]) -> object:
    """Return a model whose tokens are words with the preceding space; each has its log-probability in `score`, or
    -1."""

    def model(texts: Sequence[str]) -> list[TokenScores]:
        found = []
        for text in texts:
            tokens = []
            end = -1
            for word in text.split(" "):
                end += 1 + len(word)
                tokens.append((end, score.get(word, -1.0)))
            found.append(tokens)
        return found

    return model


def agrees_with(which: int) -> object:
    """Return a model that prefers the verb that agrees with the first noun (word 1) or the last noun (word 4)."""

    def model(texts: Sequence[str]) -> list[TokenScores]:
        found = []
        for text in texts:
            words = text.split(" ")
            fits = words[which].endswith("s") == (words[5] == "are")
            scores = by_words({words[5]: -0.5 if fits else -2.0})
            found += scores([text])  # type: ignore[operator]
        return found

    return model


def test_a_model_that_knows_the_rule_is_right_everywhere() -> None:
    results = score_pairs(agreement(), agrees_with(1))
    assert results.overall == Proportion(4.0, 4)
    assert results.twins == Proportion(2.0, 2)
    assert results.mean_log_ratio == pytest.approx(1.5)


def test_the_last_noun_rule_is_right_in_half_of_the_cells_and_in_no_twins() -> None:
    results = score_pairs(agreement(), agrees_with(4))
    assert {cell: share.value for cell, share in results.by_cell.items()} == {
        "PP": 1.0,
        "PS": 0.0,
        "SP": 0.0,
        "SS": 1.0,
    }
    assert {number: share.value for number, share in results.by_attractors.items()} == {0: 1.0, 1: 0.0}
    assert results.overall.value == 0.5
    assert results.twins == Proportion(0.0, 2)
    assert results.mean_log_ratio == pytest.approx(0.0)


def test_an_indifferent_model_is_at_chance_everywhere() -> None:
    results = score_pairs(agreement(), by_words({}))
    assert results.overall == Proportion(2.0, 4)
    assert results.twins == Proportion(0.5, 2)
    assert results.twins.value == results.twins_chance == 0.25
    assert results.mean_log_ratio == 0.0
    assert results.overall.interval == wilson(2.0, 4)


def pair(good: str, bad: str, scored_from: int) -> MinimalPair:
    return MinimalPair(good=good, bad=bad, scored_from=scored_from, cell="", attractors=0, twin=0)


def given_tokens(tokens: dict[str, TokenScores]) -> object:
    return lambda texts: [tokens[text] for text in texts]


def test_only_tokens_after_the_given_character_count() -> None:
    """If scoring starts after the words that differ, the scores of these words do not matter."""
    tokens = given_tokens(
        {"a cat sat": [(1, -1.0), (5, -9.0), (9, -2.0)], "a cow sat": [(1, -1.0), (5, -0.1), (9, -3.0)]}
    )
    assert log_ratios([pair("a cat sat", "a cow sat", 5)], tokens) == [1.0]  # type: ignore[arg-type]
    assert log_ratios([pair("a cat sat", "a cow sat", 1)], tokens) == [pytest.approx(-7.9)]  # type: ignore[arg-type]
    assert log_ratios([pair("a cat sat", "a cow sat", 0)], tokens) == [pytest.approx(-7.9)]  # type: ignore[arg-type]


def test_a_token_that_contains_a_scored_character_counts() -> None:
    """The space belongs to the word after it, while `scored_from` is after the space."""
    tokens = given_tokens({"it is": [(2, -5.0), (5, -1.0)], "it be": [(2, -5.0), (5, -4.0)]})
    assert log_ratios([pair("it is", "it be", 3)], tokens) == [3.0]  # type: ignore[arg-type]
    # This also holds after a difference, where boundaries cannot be compared.
    odd = given_tokens({"x ab": [(1, -1.0), (4, -2.0)], "y ab": [(3, -8.0), (4, -3.0)]})
    assert log_ratios([pair("x ab", "y ab", 2)], odd) == [9.0]  # type: ignore[arg-type]


def test_different_tokenizations_of_a_shared_prefix_do_not_bias_scores() -> None:
    """A token of one text spans the boundary: both texts are scored from the same earlier character."""
    tokens = given_tokens(
        {"he sang": [(2, -1.0), (5, -2.0), (7, -1.0)], "he sail": [(2, -1.0), (7, -2.5)]},
    )
    assert log_ratios([pair("he sang", "he sail", 5)], tokens) == [pytest.approx(-0.5)]  # type: ignore[arg-type]
    whole = given_tokens({"abc": [(3, -1.0)], "abd": [(2, -0.2), (3, -0.3)]})
    assert log_ratios([pair("abc", "abd", 2)], whole) == [pytest.approx(-0.5)]  # type: ignore[arg-type]


def test_the_shared_prefix_does_not_count() -> None:
    """A masked model sees the verb when it scores the noun."""
    tokens = given_tokens({"a b c": [(1, -1.0), (3, -2.0), (5, -3.0)], "a b d": [(1, -9.0), (3, -9.0), (5, -4.0)]})
    assert log_ratios([pair("a b c", "a b d", 4)], tokens) == [1.0]  # type: ignore[arg-type]
    assert log_ratios([pair("a b c", "a b d", 0)], tokens) == [16.0]  # type: ignore[arg-type]


def test_tokens_that_are_parts_of_one_character_count_together() -> None:
    tokens = given_tokens(
        {"কa": [(1, -1.0), (1, -1.0), (1, -1.0), (2, -1.0)], "খa": [(1, -2.0), (1, 0.0), (1, 0.0), (2, 0.0)]}
    )
    assert log_ratios([pair("কa", "খa", 0)], tokens) == [-2.0]  # type: ignore[arg-type]
    assert log_ratios([pair("কa", "খa", 1)], tokens) == [-1.0]  # type: ignore[arg-type]


def test_scores_are_not_normalized_by_length() -> None:
    tokens = given_tokens({"ab": [(1, -1.0), (2, -1.0)], "cd": [(2, -1.5)]})
    assert log_ratios([pair("ab", "cd", 0)], tokens) == [-0.5]  # type: ignore[arg-type]


def test_each_text_is_scored_once() -> None:
    asked: list[str] = []

    def model(texts: Sequence[str]) -> list[TokenScores]:
        asked.extend(texts)
        return [[(len(text), -float(text.count("b")))] for text in texts]

    pairs = [pair("a", "b", 0), pair("a", "bb", 0), pair("b", "a", 0)]
    assert log_ratios(pairs, model) == [1.0, 2.0, -1.0]
    assert asked == ["a", "b", "bb"]


@given(
    st.lists(
        st.tuples(st.sampled_from([-2.0, -0.1, 0.0, 0.1, 3.0]), st.sampled_from("xyz"), st.integers(0, 4)), min_size=1
    )
)
@settings(max_examples=60)
def test_parts_add_up(drawn: list[tuple[float, str, int]]) -> None:
    pairs = [MinimalPair("g", "b", 0, cell, group % 3, group) for _, cell, group in drawn]
    results: PairResults = results_of(pairs, [ratio for ratio, _, _ in drawn])
    assert results.overall.count == len(drawn)
    assert results.overall.right == sum(1.0 if r > 0 else 0.5 * (r == 0) for r, _, _ in drawn)
    for parts in (results.by_cell, results.by_attractors):
        assert sum(share.count for share in parts.values()) == len(drawn)
        assert sum(share.right for share in parts.values()) == results.overall.right
        assert list(parts) == sorted(parts)  # type: ignore[type-var]
    groups = [[r for r, _, g in drawn if g == group] for group in range(5)]
    several = [ratios for ratios in groups if len(ratios) > 1]
    if not several:
        assert results.twins is None
    else:
        assert results.twins is not None
        assert results.twins.count == len(several)
        surely = sum(all(r > 0 for r in ratios) for ratios in several)
        possibly = sum(all(r >= 0 for r in ratios) for ratios in several)
        assert surely <= results.twins.right <= possibly
        assert results.twins_chance == pytest.approx(sum(0.5 ** len(ratios) for ratios in several) / len(several))
    assert results.mean_log_ratio == pytest.approx(sum(r for r, _, _ in drawn) / len(drawn))


def test_impossible_texts_have_defined_ratios() -> None:
    never = -math.inf
    tokens = given_tokens({"a": [(1, never)], "b": [(1, never)], "c": [(1, -1.0)]})
    assert log_ratios([pair("a", "b", 0), pair("c", "a", 0)], tokens) == [0.0, math.inf]  # type: ignore[arg-type]


def test_facts_are_plain_numbers() -> None:
    share = score_pairs(agreement(), agrees_with(4)).by_cell["SP"]
    facts = json.loads(json.dumps(share.facts(), allow_nan=False))
    assert facts == {"share": 0.0, "ci95": list(wilson(0.0, 1)), "right": 0.0, "count": 1}


def test_invalid_inputs_are_refused() -> None:
    one = [pair("ab", "cd", 0)]
    for tokens in ([], [(1, -1.0)], [(3, -1.0)], [(2, -1.0), (1, -1.0)]):
        with pytest.raises(GlassError, match="'ab' has 2 characters"):
            score_pairs(one, given_tokens({"ab": tokens, "cd": [(2, -1.0)]}))
    with pytest.raises(GlassError, match="is NaN"):
        score_pairs(one, given_tokens({"ab": [(2, math.nan)], "cd": [(2, -1.0)]}))
    for pairs, ratios in (([], []), (one, []), (one, [1.0, 2.0])):
        with pytest.raises(GlassError, match="ratios"):
            results_of(pairs, ratios)
