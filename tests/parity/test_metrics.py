"""Metrics agree with the libraries that publications use: sacrebleu, rouge-score and scikit-learn."""

from __future__ import annotations

import gzip
import json
import math
import random
import subprocess
import sys
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.evaluation.classification import classification_scores
from glassformer.evaluation.pair_report import pair_metrics
from glassformer.evaluation.resampling import bootstrap_interval, paired_bootstrap
from glassformer.evaluation.rouge import rouge, words
from glassformer.evaluation.translation import sentence_statistics, translation_scores

ROUGE = ("rouge1", "rouge2", "rougeL")
ASCII = st.text(st.characters(max_codepoint=127), max_size=60)
WORDS = st.lists(st.sampled_from(["a", "B", "b", "don't", "x_y", "3.14", "the", "The", "-"]), max_size=15).map(" ".join)


@pytest.fixture(scope="module")
def theirs() -> Any:
    """Return a scorer of rouge-score with its default tokenizer, without stemming."""
    return pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(list(ROUGE), use_stemmer=False)


def lines(path: Path, most: int) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [next(file).rstrip("\n") for _ in range(most)]


def assert_rouge_agrees(theirs: Any, hypothesis: str, reference: str) -> None:
    wanted = theirs.score(reference, hypothesis)
    found = rouge(hypothesis, reference)
    for name in ROUGE:
        ours = getattr(found, name)
        assert (ours.precision, ours.recall, ours.f) == pytest.approx(tuple(wanted[name]), abs=1e-9)


@given(hypothesis=ASCII | WORDS, reference=ASCII | WORDS)
@settings(max_examples=200)
def test_rouge_equals_the_rouge_score_package_on_ascii(theirs: Any, hypothesis: str, reference: str) -> None:
    assert_rouge_agrees(theirs, hypothesis, reference)


def test_rouge_equals_the_rouge_score_package_on_english(theirs: Any, real_text: Path) -> None:
    """Randomly paired captions share some words; overlapping groups of 20 captions make longer texts."""
    english = [line for line in lines(real_text / "multi30k" / "test_2016_flickr.en.gz", 1000) if line.isascii()]
    assert len(english) > 900
    shuffled = random.Random(0).sample(english, len(english))
    found = {each.key: each.value for each in pair_metrics(shuffled, english)}
    wanted = dict.fromkeys(ROUGE, 0.0)
    for hypothesis, reference in zip(shuffled, english, strict=True):
        assert_rouge_agrees(theirs, hypothesis, reference)
        for name in ROUGE:
            wanted[name] += theirs.score(reference, hypothesis)[name].fmeasure / len(english)
    for name in ROUGE:
        assert found[name] == pytest.approx(wanted[name], abs=1e-9)
    assert found["rouge1"] > 0.1
    for start in range(0, 400, 20):
        assert_rouge_agrees(theirs, " ".join(english[start : start + 20]), " ".join(english[start + 10 : start + 30]))


def test_rouge_in_bangla_equals_rouge_score_with_our_tokenizer() -> None:
    """The tokenizer of rouge-score finds no words in Bangla; with our tokenizer, rouge-score gives our scores."""
    scorer = pytest.importorskip("rouge_score.rouge_scorer")
    hypothesis = "আমি বাংলায় গান গাই।"
    reference = "আমি বাংলার গান গাই, আমি আমার আমিকে চিরদিন।"

    class Words:
        def tokenize(self, text: str) -> list[str]:
            return words(text)

    assert scorer.RougeScorer(["rouge1"]).score(reference, reference)["rouge1"].fmeasure == 0.0
    assert_rouge_agrees(scorer.RougeScorer(list(ROUGE), tokenizer=Words()), hypothesis, reference)
    assert rouge(hypothesis, reference).rouge1.recall == 3 / 8


def spoilt(references: list[str], share: float, seed: int) -> list[str]:
    """Return the references with some words dropped, doubled, or swapped with the preceding word."""
    numbers = random.Random(seed)
    out = []
    for reference in references:
        said: list[str] = []
        for word in reference.split(" "):
            draw = numbers.random()
            if draw >= share:
                said.append(word)
            elif draw >= share / 2:
                said = [*said[:-1], word, *said[-1:]]
            elif draw >= share / 4:
                said += [word, word]
        out.append(" ".join(said) or "…")
    return out


@pytest.mark.thorough
@pytest.mark.parametrize("language", ["German", "Bangla"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_bleu_and_chrf_equal_sacrebleu(language: str, lowercase: bool, real_text: Path, tmp_path: Path) -> None:
    """Scores equal those of the `sacrebleu` command on the same files, and those of sacrebleu's functions."""
    sacrebleu = pytest.importorskip("sacrebleu")
    if language == "German":
        references = lines(real_text / "multi30k" / "test_2016_flickr.de.gz", 300)
    else:
        text = (real_text / "bangla" / "en-bn.tsv").read_text(encoding="utf-8")
        references = [line.split("\t")[1] for line in text.splitlines()[-300:]]
    hypotheses = spoilt(references, 0.4, seed=0)
    hypotheses[:50] = [text.swapcase() for text in hypotheses[:50]]
    scores = translation_scores(hypotheses, references, lowercase=lowercase)
    assert scores.tokenize == ("13a" if language == "German" else "intl")
    assert 10 < scores.bleu < 90
    for name, texts in (("hypotheses", hypotheses), ("references", references)):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8", newline="\n")
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", "hypotheses", "-m", "bleu", "chrf"]
    command += ["--chrf-word-order", "2", "--tokenize", scores.tokenize, "--width", "4"]
    command += ["--lowercase", "--chrf-lowercase"] if lowercase else []
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout.decode("utf-8")
    bleu, chrf = json.loads(shown)
    assert (bleu["score"], chrf["score"]) == (
        pytest.approx(scores.bleu, abs=1e-4),
        pytest.approx(scores.chrf, abs=1e-4),
    )
    assert (bleu["signature"], chrf["signature"]) == (scores.bleu_signature, scores.chrf_signature)
    called = sacrebleu.corpus_bleu(hypotheses, [references], tokenize=scores.tokenize, lowercase=lowercase)
    assert called.score == pytest.approx(scores.bleu, abs=0.01)
    if not lowercase:
        called = sacrebleu.corpus_chrf(hypotheses, [references], word_order=2)
        assert called.score == pytest.approx(scores.chrf, abs=0.01)


def their_p(ours: float) -> float:
    """Return the p-value of sacrebleu's paired bootstrap that corresponds to our p-value.

    sacrebleu takes absolute values before it centers them. If the differences are normal with a mean of z standard
    errors, its p-value is P(|X| - E|X| > z), and ours is P(|X - z| > z). For clear differences, sacrebleu's p-value is
    about half of ours; it is never above 0.43.
    """
    normal = NormalDist()
    z = normal.inv_cdf(1 - min(ours, 1 - 1e-9) / 2)
    mean = math.sqrt(2 / math.pi) * math.exp(-z * z / 2) + z * (1 - 2 * normal.cdf(-z))
    return 1 - normal.cdf(mean) + normal.cdf(-2 * z - mean)


@pytest.mark.thorough
@pytest.mark.parametrize(("share", "seed"), [(0.31, 1), (0.34, 1), (0.35, 1), (0.37, 1)])
def test_the_paired_bootstrap_agrees_with_sacrebleu(share: float, seed: int, real_text: Path) -> None:
    """Cases range from runs that hardly differ to clear differences; intervals of single runs are compared too."""
    significance = pytest.importorskip("sacrebleu.significance")
    metrics = pytest.importorskip("sacrebleu.metrics")
    references = lines(real_text / "multi30k" / "test_2016_flickr.de.gz", 150)
    one = spoilt(references, 0.3, seed=9)
    two = spoilt(references, share, seed)
    systems = {"bleu": metrics.BLEU(references=[references])}
    systems["chrf"] = metrics.CHRF(word_order=2, references=[references])
    test = significance.PairedTest([("one", one), ("two", two)], systems, None, test_type="bs", n_samples=1000)
    _, results = test()
    first = sentence_statistics(one, references)
    second = sentence_statistics(two, references)
    for name, (theirs, other) in (("bleu", results["BLEU"]), ("chrf", results["chrF2++"])):
        found = paired_bootstrap(getattr(first, name), getattr(second, name), len(references))
        assert found.difference == pytest.approx(theirs.score - other.score, abs=1e-3)
        assert other.p_value == pytest.approx(their_p(found.p), rel=0.15, abs=0.02)
        low, high = bootstrap_interval(getattr(first, name), len(references))
        assert ((low + high) / 2, (high - low) / 2) == (
            pytest.approx(theirs.mean, abs=0.5),
            pytest.approx(theirs.ci, rel=0.15),
        )


@given(
    st.integers(2, 7).flatmap(
        lambda labels: st.tuples(st.just(labels), st.lists(st.integers(0, labels - 1), min_size=1, max_size=40))
    ),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.05, 0.5, 5.0]),
)
@settings(max_examples=60)
def test_classification_scores_equal_scikit_learn(drawn: tuple[int, list[int]], seed: int, sharpness: float) -> None:
    """Random examples may have labels that are never true, never predicted, or both."""
    metrics = pytest.importorskip("sklearn.metrics")
    labels, truth = drawn
    numbers = np.random.default_rng(seed)
    chances = numbers.dirichlet(np.full(labels, sharpness), size=len(truth))
    predicted = chances.argmax(axis=1)
    scores = classification_scores(truth, chances, [f"label {i}" for i in range(labels)])
    everything = list(range(labels))
    assert scores.accuracy == pytest.approx(metrics.accuracy_score(truth, predicted))
    assert scores.macro_f1 == pytest.approx(metrics.f1_score(truth, predicted, average="macro", zero_division=0))
    assert scores.confusion.tolist() == metrics.confusion_matrix(truth, predicted, labels=everything).tolist()
    theirs = metrics.precision_recall_fscore_support(truth, predicted, labels=everything, zero_division=0)
    ours = [(label.precision, label.recall, label.f1, label.support) for label in scores.classes]
    np.testing.assert_allclose(np.array(ours).T, np.array(theirs, dtype=float), atol=1e-12)
    assert scores.log_loss == pytest.approx(metrics.log_loss(truth, chances, labels=everything))
    brier = metrics.brier_score_loss(np.eye(labels)[truth], chances, scale_by_half=False)
    assert scores.brier == pytest.approx(brier)
