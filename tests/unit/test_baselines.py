"""Baselines are normalized, agree with small cases computed by hand, and rank as expected on longer texts."""

from __future__ import annotations

import gzip
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glassformer.corpora import find_text_corpus
from glassformer.evaluation.baseline_table import Baseline, baselines
from glassformer.evaluation.ngrams import KneserNey

SHAKESPEARE = Path(__file__).parents[3] / "shared" / "data" / "shakespeare" / "input.txt"


@dataclass
class Characters:
    """A character tokenizer: token 0 ends documents, the other tokens are `alphabet`."""

    alphabet: str
    end_id: int = 0

    @property
    def vocab_size(self) -> int:
        return 1 + len(self.alphabet)

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self.alphabet[id - 1] for id in ids if id)


@dataclass
class Store:
    tokens: NDArray[np.integer[Any]]
    document_ends: NDArray[np.integer[Any]]
    bytes: int
    unknown: int = 0


def store(texts: list[str], tokenizer: Characters) -> Store:
    places = {character: place + 1 for place, character in enumerate(tokenizer.alphabet)}
    rows = [[*(places[character] for character in text), 0] for text in texts]
    tokens = np.array([id for row in rows for id in row], dtype=np.uint16)
    return Store(tokens, np.cumsum([len(row) for row in rows]), sum(len(text.encode()) for text in texts))


def by_name(ladder: list[Baseline]) -> dict[str, Baseline]:
    return {baseline.name: baseline for baseline in ladder}


@settings(max_examples=60)
@given(
    tokens=st.lists(st.integers(0, 4), min_size=5, max_size=120),
    context=st.lists(st.integers(0, 6), max_size=6),
    order=st.integers(1, 5),
)
def test_the_ngram_model_is_a_distribution(tokens: list[int], context: list[int], order: int) -> None:
    """The probabilities of all tokens, seen (0 to 4) and unseen (5, 6), sum to 1 after any context."""
    model = KneserNey(np.array(tokens), vocab_size=7, order=order)
    chances = [model.probabilities(np.array([*context, token]))[-1] for token in range(7)]
    assert min(chances) > 0
    assert math.fsum(chances) == pytest.approx(1, abs=1e-12)


def slow_kneser_ney(tokens: list[int], V: int, order: int) -> dict[int, dict[tuple[int, ...], float]]:
    """Compute the counts of each order directly from the definition (Chen and Goodman 1999)."""
    counts: dict[int, dict[tuple[int, ...], float]] = {}
    for n in range(1, order + 1):
        if n == order:
            counts[n] = dict(Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)))
        else:
            longer = {tuple(tokens[i : i + n + 1]) for i in range(len(tokens) - n)}
            counts[n] = dict(Counter(gram[1:] for gram in longer))
    return counts


def slow_probability(counts: dict[int, dict[tuple[int, ...], float]], V: int, context: list[int], token: int) -> float:
    chance = 1 / V
    for n in sorted(counts):
        history = tuple(context[len(context) - n + 1 :]) if n > 1 else ()
        if len(history) < n - 1:
            break
        sizes = Counter(counts[n].values())
        discount = {0: 0.0, 1: 0.5, 2: 0.5, 3: 0.5}
        if sizes[1] and sizes[2] and sizes[3]:
            y = sizes[1] / (sizes[1] + 2 * sizes[2])
            for k in (1, 2, 3):
                estimate = k - (k + 1) * y * sizes[k + 1] / sizes[k]
                if 0 < estimate < k:
                    discount[k] = estimate
        after = {gram[-1]: count for gram, count in counts[n].items() if gram[:-1] == history}
        total = sum(after.values())
        if total:
            kept = max(after.get(token, 0) - discount[min(3, int(after.get(token, 0)))], 0)
            freed = sum(discount[min(3, int(count))] for count in after.values())
            chance = (kept + freed * chance) / total
    return chance


@settings(max_examples=30)
@given(
    tokens=st.lists(st.integers(0, 3), min_size=6, max_size=60),
    new=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    order=st.integers(1, 5),
)
def test_arrays_equal_the_definition(tokens: list[int], new: list[int], order: int) -> None:
    fast = KneserNey(np.array(tokens), vocab_size=5, order=order).probabilities(np.array(new))
    counts = slow_kneser_ney(tokens, 5, order)
    slow = [slow_probability(counts, 5, new[:place], token) for place, token in enumerate(new)]
    np.testing.assert_allclose(fast, slow, rtol=1e-10)


def test_by_hand() -> None:
    tokenizer = Characters("ab")
    train = store(["aaab"], tokenizer)
    validation = store(["ab"], tokenizer)
    ladder = by_name(baselines(train, validation, tokenizer))
    assert ladder["uniform"].loss == pytest.approx(math.log(3))
    # Train has 3 a, 1 b, 1 end; one is added to each of 3. Of the stream "a b end", "a" is not predicted.
    assert ladder["unigram"].loss == pytest.approx(-(math.log(2 / 8) + math.log(2 / 8)) / 2)
    assert ladder["unigram"].bits_per_byte == pytest.approx((2 + 2) / 2)
    rows = by_name(baselines(train, validation, tokenizer, windows="documents"))
    assert rows["unigram"].loss == pytest.approx(-(math.log(4 / 8) + 2 * math.log(2 / 8)) / 3)
    assert rows["uniform"].bits_per_byte == pytest.approx(3 * math.log2(3) / 2)
    assert "true entropy" not in ladder


def test_nats_and_bits_are_the_same_quantity() -> None:
    tokenizer = Characters("abcdeé")
    texts = ["abcde" * 20, "edcbaé" * 10]
    validation = store(texts, tokenizer)
    for baseline in baselines(store(texts, tokenizer), validation, tokenizer):
        nats = baseline.loss * (len(validation.tokens) - 1)
        assert baseline.bits_per_byte is not None
        assert baseline.bits_per_byte * validation.bytes * math.log(2) == pytest.approx(nats)


def test_gzip_is_the_difference_of_two_compressed_sizes() -> None:
    tokenizer = Characters("abcdefgh \n")
    rng = np.random.default_rng(3)
    texts = ["".join(rng.choice(list("abcdefgh \n"), 300)) for _ in range(40)]
    train = store(texts, tokenizer)
    validation = store(texts[:3], tokenizer)
    ladder = by_name(baselines(train, validation, tokenizer))
    before = "".join(texts).encode()
    after = "".join(texts + texts[:3]).encode()
    difference = len(gzip.compress(after, 9)) - len(gzip.compress(before, 9))
    bits = ladder["gzip"].bits_per_byte
    assert bits is not None
    assert bits == pytest.approx(difference * 8 / validation.bytes, rel=0.05)
    assert bits < 0.5  # gzip has just seen these texts


def test_gzip_in_small_groups_of_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Characters("abc")
    train = store(["abc" * 50], tokenizer)
    validation = store(["abcab", "cab", "", "bbbbbb", "ca" * 9], tokenizer)
    whole = by_name(baselines(train, validation, tokenizer))["gzip"]
    monkeypatch.setattr("glassformer.evaluation.baseline_table.CHUNK", 8)
    assert by_name(baselines(train, validation, tokenizer))["gzip"].loss == pytest.approx(whole.loss, rel=0.02)


def test_the_true_entropy_is_that_of_the_documents() -> None:
    corpus = find_text_corpus("sort")
    tokenizer = Characters("0123456789=")
    texts = list(corpus.documents(4000, seed=1))
    train = store(texts[:3600], tokenizer)
    validation = store(texts[3600:], tokenizer)
    ladder = baselines(train, validation, tokenizer, "sort", windows="documents")
    assert [step.name for step in ladder] == ["uniform", "unigram", "5-gram", "gzip", "true entropy"]
    nats = -math.fsum(corpus.log_probability(text) or 0 for text in texts[3600:])
    assert ladder[-1].loss == pytest.approx(nats / len(validation.tokens))
    assert all(step.loss > ladder[-1].loss for step in ladder[:-1])


def test_the_true_entropy_falls_back_to_the_corpus_entropy() -> None:
    tokenizer = Characters("0123456789=x")
    validation = store(["12=12", "x"], tokenizer)
    truth = baselines(validation, validation, tokenizer, "sort", windows="documents")[-1]
    assert truth.loss == pytest.approx(2 * (find_text_corpus("sort").entropy() or 0) / 8)
    assert "entropy per document of sort" in truth.note


def test_nothing_beats_uniform_tokens() -> None:
    corpus = find_text_corpus("random")
    texts = list(corpus.documents(30, seed=1))
    tokenizer = Characters("".join(sorted(set("".join(texts)))))
    ladder = by_name(baselines(store(texts[:25], tokenizer), store(texts[25:], tokenizer), tokenizer, "random"))
    assert ladder["true entropy"].loss == pytest.approx(math.log(64), rel=0.002)
    assert all(step.loss > 0.999 * ladder["true entropy"].loss for step in ladder.values())


def test_a_large_vocabulary_and_a_token_limit_are_handled() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 60_000, 20_000).astype(np.uint16)
    chances = KneserNey(tokens, 60_000).probabilities(tokens[:500])
    assert np.isfinite(chances).all()
    assert chances[10:].min() > 0.2  # seen before, in this very context
    tokenizer = Characters("ab")
    train = store(["ab" * 500 + "ba" * 50], tokenizer)
    validation = store(["abab"], tokenizer)
    step = by_name(baselines(train, validation, tokenizer, ngram_tokens=101))["5-gram"]
    assert "the last 101 of 1,101" in step.note


def test_without_tokens_to_predict_there_are_no_baselines() -> None:
    tokenizer = Characters("a")
    assert baselines(store(["a"], tokenizer), store([""], tokenizer), tokenizer) == []


def test_on_real_text() -> None:
    if not SHAKESPEARE.exists():
        pytest.skip(f"real text is not at {SHAKESPEARE}")
    text = SHAKESPEARE.read_text(encoding="utf-8")[:300_000]
    tokenizer = Characters("".join(sorted(set(text))))
    ladder = baselines(store([text[:270_000]], tokenizer), store([text[270_000:]], tokenizer), tokenizer)
    losses = by_name(ladder)
    assert losses["uniform"].loss > losses["unigram"].loss > losses["gzip"].loss > losses["5-gram"].loss
    assert 1.4 < losses["5-gram"].loss < 1.5
    assert 3.2 < losses["unigram"].loss < 3.5
