"""The topics corpus: an exact posterior, and an exact error of the best possible classifier."""

from __future__ import annotations

import math
import re
from itertools import product

import pytest

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.corpora import find_labelled_corpus
from glassformer.corpora import topics as module
from glassformer.corpora.topics import FRAMES, GAP, LABELS, NEUTRAL, WORDS, Topics

FOOTBALL = "On Sunday they will tell you all about the goal."
SOUP = "My sister wrote a few lines about the soup."
STREET = "My sister wrote a few lines about the street."


def test_the_posterior_by_hand() -> None:
    """A gap contains a sport word with probability 0.5 for sport, and 0.15 / 3 for other topics: a ratio of ten."""
    corpus = find_labelled_corpus("topics")
    once = corpus.posterior(f"{STREET} {FOOTBALL} {STREET}")
    assert once == pytest.approx({"sport": 10 / 13, "weather": 1 / 13, "music": 1 / 13, "food": 1 / 13})
    twice = corpus.posterior(f"{FOOTBALL} {SOUP} {FOOTBALL}")
    assert twice == pytest.approx({"sport": 100 / 112, "food": 10 / 112, "weather": 1 / 112, "music": 1 / 112})
    assert corpus.posterior(f"{STREET} {STREET} {STREET}") == pytest.approx(dict.fromkeys(LABELS, 0.25))


@pytest.mark.parametrize(
    "text",
    ["", FOOTBALL, f"{FOOTBALL} {SOUP}", f"{FOOTBALL} {SOUP} Hello.", f"{SOUP}  {SOUP} {SOUP}", " ".join([SOUP] * 6)],
)
def test_a_text_from_another_source_is_refused(text: str) -> None:
    with pytest.raises(GlassError, match="cannot generate"):
        Topics().posterior(text)


@pytest.mark.thorough
def test_the_bayes_error_is_the_error_of_the_best_classifier() -> None:
    """Compare two estimates from 30,000 texts: the error rate of the likeliest label, and the mean of 1 - posterior."""
    corpus = Topics()
    size = 30_000
    wrong = []
    expected = []
    for text, label in corpus.labelled(size, seed=9):
        posterior = corpus.posterior(text)
        assert math.fsum(posterior.values()) == pytest.approx(1, abs=1e-12)
        best = max(posterior, key=lambda name: posterior[name])
        wrong.append(best != label)
        expected.append(1 - posterior[best])
    error = corpus.bayes_error()
    assert 0.03 < error < 0.08
    assert abs(sum(wrong) / size - error) < 3 * math.sqrt(error * (1 - error) / size)
    mean = math.fsum(expected) / size
    deviation = math.sqrt(math.fsum((one - mean) ** 2 for one in expected) / size / size)
    assert abs(mean - error) < 3 * deviation


def test_the_bayes_error_by_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enumerate all sequences of topics in one or two sentences of one or two gaps, with the probability per label."""
    monkeypatch.setattr(module, "FRAMES", ("NOUN.", "NOUN NOUN."))
    corpus = Topics(own=0.5, other=0.3, fewest=1, most=2)
    right = 0.0
    for gaps, chance in ((1, 1 / 4), (2, 1 / 4 + 1 / 8), (3, 1 / 4), (4, 1 / 8)):
        for row in product((*LABELS, "neutral"), repeat=gaps):
            under = [
                math.prod(0.2 if one == "neutral" else 0.5 if one == label else 0.1 for one in row) for label in LABELS
            ]
            right += chance * max(under) / 4
    assert corpus.bayes_error() == pytest.approx(1 - right, abs=1e-12)


def test_posteriors_are_calibrated() -> None:
    """Among texts with a posterior of about p for "music", about a fraction p has this label."""
    corpus = Topics()
    found = [(corpus.posterior(text)["music"], label == "music") for text, label in corpus.labelled(8000, seed=3)]
    for low, high in ((0.0, 0.05), (0.05, 0.6), (0.6, 1.0)):
        inside = [pair for pair in found if low <= pair[0] < high]
        assert len(inside) > 100
        mean = sum(p for p, _ in inside) / len(inside)
        spread = math.sqrt(sum(p * (1 - p) for p, _ in inside)) / len(inside)
        assert abs(sum(hit for _, hit in inside) / len(inside) - mean) < 4 * spread


def test_texts_are_sentences_of_20_to_60_words() -> None:
    corpus = Topics()
    many = list(corpus.labelled(2000, seed=1))
    assert many[:9] == list(corpus.labelled(9, seed=1))
    assert many != list(corpus.labelled(2000, seed=2))
    for text, _ in many:
        assert 20 <= len(text.split()) <= 60
        assert not re.search(r"NOUN|ADJECTIVE|\ba [aeiou]|[\n\t]", text), text
    for label in LABELS:
        assert 400 < sum(found == label for _, found in many) < 600
    config = Config().with_changes(
        {"train.task": "classify", "model.family": "encoder", **corpus.recommended("classify")}
    )
    assert max(len(re.findall(r"\w+|\.", text)) for text, _ in many) < config.model.context


def test_word_lists_are_disjoint_and_have_equal_sizes() -> None:
    kinds = list(NEUTRAL)
    words = [word for lists in (NEUTRAL, *WORDS.values()) for kind in kinds for word in lists[kind].split()]
    assert len(words) == len(set(words))
    assert all(len({len(lists[kind].split()) for lists in WORDS.values()}) == 1 for kind in kinds)
    fixed = {word for frame in FRAMES for word in re.findall(r"\w+", GAP.sub("", frame))}
    assert not fixed & set(words)
