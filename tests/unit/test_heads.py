"""Head roles on constructed attention: only the constructed role is found, and uniform attention scores at chance."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.corpora.coreference import ANIMAL_ADJECTIVES, ANIMALS, THINGS
from glassformer.inspection.heads import (
    AttentionArrays,
    RoleTally,
    cross,
    make_attention_arrays,
    numbers,
    relations,
    roles,
    score_heads,
)
from glassformer.inspection.heads.copying import copying

BEGIN = 500
STOP = 499
N = 3
R = 11
COPIES = 4
T = 1 + R * COPIES
RARE = 7
COUNTS = np.arange(1000, 0, -1)  # id 0 is the most frequent token


def repeated() -> np.ndarray[Any, Any]:
    """Return (N, T) ids: a special token, then distinct tokens, repeated several times."""
    numbers_ = np.random.default_rng(1)
    rows = [np.tile(numbers_.permutation(400)[:R], COPIES) for _ in range(N)]
    return np.array([[BEGIN, *row] for row in rows])


def distinct(length: int) -> np.ndarray[Any, Any]:
    """Return (N, length) distinct tokens, none of which is a special token."""
    numbers_ = np.random.default_rng(2)
    return np.array([numbers_.permutation(400)[:length] for _ in range(N)])


def pointing(ids: np.ndarray[Any, Any], to: Callable[[int, list[int]], list[int]]) -> np.ndarray[Any, Any]:
    """Return (N, 1, T, T) weights spread over the keys that `to` returns for a query; without keys, on key 1 (or 0)."""
    weights = np.zeros((len(ids), 1, ids.shape[1], ids.shape[1]))
    for row, tokens in enumerate(ids.tolist()):
        for query in range(len(tokens)):
            keys = to(query, tokens) or [min(1, query)]
            weights[row, 0, query, keys] = 1 / len(keys)
    return weights


def uniform(allowed: np.ndarray[Any, Any], heads: int = 2) -> np.ndarray[Any, Any]:
    """Return (N, heads, T, S) equal weights on all allowed keys."""
    even = allowed / np.maximum(allowed.sum(axis=-1, keepdims=True), 1)
    return np.repeat(even[:, None], heads, axis=1)


def causal(n: int, length: int) -> np.ndarray[Any, Any]:
    """Return causal masks (n, T, T)."""
    return np.broadcast_to(np.tri(length, dtype=bool), (n, length, length))


def share(tally: RoleTally) -> float:
    """Return the score of the first head."""
    return float(tally.score[:, 0].sum() / tally.rows.sum())


def chance(tally: RoleTally) -> float:
    """Return the score that the first head would have by chance."""
    return float(tally.chance[:, 0].sum() / tally.rows.sum())


def earlier(query: int, tokens: list[int]) -> list[int]:
    """Return the earlier positions of the query's token."""
    return [place for place in range(query) if tokens[place] == tokens[query]]


HEADS: dict[str, Callable[[int, list[int]], list[int]]] = {
    "previous": lambda query, _: [query - 1] if query else [],
    "self": lambda query, _: [query],
    "first": lambda *_: [0],
    "duplicate": earlier,
    "induction": lambda query, tokens: [place + 1 for place in earlier(query, tokens)],
    "next": lambda query, tokens: [query + 1] if query + 1 < len(tokens) else [],
}


def all_roles(here: AttentionArrays) -> dict[str, RoleTally]:
    """Return the tally of each role of self-attention."""
    found = {name: roles.role(here, name) for name in roles.ROLES}
    return found | {"delimiter": roles.delimiter(here, {STOP}), "rare_word": roles.rare_word(here, COUNTS)}


@pytest.mark.parametrize("name", HEADS)
def test_a_constructed_head_has_only_its_role(name: str) -> None:
    ids = repeated()
    ids[:, 6::R] = STOP
    ids[:, 9::R] = 600  # the one rare word
    here = make_attention_arrays(pointing(ids, HEADS[name]), ids, causal=name != "next", special={BEGIN})
    found = {role: share(tally) for role, tally in all_roles(here).items() if tally.rows.sum()}
    assert found.pop(name) >= 0.99
    if name == "first":  # the first token is a special one
        assert found.pop("delimiter") >= 0.99
    for role in ("delimiter", "rare_word"):  # one of R tokens is a copy, which is the share of uniform attention
        assert found.pop(role, 0.0) <= 1.5 / R
    assert max(found.values()) < 0.1, found


def test_delimiters_and_rare_words_are_found() -> None:
    ids = distinct(23)
    ids[:, 4] = STOP
    ids[:, 9] = 600
    for name, place in (("delimiter", 4), ("rare_word", 9)):
        found = all_roles(make_attention_arrays(pointing(ids, lambda *_, place=place: [place]), ids))
        assert share(found.pop(name)) == 1.0
        assert max(share(tally) for role, tally in found.items() if tally.rows.sum()) < 0.1
    # without a rare word there is no row: ids of `distinct` are among the 500 most frequent ones
    assert not roles.rare_word(
        make_attention_arrays(pointing(distinct(23), HEADS["self"]), distinct(23)), COUNTS
    ).rows.any()


def test_a_positional_head_is_found_with_its_offset() -> None:
    ids = distinct(41)
    here = make_attention_arrays(pointing(ids, lambda query, _: [query - 3] if query > 2 else []), ids, causal=True)
    tally, offsets = roles.positional(*roles.offset_votes(here, 50))
    assert offsets == [-3]
    # rows 1 and 2 cannot attend to it
    assert share(tally) == pytest.approx(38 / 40)
    assert share(roles.role(here, "previous")) < 0.1


def test_equal_largest_weights_share_the_vote() -> None:
    ids = distinct(5)
    here = make_attention_arrays(pointing(ids, lambda query, _: [query - 1, query] if query else []), ids, causal=True)
    votes, _, rows = roles.offset_votes(here, 4)
    assert votes[0, 0].tolist() == [0, 0, 0, 2, 2, 0, 0, 0, 0]
    assert rows.tolist() == [4.0] * N


def test_a_perfect_induction_head_scores_one_also_with_a_begin_token() -> None:
    ids = repeated()
    tally = roles.role(
        make_attention_arrays(pointing(ids, HEADS["induction"]), ids, causal=True, special={BEGIN}), "induction"
    )
    assert share(tally) == pytest.approx(1.0, abs=1e-12)
    assert tally.rows.tolist() == [R * (COPIES - 1)] * N


TABLE = {  # n: previous, first, distance, induction stripe, entropy
    16: (0.159, 0.159, 4.0, 0.083, 1.92),
    32: (0.099, 0.099, 8.0, 0.042, 2.55),
    64: (0.059, 0.059, 16.0, 0.021, 3.21),
    128: (0.035, 0.035, 32.0, 0.011, 3.88),
    256: (0.020, 0.020, 64.0, 0.005, 4.56),
}


@pytest.mark.parametrize("n", TABLE)
def test_uniform_causal_attention_has_the_known_figures(n: int) -> None:
    previous, first, distance, stripe, nats = TABLE[n]
    ids = np.tile(distinct(n // 2), (1, 2))
    here = make_attention_arrays(uniform(causal(N, n)), ids, causal=True)
    means = {
        name: float(sums[:, 0].sum() / here.rows.sum()) for name, sums in numbers.attention_statistics(here).items()
    }
    assert share(roles.role(here, "previous")) == pytest.approx(previous, abs=5e-4)
    assert share(roles.role(here, "self")) == pytest.approx(previous, abs=5e-4)
    assert share(roles.role(here, "first")) == pytest.approx(first, abs=5e-4)
    assert share(roles.role(here, "induction")) == pytest.approx(stripe, abs=5e-4)
    assert means["confidence"] == pytest.approx(first, abs=5e-4)
    assert means["distance"] == pytest.approx(distance, abs=1e-9)
    assert means["distance_share"] == pytest.approx(1.0, abs=1e-12)
    assert means["entropy_share"] == pytest.approx(1.0, abs=1e-12)
    exact = sum(math.log(i + 1) for i in range(1, n)) / (n - 1)  # row 0 has only one key and is left out
    assert means["entropy"] == pytest.approx(exact, abs=1e-9)
    assert exact * (n - 1) / n == pytest.approx(nats, abs=5e-3)  # the usual measure includes it


@pytest.mark.parametrize("both_sides", [False, True])
def test_uniform_attention_scores_chance_in_every_role(both_sides: bool) -> None:
    ids = repeated()
    ids[:, 6::R] = STOP
    ids[0, 9::R] = 600
    real = np.ones(ids.shape, dtype=bool)
    real[1, -5:] = False
    allowed = np.ones((N, T, T), dtype=bool) if both_sides else causal(N, T)
    allowed = allowed & real[:, None, :]
    here = make_attention_arrays(uniform(allowed), ids, allowed=allowed, query_mask=real, special={BEGIN})
    votes = roles.positional(*roles.offset_votes(here, T))[0]
    pattern = np.random.default_rng(3).random((N, T, T)) < 0.1
    for name, tally in {**all_roles(here), "positional": votes, "gold": roles.voted(here, pattern)}.items():
        assert (tally.rows.sum() == 0) == (name == "next" and not both_sides), name
        assert np.abs(tally.score - tally.chance).max() <= 1e-9, name
    verdicts = score_heads(roles.role(here, "previous"), 0.0, "text")
    assert not any(verdict.earned for verdict in verdicts)
    assert verdicts[0].lift == pytest.approx(1.0)


def digest(*arrays: Any) -> str:
    """Return a hash of all bytes of the arrays."""
    return hashlib.sha256(b"".join(np.asarray(array).tobytes() for array in arrays)).hexdigest()


@pytest.mark.parametrize("kind", ["numpy", "read-only", "torch"])
def test_inputs_are_not_changed(kind: str) -> None:
    ids = repeated()
    weights = pointing(repeated(), HEADS["induction"])
    allowed = causal(N, T).copy()
    given: list[Any] = [weights, ids, allowed]
    if kind == "read-only":
        for array in given:
            array.flags.writeable = False
    if kind == "torch":
        given = [torch.from_numpy(array) for array in given]
    before = digest(*given)
    here = make_attention_arrays(given[0], given[1], allowed=given[2], special={BEGIN})
    all_roles(here)
    roles.positional(*roles.offset_votes(here, T))
    roles.sink_weight(here)
    numbers.attention_statistics(here)
    numbers.divergence(here)
    relations.offset_hits(here, allowed, T)
    copying(here, weights)
    other = make_attention_arrays(given[0], given[1], given[1], allowed=given[2], special={BEGIN})
    for measure in (cross.monotone, cross.end_sink, cross.coverage, cross.hidden_weight):
        measure(other)
    assert digest(*given) == before


def test_a_role_needs_threshold_lift_interval_and_two_sequences() -> None:
    score = np.array([[9.0, 5.0], [9.0, 5.0], [9.0, 0.0]])
    rows = np.array([10.0, 10.0, 10.0])

    def earned(threshold: float, level: float, sequences: int = 3) -> list[bool]:
        tally = RoleTally(score[:sequences], np.full((sequences, 2), 10 * level), rows[:sequences])
        return [verdict.earned for verdict in score_heads(tally, threshold, "text")]

    assert earned(0.3, 0.05) == [True, False]  # 0.33 with an interval that reaches 0
    assert earned(0.95, 0.05) == [False, False]
    assert earned(0.3, 0.2) == [False, False]  # 0.9 is only 4.5 times 0.2
    assert earned(0.3, 0.05, sequences=1) == [False, False]
    state = torch.get_rng_state()
    before = np.random.get_state()[1].copy()
    verdicts = [score_heads(RoleTally(score, np.zeros_like(score), rows), 0.3, "text") for _ in range(2)]
    assert verdicts[0] == verdicts[1]
    assert verdicts[0][1].interval == (0.0, 0.5)
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == before).all()


def test_divergence_is_0_for_equal_and_ln_2_for_opposite_patterns() -> None:
    ids = distinct(13)
    same = make_attention_arrays(pointing(ids, HEADS["previous"]), ids, causal=True)
    total, count = numbers.divergence(same)
    assert count == 3 * 12
    assert total[0] == 0.0
    weights = pointing(ids, HEADS["self"])
    weights[0] = pointing(ids, HEADS["previous"])[0]
    total, count = numbers.divergence(make_attention_arrays(weights, ids, causal=True))
    assert total[0] / count == pytest.approx(2 / 3 * math.log(2))  # two of the three pairs are opposites


def test_cross_attention_order_coverage_and_sink() -> None:
    S = 8  # the source's last token is its end
    Q = 7
    source = np.concatenate([distinct(S - 1), np.full((N, 1), BEGIN)], axis=1)
    target = np.concatenate([np.full((N, 1), BEGIN), distinct(Q - 1)], axis=1)
    weights = np.zeros((N, 5, Q, S))
    for row in range(Q):
        weights[:, 0, row, row] = 1.0  # along the source
        weights[:, 1, row, S - 2 - row] = 1.0  # backwards
        weights[:, 2, row, :] = 1 / S
        weights[:, 3, row, S - 1] = 1.0  # always the end
        weights[:, 4, row, [row, S - 1]] = 0.4, 0.6  # along the source behind a sink
    here = make_attention_arrays(weights, target, source, special={BEGIN})
    assert here.rows.sum() == N * Q  # the begin token chooses the first word
    mean = cross.monotone(here).score.mean(axis=0)
    assert mean == pytest.approx([1.0, -1.0, 0.0, 0.0, 1.0])
    assert cross.coverage(here).mean(axis=0) == pytest.approx([1.0, 1.0, 1.0, 0.0, 0.0])
    sink = cross.end_sink(here)
    assert sink.score.sum(axis=0) / sink.rows.sum() == pytest.approx([0, 0, 1 / S, 1, 0.6])
    assert chance(sink) == pytest.approx(1 / S)


def test_any_weight_on_padding_is_detected() -> None:
    real = np.ones((N, 8), dtype=bool)
    real[1, 6:] = False
    weights = np.repeat((real / real.sum(axis=1, keepdims=True))[:, None, None, :], 5, axis=2)
    weights = np.concatenate([weights, weights], axis=1)
    ids = distinct(8)
    assert cross.hidden_weight(make_attention_arrays(weights, ids[:, :5], ids, key_mask=real)).tolist() == [0.0, 0.0]
    weights[1, 1, 2, 7] = 1e-12
    assert cross.hidden_weight(make_attention_arrays(weights, ids[:, :5], ids, key_mask=real)).tolist() == [0.0, 1e-12]


def test_copying_goes_from_minus_one_to_one() -> None:
    ids = np.concatenate([np.full((N, 1), BEGIN), distinct(12)], axis=1)
    weights = np.repeat(pointing(ids, HEADS["self"]), 4, axis=1)
    raised = np.zeros((N, 4, 13, 13))
    raised[:, 0] = np.eye(13)  # raises only the tokens that it attends to
    raised[:, 1] = 1 - np.eye(13)  # raises all other tokens
    raised[:, 2] = 1.0  # raises all tokens equally
    raised[:, 3] = -np.eye(13)  # lowers the attended token
    tally = copying(make_attention_arrays(weights, ids, causal=True, special={BEGIN}), raised)
    score = tally.score.sum(axis=0) / tally.rows.sum()
    assert score == pytest.approx([1.0, -1.0, 4 / 13 - 1, -1.0])  # 12 of the tokens can be raised: r = 1 / (1 + 12)
    even = make_attention_arrays(np.repeat(uniform(causal(N, 13)), 2, axis=1), ids, causal=True, special={BEGIN})
    level = copying(even, raised)
    assert np.abs(level.score - level.chance).max() < 1e-9


def test_gold_relations_agree_with_the_sentences() -> None:
    made = list(relations.sentences(40))
    for sentence in made:
        for (start, end), (first, last) in sentence.links:
            verb = sentence.text[start:end]
            noun = sentence.text[first:last]
            plural = noun.endswith("s")
            assert plural == (verb in ("are", "were", "have") or not verb.endswith("s")), (sentence.text, verb, noun)
    assert {len(sentence.links) for sentence in made} == {1, 2}
    assert made == list(relations.sentences(40))


def test_a_gold_relation_leads_from_token_to_token() -> None:
    sentence = relations.Sentence("The keys near me are old.", (((17, 20), (4, 8)),))
    spans = [(0, 3), (3, 8), (8, 13), (13, 16), (16, 18), (18, 20), (20, 24), (24, 25)]
    for relation, places in zip(relations.RELATIONS["agreement"], ([(6, 2)], [(4, 2)], [(2, 5), (2, 6)]), strict=True):
        pattern = relations.gold(sentence, spans, relation, before=1)
        assert pattern.shape == (9, 9)
        assert list(zip(*(found.tolist() for found in pattern.nonzero()), strict=True)) == places


def test_the_pronoun_is_linked_to_the_noun_of_the_adjective() -> None:
    made = list(relations.sentences_with_it(40))
    for number, sentence in enumerate(made):
        (((start, end), (first, last)),) = sentence.links
        assert sentence.text[start - 1 : end + 9] == " it was too "
        noun = sentence.text[first:last]
        adjective = sentence.text.rstrip(".").split()[-1]
        assert (noun in ANIMALS) == (adjective in ANIMAL_ADJECTIVES) == (number % 2 == 0)
        assert noun in ANIMALS or adjective in THINGS[noun][1]
    assert made == list(relations.sentences_with_it(40))
    sentence = relations.Sentence("The horse left as it was too wide.", (((18, 20), (4, 9)),))
    spans = [(0, 3), (3, 9), (9, 14), (14, 17), (17, 20), (20, 24), (24, 28), (28, 33), (33, 34)]
    for relation, place in zip(relations.RELATIONS["coreference"], ((5, 2), (2, 5)), strict=True):
        pattern = relations.gold(sentence, spans, relation, before=1)
        assert np.argwhere(pattern).tolist() == [list(place)]


def test_the_best_fixed_offset_is_the_baseline() -> None:
    ids = distinct(13)
    pattern = np.zeros((N, 13, 13), dtype=bool)
    for number, (query, key) in enumerate([(5, 3), (9, 7), (12, 4)]):
        pattern[number, query, key] = True
    here = make_attention_arrays(
        pointing(ids, lambda query, _: {5: [3], 9: [7], 12: [4]}.get(query, [])), ids, causal=True
    )
    hits, rows = relations.offset_hits(here, pattern, 20)
    assert (hits[20 - 2], hits[20 - 8], hits.sum(), rows) == (2, 1, 3, 3)
    assert share(roles.voted(here, pattern)) == 1.0


def test_shapes_that_do_not_fit_are_refused() -> None:
    ids = distinct(7)
    with pytest.raises(ValueError, match="do not match queries"):
        make_attention_arrays(np.ones((N, 2, 5, 7)), ids)
    with pytest.raises(ValueError, match="do not match keys"):
        make_attention_arrays(np.ones((N, 2, 7, 5)), ids)


def test_rows_of_padding_and_special_tokens_are_omitted() -> None:
    ids = distinct(7)
    ids[:, 3] = BEGIN
    real = np.ones((N, 7), dtype=bool)
    real[2, 5:] = False
    here = make_attention_arrays(uniform(causal(N, 7)), ids, causal=True, query_mask=real, special={BEGIN})
    assert here.rows[0].tolist() == [False, True, True, False, True, True, True]
    assert here.rows[2].tolist() == [False, True, True, False, True, False, False]
    assert not make_attention_arrays(uniform(np.ones((N, 7, 7), dtype=bool)), ids).rows[:, 0].any()  # in an encoder too
    assert all(one <= other for one, other in pairwise(here.visible[2][:5].tolist()))
    assert here.visible[2, 6] == 5
