"""Taps see the model's own tensors and are removed completely; evaluation mode restores the mode of each module."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from glassformer.inspection.hooks import Arguments, Tap, last_values, tapped
from glassformer.inspection.recording import record
from glassformer.inspection.sites import attentions
from glassformer.model.evaluation_mode import evaluation_mode, inference
from tests.property.models import tokens
from tests.property.traced_models import model_of


def hooks_of(model: nn.Module) -> list[Any]:
    """Return all forward hooks of a model."""
    return [hook for part in model.modules() for hook in (*part._forward_hooks, *part._forward_pre_hooks)]


def test_taps_give_the_models_own_tensors() -> None:
    model = model_of("decoder")
    ids = tokens(2, 7)
    (site, layer), *_ = attentions(model).items()
    block = model.get_submodule("stack.blocks.0")
    taps = {"z": Tap(layer.hook_z), "x": Tap(block, "input"), "all": Tap(block, "arguments")}
    with torch.no_grad(), last_values(taps) as seen:
        model(ids)
    kept = record(model, ids, keep=("z", "dec.0.resid"))
    assert torch.equal(seen["z"], kept[f"{site}.z"])
    assert torch.equal(seen["x"], kept["dec.0.resid"])
    args, named = cast(Arguments, seen["all"])
    assert args[0] is seen["x"]
    assert len(args) + len(named) > 1


def test_every_call_is_recorded_and_no_hook_remains_after_an_error() -> None:
    model = model_of("encoder-decoder")
    ids = tokens(1, 5)
    calls: list[str] = []

    def take(name: str, value: Tensor) -> None:
        calls.append(name)
        if len(calls) == 2:
            raise RuntimeError

    def run_twice() -> None:
        with tapped({"encoder": Tap(model.get_submodule("encoder"))}, take):
            model(ids, ids)
            model(ids, ids)

    with pytest.raises(RuntimeError):
        run_twice()
    assert calls == ["encoder", "encoder"]
    assert not hooks_of(model)


@pytest.mark.parametrize("context", [evaluation_mode, inference])
def test_the_mode_of_every_module_is_restored(context: Any) -> None:
    model = model_of("decoder").train()
    model.get_submodule("stack.blocks.1").eval()
    before = {name: part.training for name, part in model.named_modules()}
    assert set(before.values()) == {True, False}

    def look_and_fail() -> None:
        with context(model):
            assert not any(part.training for part in model.modules())
            assert torch.is_grad_enabled() == (context is evaluation_mode)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        look_and_fail()
    assert {name: part.training for name, part in model.named_modules()} == before
    assert torch.is_grad_enabled()
