"""ROUGE equals values computed by hand and a slow implementation, even in scripts that other implementations drop."""

from __future__ import annotations

import functools
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.base.errors import GlassError
from glassformer.evaluation.pair_report import pair_metrics
from glassformer.evaluation.rouge import (
    PrecisionRecall,
    common_subsequence,
    rouge,
    rouge_of_each,
    words,
)

BANGLA = "আমি বাংলায় গান গাই, আমি বাংলার গান গাই।"


def test_lins_examples_are_reproduced() -> None:
    """Lin 2004, section 3: ROUGE-L prefers the word order of the first candidate, ROUGE-2 does not."""
    reference = "police killed the gunman"
    first = rouge("police kill the gunman", reference)
    second = rouge("the gunman kill police", reference)
    third = rouge("the gunman police killed", reference)
    assert first.rougeL == PrecisionRecall(0.75, 0.75, 0.75)
    assert second.rougeL == PrecisionRecall(0.5, 0.5, 0.5)
    assert third.rougeL == PrecisionRecall(0.5, 0.5, 0.5)
    assert first.rouge2.f == second.rouge2.f == pytest.approx(1 / 3)
    assert third.rouge2.f == pytest.approx(2 / 3)


def test_results_agree_with_calculation_by_hand() -> None:
    found = rouge("the the the cat", "the cat on the mat, the end")  # 4 words, 7 words
    assert found.rouge1 == PrecisionRecall(1.0, 4 / 7, pytest.approx(8 / 11))
    assert found.rouge2 == PrecisionRecall(1 / 3, 1 / 6, pytest.approx(2 / 9))
    assert found.rougeL == PrecisionRecall(0.75, 3 / 7, pytest.approx(6 / 11))


def slow_common(first: list[str], second: list[str]) -> int:
    @functools.cache
    def of(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return 0
        if first[i - 1] == second[j - 1]:
            return of(i - 1, j - 1) + 1
        return max(of(i - 1, j), of(i, j - 1))

    return of(len(first), len(second))


@given(st.lists(st.sampled_from("abc"), max_size=40), st.lists(st.sampled_from("abcd"), max_size=40))
@settings(max_examples=150)
def test_the_common_subsequence_agrees_with_the_table(first: list[str], second: list[str]) -> None:
    assert common_subsequence(first, second) == slow_common(first, second)


def test_a_long_common_subsequence() -> None:
    assert common_subsequence(["a", "b"] * 500, ["b", "a"] * 500) == 999
    assert common_subsequence([], ["a"]) == common_subsequence(["a"], []) == common_subsequence([], []) == 0


@given(st.lists(st.sampled_from(["ক", "কি", "b", "B", "1", "我", "é"]), max_size=12), st.data())
@settings(max_examples=80)
def test_bounds_and_symmetry(parts: list[str], data: st.DataObject) -> None:
    other = data.draw(st.permutations(parts)) + data.draw(st.lists(st.sampled_from(["ক", "b", "z"]), max_size=5))
    one = " ".join(parts)
    two = " ".join(other)
    found = rouge(one, two)
    turned = rouge(two, one)
    for name in ("rouge1", "rouge2", "rougeL"):
        here = getattr(found, name)
        there = getattr(turned, name)
        assert 0 <= here.f <= 1
        assert (here.precision, here.recall, here.f) == (there.recall, there.precision, there.f)
        assert min(here.precision, here.recall) - 1e-12 <= here.f <= max(here.precision, here.recall) + 1e-12
    assert found.rougeL.f <= found.rouge1.f
    if parts:
        assert found.rouge1.precision == 1.0
        assert rouge(one, one).rougeL == PrecisionRecall(1.0, 1.0, 1.0)


def test_bangla_words_stay_whole() -> None:
    spaced = "আমি বাংলায় গান গাই আমি বাংলার গান গাই"
    assert words(BANGLA) == unicodedata.normalize("NFC", spaced).split()
    assert rouge(BANGLA, BANGLA).rouge2.f == 1.0
    # A vowel sign is part of the word: these two differ.
    assert rouge("কি", "কী").rouge1.f == 0.0
    assert rouge("আমি গান গাই", "আমি গান শুনি").rouge1.f == pytest.approx(2 / 3)


def test_equivalent_unicode_forms_are_equal() -> None:
    assert unicodedata.normalize("NFD", "ড়ো é") != "ড়ো é"
    for text in ("বাড়ো", "café", "한국"):
        composed = unicodedata.normalize("NFC", text)
        taken_apart = unicodedata.normalize("NFD", text)
        assert rouge(taken_apart, composed).rouge1.f == 1.0
        assert len(words(taken_apart)) == 1


def test_joiners_stay_inside_words_and_only_there() -> None:
    assert words("র\u200d্যাম") == ["র\u200d্যাম"]
    assert words("می\u200cخواهم") == ["می\u200cخواهم"]
    assert words("\u200cword\u200d \u200d \u200c") == ["word"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("我爱北京。", ["我", "爱", "北", "京"]),
        ("東京タワーへ", ["東", "京", "タ", "ワ", "ー", "へ"]),
        ("ฉันรัก", ["ฉั", "น", "รั", "ก"]),
        ("GPT模型v2", ["gpt", "模", "型", "v2"]),
        ("मैं हिन्दी", ["मैं", "हिन्दी"]),
        ("나는 학생입니다.", ["나는", "학생입니다"]),
        ("Ünïcode_Straße 3½", ["ünïcode", "straße", "3½"]),
        ("don't re-use 3.14", ["don", "t", "re", "use", "3", "14"]),
        ("ქართული Ελληνικά Русский", ["ქართული", "ελληνικά", "русский"]),
        ("", []),
        ("…!? ।॥", []),
    ],
)
def test_words_of_many_scripts(text: str, wanted: list[str]) -> None:
    assert words(text) == wanted


def test_texts_without_common_words_score_zero() -> None:
    nothing = PrecisionRecall(0.0, 0.0, 0.0)
    for hypothesis, reference in (("", ""), ("a", ""), ("", "a"), ("a", "b"), ("…", "…")):
        found = rouge(hypothesis, reference)
        assert (found.rouge1, found.rouge2, found.rougeL) == (nothing, nothing, nothing)
    assert rouge("a", "a").rouge2 == nothing  # no pairs


def test_means_are_means_over_the_texts() -> None:
    hypotheses = ["a b", "a b c d", ""]
    references = ["a b", "a", "b"]
    each = rouge_of_each(hypotheses, references)
    assert [score.rouge1.f for score in each] == pytest.approx([1, 0.4, 0])
    assert [score.rouge1.precision for score in each] == pytest.approx([1, 0.25, 0])
    assert [score.rouge1.recall for score in each] == pytest.approx([1, 1, 0])
    found = {measure.key: measure.value for measure in pair_metrics(hypotheses, references)}
    assert found["rouge1"] == pytest.approx((1 + 0.4 + 0) / 3)
    assert found["rouge2"] == pytest.approx(1 / 3)


def test_unequal_or_empty_lists_are_refused() -> None:
    with pytest.raises(GlassError, match="2 texts to score, but 1"):
        rouge_of_each(["a", "b"], ["a"])
    with pytest.raises(GlassError, match="no texts"):
        rouge_of_each([], [])
