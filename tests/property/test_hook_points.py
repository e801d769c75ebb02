"""Hook points give the values that the model uses, checked independently; without hooks, no bit changes."""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glassformer.inspection.catalogue import HOOK_POINTS, TENSOR_KINDS, catalogue
from glassformer.model.attention import Attention, Mask
from glassformer.model.cache import Cache
from glassformer.model.pruned_attention import head_numbers, kv_index
from glassformer.model.transformer import Decoder, Model
from tests.property.models import POSITIONS, decoder, tiny, tokens
from tests.property.traced_models import FAMILIES, PAD, full_state, inputs, logits_of, model_of

SHOWN = ("q", "k", "v", "products", "scores", "pattern", "z")
QUIET = ("q", "k", "v", "z")
CHOICES: list[dict[str, Any]] = [
    *({"positions": name} for name in POSITIONS),
    {"kv_heads": 2, "positions": "rotary", "qk_norm": "head"},
    {"kv_heads": 1, "window": 3, "positions": "alibi"},
    {"value_width": 7, "kv_heads": 2, "attention_bias": True},
    {"width": 24, "value_width": 4, "output_projection": False},
    {"removed_heads": "some", "kv_heads": 3, "positions": "relative"},
    {"qk_norm": "whole", "window": 3},
]
EVERY = [pytest.param(f, c, id=f"{f} {' '.join(f'{k}={v}' for k, v in c.items())}") for f in FAMILIES for c in CHOICES]


class Heard:
    """A recorder of the tensors at the hook points of a model's attention modules, and of their masks."""

    def __init__(self, model: nn.Module, points: tuple[str, ...] = SHOWN) -> None:
        self.layers = [part for part in model.modules() if isinstance(part, Attention)]
        self.seen: dict[tuple[Attention, str], Tensor] = {}
        self.masks: dict[Attention, Mask] = {}
        self.handles: list[Any] = []
        for layer in self.layers:
            self.handles.append(layer.register_forward_pre_hook(partial(self.mask, layer), with_kwargs=True))
            for name in points:
                hook = partial(self.note, layer, name)
                self.handles.append(getattr(layer, f"hook_{name}").register_forward_hook(hook))

    def note(self, layer: Attention, name: str, module: nn.Module, args: tuple[Any, ...], value: Tensor) -> None:
        self.seen[layer, name] = value

    def mask(self, layer: Attention, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.masks[layer] = kwargs["mask"] if "mask" in kwargs else args[1]

    def close(self) -> None:
        for handle in self.handles:
            handle.remove()


def check(heard: Heard, atol: float = 1e-5) -> None:
    """Compare the recorded values with plain PyTorch in float64, computed from the recorded q, k, v and mask."""
    for layer in heard.layers:
        q, k, v, products, scores, pattern, z = (heard.seen[layer, name].double() for name in SHOWN)
        k = k[:, kv_index(layer)]  # (B, H, S, K)
        v = v[:, kv_index(layer)]  # (B, H, S, K)
        mask = heard.masks[layer]
        again = torch.einsum("bhtk,bhsk->bhts", q, k) / math.sqrt(layer.head_width)  # (B, H, T, S)
        torch.testing.assert_close(products, again, atol=atol, rtol=atol)
        if mask.bias is not None:
            again = again + mask.bias[:, head_numbers(layer)]
        allowed = torch.ones(again.shape[-2:], dtype=torch.bool)
        if mask.allowed is not None:
            allowed = mask.allowed
        elif mask.is_causal:
            rows, columns = again.shape[-2:]
            allowed = torch.arange(columns) <= torch.arange(rows)[:, None]
        allowed = allowed.expand(again.shape)
        if mask.fully_masked is not None:
            allowed = allowed & ~mask.fully_masked
        again = again.masked_fill(~allowed, -math.inf)
        torch.testing.assert_close(scores, again, atol=atol, rtol=atol)
        weights = again.softmax(dim=-1).nan_to_num(0.0)
        torch.testing.assert_close(pattern, weights, atol=atol, rtol=atol)
        assert (pattern[~allowed] == 0).all()
        torch.testing.assert_close(z, pattern @ v, atol=atol, rtol=atol)


@pytest.mark.parametrize(("family", "choice"), EVERY)
def test_hook_points_have_the_values_that_the_model_uses(family: str, choice: dict[str, Any]) -> None:
    model = model_of(family, **choice)
    for real in (None, PAD):
        given = inputs(family, real)
        plain = logits_of(model, given)
        for points in (QUIET, SHOWN):
            heard = Heard(model, points)
            found = logits_of(model, given)
            heard.close()
            if points == QUIET:
                assert torch.equal(found, plain)
            else:
                torch.testing.assert_close(found, plain, atol=1e-4, rtol=0)
                check(heard)
        assert torch.equal(logits_of(model, given), plain)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_hook_points_work_with_a_cache(choice: dict[str, Any]) -> None:
    model = model_of("decoder", **choice)
    assert isinstance(model, Decoder)
    cache = Cache(model.config, 2, 13, torch.device("cpu"), torch.float32)
    model(tokens(2, 9), cache=cache)
    heard = Heard(model)
    model(tokens(2, 4, seed=3), cache=cache)
    heard.close()
    check(heard)
    layer = heard.layers[1]
    assert heard.seen[layer, "k"].shape[2] == 13
    assert heard.seen[layer, "pattern"].shape[2:] == (4, 13)


@pytest.mark.parametrize("family", FAMILIES)
def test_hook_points_work_in_bfloat16_under_autocast(family: str) -> None:
    model = model_of(family, positions="rotary", kv_heads=2)
    given = inputs(family, PAD)
    with torch.autocast("cpu", torch.bfloat16):
        plain = logits_of(model, given)
        quiet = Heard(model, QUIET)
        assert torch.equal(logits_of(model, given), plain)
        quiet.close()
        heard = Heard(model)
        logits_of(model, given)
        heard.close()
    check(heard, atol=5e-2)


def test_the_pattern_is_recorded_before_dropout() -> None:
    model = decoder(tiny(dropout_attention=0.5)).train()
    heard = Heard(model)
    model(tokens(2, 13))
    heard.close()
    for layer in heard.layers:
        torch.testing.assert_close(heard.seen[layer, "pattern"].sum(-1), torch.ones(2, layer.heads, 13))


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_value_returned_by_a_hook_replaces_the_original(family: str, name: str) -> None:
    model = model_of(family)
    given = inputs(family, PAD)
    layer = next(part for part in model.modules() if isinstance(part, Attention))
    plain = logits_of(model, given)
    before = full_state(model)
    handle = getattr(layer, f"hook_{name}").register_forward_hook(lambda module, args, value: value.roll(1, dims=-1))
    assert (logits_of(model, given) - plain).abs().max() > 1e-3
    handle.remove()
    assert torch.equal(logits_of(model, given), plain)
    assert full_state(model) == before


def test_gradients_of_the_pattern_can_be_recorded() -> None:
    model = model_of("decoder").requires_grad_(True)
    seen: list[Tensor] = []
    layer = next(part for part in model.modules() if isinstance(part, Attention))
    layer.hook_pattern.register_full_backward_hook(lambda module, given, output: seen.append(output[0]))
    model(tokens(2, 13)).square().sum().backward()
    assert seen[0].shape == (2, 6, 13, 13)
    assert seen[0].abs().max() > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_the_table_of_names_fits_the_model(family: str) -> None:
    """Every kind except `head_output`, which is computed from z, has a module in a real model."""
    assert set(HOOK_POINTS) == set(TENSOR_KINDS) - {"head_output"}
    model: Model = model_of(family, positions="learned")
    modules = dict(model.named_modules())
    for entry in catalogue(model).values():
        if entry.kind == "head_output":
            continue
        path = HOOK_POINTS[entry.kind].module
        if family == "encoder-decoder":
            path = re.sub(r"^(stack|decoder)", {"enc": "encoder", "dec": "decoder"}[entry.stack], path)
        number = min(int(entry.name.split(".")[1]), 2) if ".n" in path else 0
        path = re.sub(r"\.n\b", f".{number}", path)
        if ".cross." in entry.name:
            path = path.replace(".attention.", ".cross.")
        assert path in modules, (entry.name, path)


SCORES = re.compile(r"@ \w*k\.(transpose|swapaxes|mT)|@ np\.swapaxes\(k|scaled_dot_product_attention\(|hts\", q, k")
PLACES = {"model/attention.py", "generation/fast.py", "numpy_reference/attention.py", "interop/gguf/numpy_reader.py"}
"""Files that compute attention scores: the model, fast decoding, and two NumPy implementations to check them."""


def test_attention_scores_are_computed_in_few_places() -> None:
    source = Path(__file__).parents[2] / "src" / "glassformer"
    found = set()
    for path in source.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if SCORES.search(text):
            found.add(path.relative_to(source).as_posix())
    assert found == PLACES
