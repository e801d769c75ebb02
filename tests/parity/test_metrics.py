"""Our figures beside those of the libraries that publications use: sacrebleu, rouge-score, scikit-learn."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.evaluation.rouge import mean_rouge, rouge, words

ROUGE = ("rouge1", "rouge2", "rougeL")
ASCII = st.text(st.characters(max_codepoint=127), max_size=60)
WORDS = st.lists(st.sampled_from(["a", "B", "b", "don't", "x_y", "3.14", "the", "The", "-"]), max_size=15).map(" ".join)


@pytest.fixture(scope="module")
def theirs() -> Any:
    """rouge-score with its own words, without stemming."""
    return pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(list(ROUGE), use_stemmer=False)


def lines(path: Path, most: int) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [next(file).rstrip("\n") for _ in range(most)]


def assert_rouge_agrees(theirs: Any, hypothesis: str, reference: str) -> None:
    wanted, found = theirs.score(reference, hypothesis), rouge(hypothesis, reference)
    for name in ROUGE:
        ours = getattr(found, name)
        assert (ours.precision, ours.recall, ours.f) == pytest.approx(tuple(wanted[name]), abs=1e-9)


@given(hypothesis=ASCII | WORDS, reference=ASCII | WORDS)
@settings(max_examples=200, deadline=None)
def test_rouge_is_rouge_scores_on_ascii(theirs: Any, hypothesis: str, reference: str) -> None:
    assert_rouge_agrees(theirs, hypothesis, reference)


def test_rouge_is_rouge_scores_on_english(theirs: Any, real_text: Path) -> None:
    """Captions paired at random share some words; pairs of neighbours are longer."""
    english = [line for line in lines(real_text / "multi30k" / "test_2016_flickr.en.gz", 1000) if line.isascii()]
    assert len(english) > 900
    shuffled = random.Random(0).sample(english, len(english))
    found, wanted = mean_rouge(shuffled, english), dict.fromkeys(ROUGE, 0.0)
    for hypothesis, reference in zip(shuffled, english, strict=True):
        assert_rouge_agrees(theirs, hypothesis, reference)
        for name in ROUGE:
            wanted[name] += theirs.score(reference, hypothesis)[name].fmeasure / len(english)
    for name in ROUGE:
        assert getattr(found, name).f == pytest.approx(wanted[name], abs=1e-9)
    assert found.rouge1.f > 0.1
    for start in range(0, 400, 20):
        assert_rouge_agrees(theirs, " ".join(english[start : start + 20]), " ".join(english[start + 10 : start + 30]))


def test_rouge_in_bangla_is_rouge_scores_with_our_words() -> None:
    """With its own words it finds nothing in Bangla; given ours, it agrees."""
    scorer = pytest.importorskip("rouge_score.rouge_scorer")
    hypothesis, reference = "আমি বাংলায় গান গাই।", "আমি বাংলার গান গাই, আমি আমার আমিকে চিরদিন।"

    class Words:
        def tokenize(self, text: str) -> list[str]:
            return words(text)

    assert scorer.RougeScorer(["rouge1"]).score(reference, reference)["rouge1"].fmeasure == 0.0
    assert_rouge_agrees(scorer.RougeScorer(list(ROUGE), tokenizer=Words()), hypothesis, reference)
    assert rouge(hypothesis, reference).rouge1.recall == 3 / 8
