"""Pair counting uses a bounded, even sample of text without spaces between words, and the whole of any other text."""

from __future__ import annotations

import random

import pytest

from glassformer.base.config import TokenizerConfig
from glassformer.text.tokenizers import train_tokenizer, training

SIGNS = [chr(0x4E00 + number) for number in range(300)]


def unbroken(clauses: int) -> str:
    draw = random.Random(0)
    return "。\n".join("".join(draw.choices(SIGNS, k=20)) for _ in range(clauses))


def test_unspaced_text_is_sampled_evenly_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "RUN_BYTES", 60_000)
    sample = [unbroken(150) + f" number {index}\n" for index in range(20)]  # 20 x 9,000 bytes in long runs
    kept = training._with_few_runs(sample, seed=0)
    runs = sum(len(run.encode()) for block in kept for run in training.RUN.findall(block))
    assert 30_000 < runs <= 66_000
    assert set(kept) < set(sample)
    assert kept == training._with_few_runs(sample, seed=0)
    assert kept != training._with_few_runs(sample, seed=1)


def test_all_words_with_spaces_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "RUN_BYTES", 100)
    sample = ["words with spaces between them, বাংলা লেখা এখানে, и по-русски " * 100] * 3
    assert training._with_few_runs(sample, seed=0) is sample


def test_a_text_within_the_bound_gives_the_same_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    text = unbroken(300)
    settings = TokenizerConfig(kind="bpe", vocab_size=400)
    within = train_tokenizer(settings, [text])
    monkeypatch.setattr(training, "_with_few_runs", lambda sample, seed: sample)
    assert train_tokenizer(settings, [text]).digest == within.digest
    monkeypatch.undo()
    monkeypatch.setattr(training, "RUN_BYTES", 1000)
    less = train_tokenizer(settings, [text])
    assert less.decode(less.encode(text)) == text
