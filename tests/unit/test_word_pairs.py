"""Alignment of cross-attention heads with the source token of each prediction, whatever the order of the target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer.inspection.heads import cross, roles
from glassformer.inspection.heads.attention_arrays import Ids, make_attention_arrays
from glassformer.inspection.heads.probes import special_ids
from glassformer.inspection.heads.role_scores import score_heads
from glassformer.inspection.heads.word_pairs import NULL, WordPairs, aligned_keys, learned_pairs
from glassformer.runs.opening import OpenedRun

TINY = {"model.layers": 1, "model.width": 16, "model.heads": 2, "train.batch": 4}


def opened(folder: Path, data: str, target: str | None = None, **settings: object) -> OpenedRun:
    task = "translate"
    return gf.fit(data, target, task=task, steps=1, out=folder / "run", settings={**TINY, **settings}).run


def learned(run: OpenedRun) -> WordPairs:
    return learned_pairs(run.data.train, special_ids(run.source_tokenizer), special_ids(run.tokenizer))


def ids(run: OpenedRun, text: str, end: bool) -> Ids:
    """Return the ids of a source, or of a target as the decoder reads it."""
    tokenizer = run.source_tokenizer if end else run.tokenizer
    words = tokenizer.encode(text)
    return np.array([*words, tokenizer.end_id] if end else [tokenizer.end_id, *words])


@pytest.mark.thorough
@pytest.mark.parametrize("corpus", ["reverse", "copy"])
def test_the_partner_of_a_letter_is_the_same_letter(tmp_path: Path, corpus: str) -> None:
    run = opened(tmp_path, corpus)
    source, answer = "hqzabc", "cbazqh" if corpus == "reverse" else "hqzabc"
    (pattern,) = aligned_keys(learned(run), [ids(run, source, True)], [ids(run, answer, False)])
    wanted = np.zeros((7, 7), dtype=bool)
    for row, letter in enumerate(answer):
        wanted[row, source.index(letter)] = True
    assert (pattern == wanted).all()  # the last query predicts the end, which has no partner
    (repeated,) = aligned_keys(learned(run), [ids(run, "abcab", True)], [ids(run, "bacba", False)])
    assert repeated.sum(axis=1).tolist() == [2, 2, 1, 2, 2, 0]


@pytest.mark.thorough
def test_words_are_paired_in_an_ordinary_corpus(tmp_path: Path) -> None:
    """Targets are word for word, in another order, with a word that no source word gives."""
    nouns = {"dog": "Hund", "cat": "Katze", "bird": "Vogel", "fish": "Fisch", "horse": "Pferd"}
    verbs = {"sees": "sieht", "hears": "hoert", "follows": "folgt", "likes": "mag"}
    pairs = [
        (f"old {a} {v} young {b}", f"doch {nouns[b]} jung {verbs[v]} {nouns[a]} alt")
        for a in nouns for v in verbs for b in nouns if a != b
    ]  # fmt: skip
    (tmp_path / "s.txt").write_text("\n".join(source for source, _ in pairs) + "\n")
    (tmp_path / "t.txt").write_text("\n".join(target for _, target in pairs) + "\n")
    words = {"tokenizer.kind": "words", "tokenizer.joint": False, "model.shared_embedding": False}
    run = opened(tmp_path, str(tmp_path / "s.txt"), str(tmp_path / "t.txt"), **words)
    source, target = "old dog sees young bird", "doch Vogel jung sieht Hund alt"
    (pattern,) = aligned_keys(learned(run), [ids(run, source, True)], [ids(run, target, False)])
    found = [np.flatnonzero(row).tolist() for row in pattern]
    assert found[1] == [4]  # Vogel
    assert found[3:5] == [[2], [1]]  # sieht, Hund
    assert found[6] == []


def test_a_head_that_reads_backwards_is_an_alignment_head_and_not_monotone() -> None:
    S = 7
    pairs = WordPairs(np.array([(n, n) for n in range(1, 27)]), np.ones(26))
    sources = [np.array([*np.random.default_rng(seed).permutation(26)[: S - 1] + 1, 99]) for seed in range(8)]
    targets = [np.array([99, *source[:-1][::-1]]) for source in sources]
    pattern = np.stack(aligned_keys(pairs, sources, targets))  # (N, T, S)
    weights = np.zeros((8, 4, S, S))
    for row in range(S - 1):
        weights[:, 0, row, S - 2 - row] = 1.0  # the letter to write
        weights[:, 1, row, row] = 1.0  # along the source
        weights[:, 2, row, :] = 1 / S
        weights[:, 3, row, S - 2 - max(row - 1, 0)] = 1.0  # the letter before
    weights[:, :, S - 1, S - 2] = 1.0
    arrays = make_attention_arrays(weights, np.stack(targets), np.stack(sources), special={99})
    scores = score_heads(roles.voted(arrays, pattern), cross.ALIGNED, "text", needed_lift=cross.ALIGNED_LIFT)
    assert [each.score for each in scores] == pytest.approx([1.0, 0.0, 1 / 6, 1 / 6])
    assert [each.chance for each in scores] == pytest.approx([1 / 6] * 4)
    assert [each.earned for each in scores] == [True, False, False, False]
    order = score_heads(cross.monotone(arrays), cross.MONOTONE, "text")
    assert [each.earned for each in order] == [False, True, False, False]


def test_short_sources_and_words_without_a_partner_do_not_count() -> None:
    pairs = WordPairs(np.array([(1, 1), (2, 2), (3, 3), (4, 4), (NULL, 5)]), np.array([1.0, 0.5, 0.5, 0.5, 0.9]))
    (short,) = aligned_keys(pairs, [np.array([1, 2, 3, 9])], [np.array([9, 1, 2])])
    assert not short.any()
    (pattern,) = aligned_keys(pairs, [np.array([1, 2, 3, 4, 9])], [np.array([9, 5, 2, 7])])
    assert pattern.sum(axis=1).tolist() == [0, 1, 0, 0]
