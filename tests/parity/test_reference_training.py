"""Training with the NumPy reference: gradients agree with finite differences, and losses with PyTorch at each step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from glassformer.base.config import ModelConfig, TrainConfig
from glassformer.model.build import build_model
from glassformer.model.transformer import Model
from glassformer.numpy_reference import (
    IGNORED,
    AdamW,
    Inputs,
    NumpyBatch,
    State,
    adamw,
    gradients,
    initial_weights,
    train,
    train_step,
)
from glassformer.numpy_reference.adam import clipped
from glassformer.training.optimizers import make_optimizers
from glassformer.verification.process_state import in_float64
from tests.journey.pages import ROOT, blocks, quick_python
from tests.parity.reference_cases import (
    CLASSES,
    DIFFERENTIATED,
    FAMILIES,
    ROWS,
    SOURCE_VOCAB,
    Case,
    config_of,
    grown_model,
    inputs_for,
    one_choice_each,
    say,
    weights_of,
)
from tests.property.models import VOCAB

MASK = VOCAB - 1
RULE = AdamW(learning_rate=0.003, beta2=0.99, weight_decay=0.1, clip=0.5)


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    with in_float64():
        yield


def batch_for(config: ModelConfig, kind: str, step: int) -> NumpyBatch:
    """Return a batch to learn: rows of numbers that increase by 1, 2 or 3 modulo `MASK`.

    A decoder predicts the next numbers, an encoder predicts masked numbers, a classifier predicts the increment, and an
    encoder-decoder copies the row.
    """
    draw = np.random.default_rng([7, step])
    pace = draw.integers(1, 4, (ROWS, 1))
    rows = (draw.integers(0, MASK, (ROWS, 1)) + pace * np.arange(10)) % MASK  # (B, 10)
    real = np.arange(9) < draw.integers(5, 10, (ROWS, 1))  # (B, 9)
    if kind == "decoder":
        return NumpyBatch(Inputs(rows[:, :-1]), np.where(real, rows[:, 1:], IGNORED))
    if kind == "classifier":
        return NumpyBatch(Inputs(rows[:, :-1], real), pace[:, 0] - 1)
    if kind == "encoder":
        hidden = real & (np.arange(9) % 3 == 1)
        return NumpyBatch(Inputs(np.where(hidden, MASK, rows[:, 1:]), real), np.where(hidden, rows[:, 1:], IGNORED))
    return NumpyBatch(Inputs(rows[:, :-1], None, rows[:, 1:], real), np.where(real, rows[:, 1:], IGNORED))


def torch_losses(model: Model, batches: list[NumpyBatch], smoothing: float) -> list[float]:
    """Return the losses of the same training in PyTorch, with gradient clipping and the optimizer of `glass train`."""
    rule = TrainConfig(
        learning_rate=RULE.learning_rate,
        beta1=RULE.beta1,
        beta2=RULE.beta2,
        epsilon=RULE.epsilon,
        weight_decay=RULE.weight_decay,
    )
    (optimizer,) = make_optimizers(model, rule)
    losses = []
    for inputs, targets in batches:
        said = say(model, inputs)  # (B, T, V) or (B, C)
        flat = said.reshape(-1, said.shape[-1])
        wanted = torch.from_numpy(targets).flatten()
        loss = cross_entropy(flat, wanted, ignore_index=IGNORED, label_smoothing=smoothing)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), RULE.clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.thorough
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_hundred_steps_equal_pytorch_and_reduce_the_loss(kind: str) -> None:
    smoothing = 0.1 if kind == "encoder-decoder" else 0.0
    config = config_of(Case(kind, {"positions": "rotary", "kv_heads": 2, "norm_bias": True, "head_bias": True}))
    model = build_model(config, seed=3)
    batches = [batch_for(config, kind, step % 5) for step in range(100)]
    start = weights_of(model)
    before = {name: value.copy() for name, value in start.items()}
    weights, ours = train(config, start, batches, RULE, smoothing)
    theirs = torch_losses(model, batches, smoothing)
    assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) <= 1e-8
    assert np.mean(ours[-10:]) < 0.5 * np.mean(ours[:10])
    for name, value in weights_of(model).items():
        np.testing.assert_allclose(weights[name], value, atol=1e-6, err_msg=name)
        assert (start[name] == before[name]).all(), "what was given is left alone"


@pytest.mark.thorough
@pytest.mark.parametrize("case", DIFFERENTIATED, ids=str)
def test_gradients_are_finite_differences(case: Case) -> None:
    """For a random direction u in each weight w: (loss(w + h u) - loss(w - h u)) / 2h = gradient · u."""
    config = config_of(case).replace(layers=1)
    draw = np.random.default_rng(8)
    h = 1e-5
    weights = weights_of(grown_model(config))
    inputs = inputs_for(config)
    rows = (ROWS,) if case.kind == "classifier" else inputs.tokens.shape
    batch = NumpyBatch(inputs, draw.integers(0, CLASSES if case.kind == "classifier" else VOCAB, rows))
    _, found = gradients(config, weights, batch, smoothing=0.1)
    for name, weight in weights.items():
        direction = draw.normal(size=weight.shape)
        direction /= np.linalg.norm(direction)
        ahead, behind = (
            gradients(config, {**weights, name: weight + way * h * direction}, batch, smoothing=0.1)[0]
            for way in (1, -1)
        )
        slope = float((found[name] * direction).sum())
        wanted = (ahead - behind) / (2 * h)
        assert abs(slope - wanted) <= 1e-6 * max(np.linalg.norm(found[name]), 1e-3), name


ZERO = [Case("encoder-decoder", {"zero_output": True}), Case("encoder", {"zero_output": True, "head_transform": True})]


@pytest.mark.parametrize("case", [*one_choice_each()[::5], *ZERO], ids=str)
def test_initial_weights_are_distributed_as_the_models(case: Case) -> None:
    """Names, shapes and standard deviations agree, and the initial loss is about ln V (ln C for C classes)."""
    config = config_of(case)
    values = {} if config.output_projection else {"value_width": 168 // config.heads}
    config = config.replace(width=168, hidden=256, **values)
    own = None if config.shared_embedding else SOURCE_VOCAB
    weights = initial_weights(config, VOCAB, seed=1, source_vocab_size=own)
    theirs = weights_of(build_model(config, seed=1))
    assert {name: value.shape for name, value in weights.items()} == {n: v.shape for n, v in theirs.items()}
    for name, value in theirs.items():
        if not value.size:  # of an attention layer without heads
            continue
        spread = 6 / math.sqrt(value.size)  # of the estimate of a standard deviation, with room
        np.testing.assert_allclose(weights[name].std(), value.std(), rtol=spread, err_msg=name)
    inputs = inputs_for(config)
    classes = CLASSES if case.kind == "classifier" else VOCAB
    targets = np.zeros((ROWS,) if case.kind == "classifier" else inputs.tokens.shape, dtype=int)
    loss, _ = gradients(config, weights, NumpyBatch(inputs, targets), smoothing=1.0)  # any target, equally
    assert abs(loss / math.log(classes) - 1) < 0.01


def test_a_step_is_gradients_then_adam() -> None:
    config = config_of(Case("decoder", {}))
    weights = weights_of(grown_model(config))
    batch = batch_for(config, "decoder", 0)
    loss, found = gradients(config, weights, batch)
    step = train_step(config, weights, State.start(weights), batch, RULE)
    wanted, state = adamw(weights, found, State.start(weights), RULE)
    assert (step.loss, step.state.step, state.step) == (loss, 1, 1)
    assert all((step.weights[name] == value).all() for name, value in wanted.items())


def test_the_first_step_of_adam_by_hand() -> None:
    """Bias correction turns both averages into g and g²: after weight decay, each entry moves by the learning rate."""
    weights = {"matrix": np.array([[2.0, -4.0]]), "gain": np.array([3.0])}
    slopes = {"matrix": np.array([[0.5, -0.25]]), "gain": np.array([8.0])}
    rule = AdamW(learning_rate=0.1, weight_decay=0.5, epsilon=0.0, clip=None)
    found, _ = adamw(weights, slopes, State.start(weights), rule)
    np.testing.assert_allclose(found["matrix"], [[2.0 - 0.1 * (1.0 + 1), -4.0 - 0.1 * (-2.0 - 1)]], rtol=1e-14)
    np.testing.assert_allclose(found["gain"], [2.9], rtol=1e-14)


def test_the_page_prints_what_it_shows(tmp_path: Path) -> None:
    page = ROOT / "docs" / "reference.md"
    assert quick_python(blocks(page, "python")[0].code, tmp_path) == blocks(page, "text")[0].code


def test_the_defaults_of_adam_equal_those_of_training() -> None:
    assert vars(AdamW()) == {name: getattr(TrainConfig(), name) for name in vars(AdamW())}


def test_clipping_scales_all_gradients_alike() -> None:
    slopes = {"a": np.array([3.0]), "b": np.array([0.0, 4.0])}
    np.testing.assert_allclose(clipped(slopes, 1.0)["b"], [0.0, 0.8], rtol=1e-6)
    assert (clipped(slopes, 5.1)["a"] == slopes["a"]).all()


def test_training_without_targets_only_applies_weight_decay() -> None:
    config = config_of(Case("decoder", {}))
    weights = weights_of(grown_model(config))
    batch = batch_for(config, "decoder", 0)
    nothing = NumpyBatch(batch.inputs, np.full_like(batch.targets, IGNORED))
    found, losses = train(config, weights, [nothing], AdamW(weight_decay=0.0))
    assert losses == [0.0]
    assert all((found[name] == value).all() for name, value in weights.items())


SMALL = ModelConfig(layers=1, width=8, heads=2, context=4)
PAIR = ModelConfig(family="encoder-decoder", layers=1, width=8, heads=2, context=4)
IDS = np.array([[3, 1, 4]])


@pytest.mark.parametrize(
    ("settings", "inputs", "message"),
    [
        (SMALL, Inputs(np.array([[3, 1, 5]])), "tokens has ids from 1 to 5: the vocabulary has 0 to 4"),
        (SMALL, Inputs(np.array([[-1]])), "tokens has ids from -1 to -1"),
        (SMALL, Inputs(np.array([[0, 1, 2, 3, 4]])), "tokens has rows of 5 tokens, but the context is 4: shorten them"),
        (SMALL, Inputs(np.array([3, 1])), r"tokens is int64 of shape \(2,\): give integers"),
        (SMALL, Inputs(np.array([[3.0]])), "tokens is float64"),
        (SMALL, Inputs(np.zeros((0, 3), dtype=int)), r"shape \(0, 3\)"),
        (SMALL, Inputs(IDS, np.array([[True, False]])), r"attention_mask is bool of shape \(1, 2\)"),
        (SMALL, Inputs(IDS, np.array([[1, 1, 0]])), "attention_mask is int64"),
        (SMALL, Inputs(IDS, source=IDS), "the decoder family takes no source"),
        (PAIR, Inputs(IDS), "an encoder-decoder needs a source"),
        (PAIR, Inputs(IDS, attention_mask=IDS > 0, source=IDS), "an encoder-decoder takes no attention_mask"),
        (PAIR, Inputs(IDS, source=np.array([[1], [2]])), "source has 2 rows, but tokens has 1"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(settings: ModelConfig, inputs: Inputs, message: str) -> None:
    batch = NumpyBatch(inputs, IDS)
    with pytest.raises(ValueError, match=message):
        gradients(settings, initial_weights(settings, 5), batch)


def test_weights_that_do_not_fit_are_refused() -> None:
    weights = initial_weights(SMALL, 5)
    first = "stack.blocks.0.attention.query.weight"
    for changed, message in [
        ({k: v for k, v in weights.items() if k != first}, f"the weight {first} is missing, but the settings need"),
        ({**weights, first: np.zeros((8, 7))}, r"has shape \(8, 7\), but the settings need shape \(8, 8\)"),
        ({**weights, "head.bias": np.zeros(5)}, "the settings have no weight head.bias"),
        ({}, "there is no weight embedding.tokens.weight"),
    ]:
        with pytest.raises(ValueError, match=message):
            gradients(SMALL, changed, NumpyBatch(Inputs(IDS), IDS))


def test_targets_that_do_not_fit_are_refused() -> None:
    weights = initial_weights(SMALL, 5)
    for targets, message in [
        (IDS[:, 1:], "the number of targets is 2, but the number of predictions is 3"),
        (IDS + 1, "give 0 to 4, or -100"),
    ]:
        with pytest.raises(ValueError, match=message):
            gradients(SMALL, weights, NumpyBatch(Inputs(IDS), targets))


def test_a_loss_that_is_not_finite_ends_training() -> None:
    weights = initial_weights(SMALL, 5)
    weights["stack.norm.weight"] = np.full(8, np.inf)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="the loss of step 1 is nan"):
        train(SMALL, weights, [NumpyBatch(Inputs(IDS), IDS)])
