"""Reference solutions of exercises, compared with PyTorch, the library, exhaustive search and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from glassformer.base.config import SampleConfig
from glassformer.generation.sampling import probabilities
from glassformer.numpy_reference import positions
from glassformer_course.exercises.beam import check as beam
from glassformer_course.exercises.cache import check as cache
from glassformer_course.exercises.cross_attention import check as cross_attention
from glassformer_course.exercises.induction import check as induction
from glassformer_course.exercises.logit_attribution import check as logit_attribution
from glassformer_course.exercises.masked_lm import check as masked_lm
from glassformer_course.exercises.padding import check as padding
from glassformer_course.exercises.pruning import check as pruning
from glassformer_course.exercises.sampling import check as sampling

RANDOM = np.random.default_rng(8)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape)


def torch_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, allowed: np.ndarray | None = None) -> np.ndarray:
    """Return PyTorch's attention in float64; causal without a mask."""
    mask = None if allowed is None else torch.from_numpy(allowed)
    arrays = map(torch.from_numpy, (q, k, v))
    return functional.scaled_dot_product_attention(*arrays, mask, is_causal=allowed is None).numpy()


def test_cached_steps_equal_attention_over_the_whole_text() -> None:
    x = normal(7, 3)
    weights = [normal(3, 4) for _ in range(3)]
    found = []
    kept = (np.zeros((0, 4)), np.zeros((0, 4)))
    for begin, end in [(0, 3), (3, 4), (4, 7)]:
        mixed, kept = cache.step(x[begin:end], kept, *weights)
        found.append(mixed)
    turn = positions.rotation(np.arange(7)[None], 4, 10_000.0)
    q, k = (positions.rotate((x @ weight)[None, None], turn) for weight in weights[:2])
    np.testing.assert_allclose(np.concatenate(found), torch_attention(q, k, (x @ weights[2])[None, None])[0, 0], 1e-9)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, None, None), (0.7, 5, 0.8), (1.6, None, 0.5), (0.9, 3, None), (0.0, 2, 0.5)],
)
def test_the_distribution_is_that_of_the_package(temperature: float, top_k: int | None, top_p: float | None) -> None:
    settings = SampleConfig(temperature=temperature, top_k=top_k, top_p=top_p)
    for logits in (normal(11) * 2, np.round(normal(11))):  # rounded, so that there are ties
        ours = probabilities(torch.from_numpy(logits), settings).numpy()
        np.testing.assert_allclose(sampling.distribution(logits, temperature, top_k, top_p), ours, rtol=1e-9)


def test_samples_have_their_probabilities_as_frequencies() -> None:
    shares = np.array([0.5, 0.0, 0.3, 0.2])
    drawn = [sampling.draw(shares, u) for u in (np.arange(1000) + 0.5) / 1000]
    np.testing.assert_array_equal(np.bincount(drawn, minlength=4), 1000 * shares)


def test_padding_is_masked_as_in_pytorch() -> None:
    q = normal(3, 5, 2)
    k = normal(3, 5, 2)
    v = normal(3, 5, 2)
    real = np.arange(5) < np.array([[2], [5], [1]])
    np.testing.assert_allclose(padding.attention(q, k, v, real), torch_attention(q, k, v, real[:, None, :]), rtol=1e-9)


def test_cross_attention_equals_pytorchs() -> None:
    decoder = normal(2, 3, 4)
    encoder = normal(2, 7, 4)
    weights = [normal(4, 5) for _ in range(3)]
    real = np.arange(7) < np.array([[4], [7]])
    mixed, shares = cross_attention.cross_attention(decoder, encoder, real, *weights)
    q = decoder @ weights[0]
    k = encoder @ weights[1]
    v = encoder @ weights[2]
    np.testing.assert_allclose(mixed, torch_attention(q, k, v, real[:, None, :]), rtol=1e-9)
    assert not shares[0, :, 4:].any()


def test_the_masked_loss_equals_cross_entropy_with_an_ignored_label() -> None:
    logits = normal(9, 5)
    labels = np.array([1, -100, 4, -100, -100, 0, 2, -100, 3])
    theirs = functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(labels), ignore_index=-100)
    assert masked_lm.loss(logits, labels) == pytest.approx(float(theirs), rel=1e-12)


def test_fractions_of_masked_tokens_are_correct() -> None:
    choose, action = (each.ravel() for each in np.meshgrid((np.arange(100) + 0.5) / 100, (np.arange(100) + 0.5) / 100))
    tokens = np.full(10_000, 7)
    inputs, labels = masked_lm.hide(tokens, tokens == 0, choose, action, tokens + 1, 3)
    assert [(labels == 7).sum(), (inputs == 3).sum(), (inputs == 8).sum()] == [1500, 1200, 150]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_a_beam_as_wide_as_all_texts_finds_the_best(alpha: float) -> None:
    table = beam._random_table(RANDOM, 4)
    best = beam.everything(table, 0, 3, 5, alpha)
    found = beam.beam_search(table, 0, 3, 4**5, 5, alpha)
    assert [score for _, score in found] == [score for _, score in best]
    assert sorted(found) == sorted(best)  # ties may be in another order
    assert sum(np.exp(score * ((5 + len(tokens)) / 6) ** alpha) for tokens, score in best) == pytest.approx(1, abs=1e-4)


def test_contributions_sum_to_the_logit() -> None:
    parts, gain, bias, unembedding = logit_attribution._random_inputs(RANDOM, 6, 8, 5)
    arrays = [torch.from_numpy(each) for each in (parts.sum(axis=0), gain, bias)]
    theirs = functional.layer_norm(arrays[0], (8,), *arrays[1:], eps=1e-5).numpy() @ unembedding
    for token in range(5):
        found, constant = logit_attribution.attribution(parts, gain, bias, unembedding, token, 1e-5)
        assert found.sum() + constant == pytest.approx(theirs[token], abs=1e-12)


def test_two_constructed_heads_perform_induction() -> None:
    once = 1 + RANDOM.permutation(12)
    tokens = np.concatenate([[0], once, once])
    heads = induction.previous_token_head(13, 25), induction.induction_head(13, 25)
    found = induction.run(*heads, tokens, 13, 25)
    np.testing.assert_array_equal(found["next"][13:-1].argmax(axis=1), once[1:])
    assert induction.induction_score(found["second head"], tokens) == pytest.approx(1.0)
    blind = np.tri(16) / np.arange(1, 17)[:, None]
    chance = np.mean(1 / np.arange(9, 17))  # each row of the second half attends to one position
    assert induction.induction_score(blind, np.tile(np.arange(8), 2)) == pytest.approx(chance)


def test_importance_is_the_gradient_of_the_loss_by_the_gate() -> None:
    heads = 3
    d = 2
    D = 5
    step = 1e-5
    weights = pruning._weights(RANDOM, heads, d, D)
    targets = normal(4, 3, D)
    texts = normal(4, 3, D)

    def loss(text: int, gates: np.ndarray) -> float:
        return float(((pruning.gated(weights, texts[text], gates)[0] - targets[text]) ** 2).sum())

    sizes = np.zeros(heads)
    outputs = []
    gradients = []
    for text in range(4):
        result, mixed = pruning.gated(weights, texts[text], np.ones(heads))
        by_heads = 2 * (result - targets[text]) @ weights[3].T  # (T, H d)
        outputs.append(mixed)
        gradients.append(by_heads.reshape(3, heads, d).swapaxes(0, 1))
        for head in range(heads):
            nudge = step * np.eye(heads)[head]
            sizes[head] += abs(loss(text, 1 + nudge) - loss(text, 1 - nudge)) / (2 * step) / 4
    np.testing.assert_allclose(pruning.importance(np.stack(outputs), np.stack(gradients)), sizes, rtol=1e-6)


@pytest.mark.parametrize("removed", [[1], [2, 0], [3, 1, 0]])
def test_a_removed_head_equals_a_gate_of_0(removed: list[int]) -> None:
    weights = pruning._weights(RANDOM, 4, 3, 5)
    x = normal(6, 5)
    gates = np.array([float(head not in removed) for head in range(4)])
    smaller = pruning.remove(*weights, 4, removed)
    ours = pruning.gated(smaller, x, np.ones(4 - len(removed)))[0]
    np.testing.assert_allclose(ours, pruning.gated(weights, x, gates)[0], rtol=1e-9, atol=1e-12)
