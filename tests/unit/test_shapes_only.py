"""Models on the meta device: the same tensors, no memory, no random numbers, and no compiler loaded."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from glassformer.base.config import ModelConfig
from glassformer.model.build import build_model
from glassformer.model.shapes_only import shapes_only
from tests.journey.commands import begin, ended

SMALL = ModelConfig(layers=2, heads=3, width=24, context=11)


def test_the_meta_model_has_the_same_tensors() -> None:
    with shapes_only():
        model = build_model(SMALL, 17)
    assert all(value.is_meta for value in model.state_dict().values())
    real = build_model(SMALL, 17).state_dict()
    assert {name: value.shape for name, value in model.state_dict().items()} == {n: v.shape for n, v in real.items()}


def test_no_random_numbers_are_used_and_nothing_remains() -> None:
    before = torch.get_rng_state()
    with shapes_only():
        nn.init.normal_(nn.Linear(3, 5).weight)
        nn.init.zeros_(tensor=torch.empty(7))
    assert torch.equal(before, torch.get_rng_state())
    weight = nn.init.ones_(nn.Linear(3, 5).weight)
    assert not weight.is_meta
    assert bool((weight == 1).all())


def test_no_compiler_is_loaded() -> None:
    code = """
import sys
from glassformer.base.config import ModelConfig
from glassformer.model.count import count_model
count_model(ModelConfig(layers=2, heads=3, width=24, context=11), 17)
print("torch._dynamo" in sys.modules, "sympy" in sys.modules)
"""
    done = ended(begin("-c", code, folder=Path.cwd()))
    assert done.stdout.strip() == "False False"
