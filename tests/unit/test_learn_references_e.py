"""Reference solutions, rotary to training_loop, compared with PyTorch, the library's model and finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn import functional

from glassformer.model.positions import RotaryPositions
from glassformer.model.positions import rotate as rotated_by_the_model
from glassformer.numpy_reference.arrays import Array
from glassformer_course.exercises.adamw import check as adamw
from glassformer_course.exercises.attention_backward import check as attention
from glassformer_course.exercises.attention_backward.task import causal_weights
from glassformer_course.exercises.block import check as block
from glassformer_course.exercises.norms import check as norms
from glassformer_course.exercises.norms_backward import check as norms_backward
from glassformer_course.exercises.rotary import check as rotary
from glassformer_course.exercises.schedule import check as schedule
from glassformer_course.exercises.training_loop import check as loop
from glassformer_course.exercises.training_loop.task import forward
from glassformer_course.exercises.tying import check as tying


def slopes(function: Callable[[Array], float], at: Array, step: float = 1e-5) -> Array:
    """Return a gradient by central differences."""
    found = np.empty_like(at)
    for place in np.ndindex(at.shape):
        move = np.zeros_like(at)
        move[place] = step
        found[place] = (function(at + move) - function(at - move)) / (2 * step)
    return found


def test_rotary_equals_the_models_and_keeps_lengths_and_distances() -> None:
    x = np.random.default_rng(0).normal(size=(2, 5, 8))
    turn = RotaryPositions(8, 10_000.0)(torch.arange(3, 8)[None])
    theirs = rotated_by_the_model(torch.tensor(x)[None], turn)[0].numpy()
    assert np.allclose(rotary.rotate(x, 3, 10_000.0), theirs, atol=1e-6)  # the model's angles are float32
    assert np.allclose(np.linalg.norm(rotary.rotate(x, 3, 50.0), axis=-1), np.linalg.norm(x, axis=-1))
    q, k = x[:, :1]
    near, far = (rotary.rotate(q, place + 4, 50.0) @ rotary.rotate(k, place, 50.0).T for place in (0, 1_000))
    assert np.allclose(near, far)
    assert not np.allclose(near, rotary.rotate(q, 5, 50.0) @ rotary.rotate(k, 0, 50.0).T)


def test_norms_equal_torchs() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 3, 5))
    gain = rng.normal(size=5)
    bias = rng.normal(size=5)
    tensors = [torch.tensor(array) for array in (x, gain, bias)]
    theirs = functional.layer_norm(tensors[0], (5,), tensors[1], tensors[2], 1e-3).numpy()
    assert np.allclose(norms.layer_norm(x, gain, bias, 1e-3), theirs, atol=1e-12)
    theirs = functional.rms_norm(tensors[0], (5,), tensors[1], 1e-3).numpy()
    assert np.allclose(norms.rms_norm(x, gain, 1e-3), theirs, atol=1e-12)


def test_gradients_of_norms_are_slopes() -> None:
    rng = np.random.default_rng(2)
    dy = rng.normal(size=(2, 3, 5))
    x = rng.normal(size=(2, 3, 5))
    gain = rng.normal(size=5)
    bias = rng.normal(size=5)
    dx, dgain, dbias = norms_backward.layer_norm_backward(dy, x, gain, 1e-3)
    assert np.allclose(dx, slopes(lambda each: (dy * norms.layer_norm(each, gain, bias, 1e-3)).sum(), x), atol=1e-8)
    assert np.allclose(dgain, slopes(lambda each: (dy * norms.layer_norm(x, each, bias, 1e-3)).sum(), gain), atol=1e-8)
    assert np.allclose(dbias, slopes(lambda each: (dy * norms.layer_norm(x, gain, each, 1e-3)).sum(), bias), atol=1e-8)
    dx, dgain = norms_backward.rms_norm_backward(dy, x, gain, 1e-3)
    assert np.allclose(dx, slopes(lambda each: (dy * norms.rms_norm(each, gain, 1e-3)).sum(), x), atol=1e-8)
    assert np.allclose(dgain, slopes(lambda each: (dy * norms.rms_norm(x, each, 1e-3)).sum(), gain), atol=1e-8)


def test_a_block_with_zero_outputs_is_the_identity() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(5, 4))
    weights = block.random_weights(rng, 4, 3, 7)
    silent = {name: np.zeros_like(weights[name]) for name in ("output", "down")}
    assert np.array_equal(block.block(x, weights | silent), x)
    assert not np.allclose(block.block(x, weights), x)


def test_gradients_of_attention_equal_finite_differences() -> None:
    rng = np.random.default_rng(4)
    q, k, v, dy = rng.normal(size=(4, 5, 3))

    def loss(q: Array, k: Array, v: Array) -> float:
        return float((dy * (causal_weights(q, k) @ v)).sum())

    dq, dk, dv = attention.attention_backward(dy, q, k, v)
    assert np.allclose(dq, slopes(lambda each: loss(each, k, v), q), atol=1e-6)
    assert np.allclose(dk, slopes(lambda each: loss(q, each, v), k), atol=1e-6)
    assert np.allclose(dv, slopes(lambda each: loss(q, k, each), v), atol=1e-6)

    def softmax(scores: Array) -> Array:
        shares = np.exp(scores)
        return shares / shares.sum(axis=-1, keepdims=True)

    scores, dweights = rng.normal(size=(2, 4, 4))
    found = attention.softmax_backward(dweights, softmax(scores))
    assert np.allclose(found, slopes(lambda each: (dweights * softmax(each)).sum(), scores), atol=1e-8)


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_adamw_equals_torchs(decay: float) -> None:
    gradients = np.random.default_rng(5).normal(size=(50, 2, 3)) * 10.0 ** np.arange(-4, 2).reshape(2, 3)
    weight = torch.nn.Parameter(torch.ones(2, 3, dtype=torch.float64))
    optimizer = torch.optim.AdamW([weight], lr=0.02, weight_decay=decay)
    for gradient, mine in zip(gradients, adamw.walked(adamw.adamw, gradients, 0.02, decay), strict=True):
        weight.grad = torch.tensor(gradient)
        optimizer.step()
        assert np.allclose(mine, weight.detach().numpy(), atol=1e-12)


def test_the_schedule_has_its_known_values() -> None:
    curve = [schedule.rate(step, 14, 4, 1.0, 0.1) for step in range(20)]
    assert curve[:4] == [0.25, 0.5, 0.75, 1.0]
    assert curve[8] == pytest.approx(0.55)  # half of the decay is over
    assert curve[13:] == [pytest.approx(0.1)] * 7
    assert all(later < earlier for earlier, later in pairwise(curve[3:14]))


def test_the_gradient_of_a_tied_table_equals_finite_differences() -> None:
    rng = np.random.default_rng(6)
    ids = np.array([2, 0, 2])
    targets = np.array([0, 2, 3])
    table = rng.normal(size=(5, 3))
    middle = np.eye(3) + 0.3

    def said(table: Array) -> tuple[Array, Array]:
        h = np.tanh(table[ids] @ middle)
        return h, tying.tied_logits(h, table)

    def loss(table: Array) -> float:
        logits = said(table)[1]
        return float((np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(3), targets]).mean())

    h, logits = said(table)
    dlogits = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True) - np.eye(5)[targets]) / 3
    dx = (dlogits @ table * (1 - h**2)) @ middle.T
    assert np.allclose(tying.tied_backward(ids, h, dlogits, dx, table), slopes(loss, table), atol=1e-8)


def test_the_given_decoder_and_the_reference_have_the_same_gradients() -> None:
    rng = np.random.default_rng(7)
    weights = loop.random_weights(rng, 4, 3, 2, 3)
    rows = rng.integers(0, 4, size=(2, 4))
    _, gradients = loop.loss_and_gradients(weights, rows)

    def loss(weights: dict[str, Array]) -> float:
        logits = forward(weights, rows[:, :-1])[0]
        log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return float(-np.take_along_axis(log_p, rows[:, 1:, None], axis=-1).mean())

    assert set(gradients) == set(weights)
    for name, weight in weights.items():
        there = slopes(lambda each, name=name: loss(weights | {name: each}), weight)  # type: ignore[misc]
        assert np.allclose(gradients[name], there, atol=1e-8), name


def test_a_new_decoder_guesses_and_a_trained_one_memorizes() -> None:
    for seed in range(5):
        fresh = {
            name: array / 5 for name, array in loop.random_weights(np.random.default_rng(seed), 7, 8, 4, 8).items()
        }
        losses = loop.train(fresh, loop.MEMORIZED, 100, 1.0, 1.0)[1]
        assert losses[0] == pytest.approx(math.log(7), rel=0.05)
        assert losses[-1] < 0.05
