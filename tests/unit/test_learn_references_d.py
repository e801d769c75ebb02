"""Reference solutions of the first exercises, compared with PyTorch, finite differences and worked examples."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from glassformer.numpy_reference.attention import self_allowed
from glassformer_course.course import find
from glassformer_course.exercises.attention import check as attention
from glassformer_course.exercises.bigram import check as bigram
from glassformer_course.exercises.byte_pairs import check as byte_pairs
from glassformer_course.exercises.causal_mask import check as causal_mask
from glassformer_course.exercises.cross_entropy import check as cross_entropy
from glassformer_course.exercises.embedding import check as embedding
from glassformer_course.exercises.multi_head import check as multi_head
from glassformer_course.exercises.sinusoids import check as sinusoids
from glassformer_course.judging.marking import LocalFunctions, mark

RNG = np.random.default_rng(7)


def test_cross_entropy_equals_pytorchs() -> None:
    logits = RNG.normal(size=(3, 5, 11)) * 4
    targets = RNG.integers(11, size=(3, 5))
    targets[1, 2:] = -100
    theirs = F.cross_entropy(torch.tensor(logits).flatten(0, 1), torch.tensor(targets).flatten(), ignore_index=-100)
    assert cross_entropy.cross_entropy(logits, targets) == pytest.approx(theirs.item(), rel=1e-12)


def test_the_table_gradient_equals_finite_differences_and_pytorch() -> None:
    table = RNG.normal(size=(5, 3))
    ids = RNG.integers(4, size=(2, 7))
    dX = RNG.normal(size=(2, 7, 3))
    gradient = embedding.table_gradient(ids, dX, 5)
    for place in np.ndindex(table.shape):
        step = np.zeros_like(table)
        step[place] = 1e-6
        up, down = ((embedding.look_up(ids, table + sign * step) * dX).sum() for sign in (1, -1))
        assert (up - down) / 2e-6 == pytest.approx(gradient[place], abs=1e-8)
    weight = torch.tensor(table, requires_grad=True)
    F.embedding(torch.tensor(ids), weight).backward(torch.tensor(dX))
    assert weight.grad is not None
    np.testing.assert_allclose(gradient, weight.grad.numpy(), rtol=1e-12)


def test_attention_and_its_mask_equal_pytorchs() -> None:
    Q = RNG.normal(size=(3, 5))
    K = RNG.normal(size=(7, 5))
    V = RNG.normal(size=(7, 2))
    tensors = [torch.tensor(array)[None] for array in (Q, K, V)]
    theirs = F.scaled_dot_product_attention(*tensors)[0].numpy()
    np.testing.assert_allclose(attention.attention(Q, K, V)[0], theirs, rtol=1e-12)
    allowed = causal_mask.causal(3, 7)
    whole = self_allowed(np.arange(7)[None], np.ones((1, 7), dtype=bool), causal=True, window=None)
    np.testing.assert_array_equal(allowed, whole[0, 0, -3:])
    theirs = F.scaled_dot_product_attention(*tensors, attn_mask=torch.tensor(allowed))[0].numpy()
    weights = causal_mask.masked_softmax(Q @ K.T / 5**0.5, allowed)
    np.testing.assert_allclose(weights @ V, theirs, rtol=1e-12)


def test_multi_head_attention_equals_pytorchs() -> None:
    x = RNG.normal(size=(2, 5, 12))
    weights = RNG.normal(size=(4, 12, 12))
    theirs = torch.nn.MultiheadAttention(12, 3, bias=False, batch_first=True, dtype=torch.float64)
    tensors = torch.tensor(weights).transpose(1, 2)  # Linear keeps (out, in)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(tensors[:3].flatten(0, 1))
        theirs.out_proj.weight.copy_(tensors[3])
        expected = theirs(*[torch.tensor(x)] * 3, need_weights=False)[0].numpy()
    np.testing.assert_allclose(multi_head.multi_head(x, *weights, 3), expected, rtol=1e-9)


def test_a_step_rotates_every_sinusoid_pair_at_any_position() -> None:
    angles = 3 * 10_000.0 ** (-np.arange(4) / 4)  # of three steps, at width 8
    here, there = (sinusoids.sinusoids(np.array([0, 5, 40]) + steps, 8) for steps in (0, 3))
    sines = here[:, 0::2]
    cosines = here[:, 1::2]
    np.testing.assert_allclose(there[:, 0::2], sines * np.cos(angles) + cosines * np.sin(angles), atol=1e-12)
    np.testing.assert_allclose(there[:, 1::2], cosines * np.cos(angles) - sines * np.sin(angles), atol=1e-12)


def test_the_merges_of_a_known_text_are_correct() -> None:
    merges = byte_pairs.learned_merges("aaabdaaabac", 3)  # then (256, 97) also occurs twice: a tie
    assert merges == [(97, 97), (97, 98), (256, 257)]
    assert byte_pairs.encode("aaabdaaabac", merges) == [258, 100, 258, 97, 99]


def test_smoothed_bigrams_are_probabilities_and_uniform_for_large_k() -> None:
    ids = RNG.integers(5, size=101)
    counts = bigram.count(ids, 5)
    assert counts.sum() == 100
    np.testing.assert_allclose(bigram.probabilities(counts, 0.3).sum(axis=1), 1, rtol=1e-12)
    assert bigram.nats_per_token(ids, bigram.probabilities(counts, 1e12)) == pytest.approx(log(5), abs=1e-9)


@pytest.mark.parametrize("name", ["byte_pairs", "bigram"])
@pytest.mark.parametrize("text", ["", "a", "আমি ভাত খাই। " * 30, "To be, or not to be " * 200])
def test_questions_accept_any_text(name: str, text: str) -> None:
    exercise = find(name)
    plain = sum(1 for _ in exercise.cases(0))
    marks = mark(LocalFunctions(exercise.solved()), exercise.reference, exercise.cases(0, text), exercise.mistakes)
    assert marks.passed
    assert marks.cases_run > plain or len(text) < 2
