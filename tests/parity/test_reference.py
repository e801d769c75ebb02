"""The NumPy reference equals the PyTorch model in float64: logits and all gradients, for every setting."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import glassformer.numpy_reference
from glassformer.base.config import Activation, ModelConfig
from glassformer.model import transformer
from glassformer.model.positions import RelativePositions
from glassformer.numpy_reference import IGNORED, NumpyBatch, activations, backward, forward, gradients, logits
from glassformer.numpy_reference.positions import bucket_of
from glassformer.verification.process_state import in_float64
from tests.parity.reference_cases import (
    NOT_IN_A_FORWARD_PASS,
    Case,
    config_of,
    furthest,
    grown_model,
    inputs_for,
    many_choices_at_once,
    one_choice_each,
    say,
    weights_of,
)
from tests.property.models import POSITIONS

LOGITS = 1e-10
GRADIENTS = 1e-8
CASES = one_choice_each()


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    with in_float64():
        yield


def compare(case: Case, padded: bool) -> None:
    """Compare logits at all positions, including padding, and gradients of a random weighted sum of all logits."""
    config = config_of(case)
    model = grown_model(config)
    inputs = inputs_for(config, padded)
    theirs = say(model, inputs)  # (B, T, V) or (B, C)
    ours, kept = forward(config, weights_of(model), inputs)
    assert ours.shape == theirs.shape
    assert 0.1 < np.abs(theirs.detach().numpy()).max() < 1000
    assert np.abs(ours - theirs.detach().numpy()).max() <= LOGITS
    weighting = np.random.default_rng(4).normal(size=ours.shape)
    theirs.backward(torch.from_numpy(weighting))
    wanted = {
        name: parameter.grad.numpy() if parameter.grad is not None else np.zeros(parameter.shape)
        for name, parameter in model.named_parameters()
        if parameter.grad is not None or not parameter.numel()  # the empty matrices of an attention layer without heads
    }
    assert wanted.keys() == weights_of(model).keys()
    error, name = furthest(backward(weighting, kept), wanted)
    assert error <= GRADIENTS, name


@pytest.mark.parametrize("name", get_args(Activation))
def test_each_activation_and_its_derivative(name: Activation) -> None:
    x = torch.linspace(-8, 8, 401, requires_grad=True)
    y = transformer.activate(x, name)
    dy = torch.cos(3 * x.detach())
    y.backward(dy)
    assert x.grad is not None
    ours = activations.activate(x.detach().numpy(), name)
    np.testing.assert_allclose(ours, y.detach().numpy(), atol=LOGITS, rtol=0)
    found = activations.activate_backward(dy.numpy(), x.detach().numpy(), name)
    np.testing.assert_allclose(found, x.grad.numpy(), atol=GRADIENTS, rtol=0)


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown activation 'typo'"):
        activations.activate(np.zeros(1), "typo")


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_each_position_method(positions: str, kind: str) -> None:
    compare(Case(kind, {"positions": positions, "layers": 1}), padded=True)


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_choice_with_every_kind_of_padding(case: Case) -> None:
    compare(case, padded=True)


@pytest.mark.thorough
@pytest.mark.parametrize("case", many_choices_at_once(40), ids=lambda case: case.kind)
@pytest.mark.parametrize("padded", [True, False])
def test_many_choices_at_once(case: Case, padded: bool) -> None:
    compare(case, padded)


def test_every_setting_is_tested() -> None:
    """Fail if a setting of the forward pass is changed in no case."""
    names = set(ModelConfig.model_fields)
    defaults = config_of(Case("decoder", {}))
    changed = {name for case in CASES for name in names if getattr(config_of(case), name) != getattr(defaults, name)}
    assert names - changed == NOT_IN_A_FORWARD_PASS - {"source_vocab_size"}


@pytest.mark.parametrize("kind", ["decoder", "encoder", "classifier", "encoder-decoder"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_its_gradients(kind: str, smoothing: float) -> None:
    config = config_of(Case(kind, {"positions": "rotary", "kv_heads": 2}))
    model = grown_model(config)
    inputs = inputs_for(config)
    theirs = say(model, inputs)  # (B, T, V) or (B, C)
    draw = np.random.default_rng(5)
    targets = draw.integers(0, theirs.shape[-1], theirs.shape[:-1])
    targets[draw.random(targets.shape) < 0.4] = IGNORED
    flat = theirs.reshape(-1, theirs.shape[-1])
    wanted = cross_entropy(flat, torch.from_numpy(targets).flatten(), ignore_index=IGNORED, label_smoothing=smoothing)
    wanted.backward()
    loss, found = gradients(config, weights_of(model), NumpyBatch(inputs, targets), smoothing)
    assert abs(loss - wanted.item()) <= 1e-12
    error, name = furthest(found, {name: parameter.grad.numpy() for name, parameter in model.named_parameters()})
    assert error <= GRADIENTS, name


def test_weights_of_a_run_in_float32() -> None:
    """With float32 weights, as read from a file, one call gives the model's logits to within float32 precision."""
    torch.set_default_dtype(torch.float32)
    config = config_of(Case("decoder", {"positions": "rotary", "norm": "rmsnorm", "activation": "swiglu"}))
    model = grown_model(config)
    inputs = inputs_for(config)
    weights = weights_of(model)
    assert all(value.dtype == np.float32 for value in weights.values())
    found = logits(config, weights, inputs.tokens, inputs.attention_mask)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, say(model, inputs).detach().numpy(), atol=1e-4)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("buckets", "farthest"), [(32, 128), (8, 16), (4, 8), (16, 64), (10, 33), (64, 1000), (32, 32)]
)
def test_buckets_of_all_distances(buckets: int, farthest: int, causal: bool) -> None:
    back = np.arange(-1500, 1500)
    theirs = RelativePositions(1, buckets, farthest, causal).bucket(torch.from_numpy(back))
    assert (bucket_of(back, buckets, farthest, causal) == theirs.numpy()).all()


def test_the_reference_imports_only_numpy() -> None:
    """The reference imports only NumPy and the standard library; it does not load torch, pydantic or scipy."""
    folder = Path(glassformer.numpy_reference.__file__).parent
    found: set[str] = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            if isinstance(node, ast.ImportFrom):
                found.add(str(node.module))
    found.discard("glassformer.base.config")  # ModelConfig, for type checkers
    own = {name for name in found if name.startswith("glassformer")}
    assert all(name.startswith("glassformer.numpy_reference.") for name in own)
    assert {name.split(".")[0] for name in found - own} - {"numpy"} <= sys.stdlib_module_names
    code = "import sys; import glassformer.numpy_reference; print({'torch', 'pydantic', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
