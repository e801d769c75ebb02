"""BLEU tokenizers by script, exact match, and counts that give the corpus scores."""

from __future__ import annotations

import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.base.errors import GlassError
from glassformer.base.packages import install_command
from glassformer.evaluation.resampling import bootstrap_interval, paired_bootstrap
from glassformer.evaluation.translation import (
    TOKENIZATIONS,
    sentence_statistics,
    suitable_tokenization,
    translation_scores,
)

GERMAN = ["Zwei Hunde spielen im Schnee.", "Ein Mann schläft auf einer Bank.", "Die Kinder gehen zur Schule."]
BANGLA = ["আমি ভাত খাই।", "সে বাড়ি যায়।", "তারা স্কুলে গেল।"]


@pytest.fixture(autouse=True)
def _library() -> None:
    pytest.importorskip("sacrebleu")


@pytest.mark.parametrize(
    ("references", "wanted"),
    [
        (GERMAN, "13a"),
        (["Мама мыла раму.", "Καλημέρα σας"], "13a"),
        (["שלום עולם"], "13a"),
        (BANGLA, "intl"),
        (["मैं घर जाता हूँ।"], "intl"),
        (["أين المكتبة؟"], "intl"),
        (["나는 학교에 갑니다."], "intl"),
        (["我爱北京天安门。"], "zh"),
        (
            ["他说“カラオケ”是从日本来的词，大家都喜欢去那里唱歌，周末的时候人特别多，要提前预约才行，不然要等很久。"],
            "zh",
        ),
        (["私は学校へ行きます。"], "char"),
        (["経済産業省は新技術開発計画を発表した。"], "char"),  # little kana, and none in Chinese
        (["カタカナ"], "char"),
        (["ฉันไปโรงเรียน"], "char"),
        (["ខ្ញុំទៅសាលារៀន"], "char"),
        (["123", "4.5"], "13a"),
        ([], "13a"),
        ([""], "13a"),
        ([*BANGLA, "a"], "intl"),  # the script of most letters decides
        (["The word কলম means pen."], "13a"),
    ],
)
def test_the_script_decides_the_tokenization(references: list[str], wanted: str) -> None:
    assert suitable_tokenization(references) == wanted


def test_the_chosen_tokenization_separates_punctuation_that_13a_does_not() -> None:
    """With 13a, a missing danda makes the last word wrong; with intl, the word is right and the danda missing."""
    references = ["আমি রোজ সকালে ভাত খাই।", "সে কাল তার বাড়ি যায়।"]
    without = [text.rstrip("।") for text in references]
    ours = translation_scores(without, references)
    usual = translation_scores(without, references, tokenize="13a")
    assert ours.tokenize == "intl"
    assert "tok:intl" in ours.bleu_signature
    assert "tok:13a" in usual.bleu_signature
    assert ours.bleu > usual.bleu + 10
    assert translation_scores(["我爱北京。"], ["我爱上海。"]).bleu > 0
    for references in (["ฉันไปโรงเรียน"], ["私は学校へ行きます。"]):
        assert translation_scores([references[0][:-2]], references).bleu > 50


def test_signatures_describe_the_computation() -> None:
    scores = translation_scores(GERMAN, GERMAN)
    assert scores.bleu_signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert scores.chrf_signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:2|space:no|version:")
    assert (scores.bleu, scores.chrf, scores.exact, scores.sentences) == (pytest.approx(100), 100.0, 1.0, 3)
    lower = translation_scores([text.upper() for text in GERMAN], GERMAN, lowercase=True)
    assert "case:lc" in lower.bleu_signature
    assert "case:lc" in lower.chrf_signature
    assert (lower.bleu, lower.chrf, lower.exact) == (pytest.approx(100), 100.0, 1.0)
    assert translation_scores([text.upper() for text in GERMAN], GERMAN).exact == 0.0


def test_exact_match_ignores_only_unicode_form_and_outer_space() -> None:
    said = ["  " + unicodedata.normalize("NFD", "café") + "\n", "a  b", "A", "ড়"]
    wanted = ["café", "a b", "a", "ড়"]
    assert unicodedata.normalize("NFC", said[3]) == unicodedata.normalize("NFC", wanted[3])
    assert translation_scores(said, wanted).exact == 0.5
    assert translation_scores(said, wanted, lowercase=True).exact == 0.75
    assert sentence_statistics(said, wanted).right.tolist() == [1.0, 0.0, 0.0, 1.0]


SENTENCES = st.lists(st.sampled_from(["a", "b", "cat", "Cat", "sat.", "।", "আমি", "我爱", "1.5"]), max_size=9).map(
    " ".join
)


@given(st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=8), st.sampled_from(TOKENIZATIONS), st.booleans())
@settings(max_examples=60)
def test_summed_statistics_give_the_corpus_scores(pairs: list[tuple[str, str]], tokenize: str, lowercase: bool) -> None:
    hypotheses = [h for h, _ in pairs]
    references = [r for _, r in pairs]
    scores = translation_scores(hypotheses, references, tokenize, lowercase)
    counts = sentence_statistics(hypotheses, references, tokenize, lowercase)
    everything = np.arange(len(pairs))
    assert len(counts) == len(pairs)
    assert counts.bleu(everything) == pytest.approx(scores.bleu, abs=1e-9)
    assert counts.chrf(everything) == pytest.approx(scores.chrf, abs=1e-9)
    assert counts.exact(everything) == pytest.approx(scores.exact)
    # For a selection of sentences, some of them twice.
    drawn = (everything * 7 + 1) % len(pairs) // 2
    part = translation_scores([hypotheses[i] for i in drawn], [references[i] for i in drawn], tokenize, lowercase)
    assert counts.bleu(drawn) == pytest.approx(part.bleu, abs=1e-9)
    assert counts.chrf(drawn) == pytest.approx(part.chrf, abs=1e-9)


def test_intervals_and_paired_tests_on_corpus_scores() -> None:
    references = [f"der Hund {i} läuft schnell über die {i % 7} Wiesen ." for i in range(80)]
    worse = [r.replace("läuft", "geht") if i % 2 else r for i, r in enumerate(references)]
    bad = [r.replace("über die", "unter das") if i % 3 else r for i, r in enumerate(worse)]
    first = sentence_statistics(worse, references)
    second = sentence_statistics(bad, references)
    everything = np.arange(80)
    for name in ("bleu", "chrf", "exact"):
        score = getattr(first, name)
        other = getattr(second, name)
        low, high = bootstrap_interval(score, 80, repeats=200)
        assert low < score(everything) < high
        found = paired_bootstrap(score, other, 80, repeats=200)
        assert found.difference == pytest.approx(score(everything) - other(everything))
        assert found.p < 0.05


def test_invalid_test_sets_are_refused() -> None:
    for score in (translation_scores, sentence_statistics):
        with pytest.raises(GlassError, match="2 translations, but 1 reference"):
            score(["a", "b"], ["a"])
        with pytest.raises(GlassError, match="no translations"):
            score([], [])
        with pytest.raises(GlassError, match="Did you mean intl"):
            score(["a"], ["a"], tokenize="int")


@pytest.fixture
def _without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sacrebleu", "sacrebleu.metrics"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("_without_the_library")
def test_without_sacrebleu_the_installation_is_explained() -> None:
    for score in (translation_scores, sentence_statistics):
        with pytest.raises(GlassError, match="need the package sacrebleu") as told:
            score(["a"], ["a"])
        assert told.value.remedy == install_command("metrics")
    assert suitable_tokenization(BANGLA) == "intl"
