"""Checks of `glass doctor` pass here, and fail when a computation is wrong."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from glassformer.base.config import Config, ModelConfig
from glassformer.base.recipes import load_recipe, recipe_names
from glassformer.training.compiling import find_compiler
from glassformer.verification import device
from glassformer.verification.device import check_attention, check_devices, computes_in, cut_sizes, usable_cores
from glassformer.verification.machine import EXTRAS, inspect_machine

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
TINY: dict[str, Any] = {
    "layers": 2,
    "heads": 6,
    "kv_heads": 2,
    "width": 22,
    "head_width": 10,
    "hidden": 37,
    "context": 29,
}


def tiny(**changes: Any) -> ModelConfig:
    """Return the settings of a small model."""
    return ModelConfig(**{**TINY, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"positions": "rotary", "norm": "rmsnorm", "activation": "swiglu", "window": 5, "qk_norm": "head"},
        {"family": "encoder", "positions": "relative", "norm_order": "post", "head_transform": True},
        {"norm_order": "output", "qk_norm": "whole"},
        {"family": "encoder-decoder", "positions": "alibi", "activation": "relu2", "norm": "none"},
    ],
)
def test_a_correct_machine_differs_only_by_rounding(changes: dict[str, Any]) -> None:
    found = check_devices(tiny(**changes), ["cpu"])
    names = [each.name for each in found]
    threads = sorted({1, usable_cores()})
    assert names[: len(threads)] == [f"float32, {n} thread{'s' if n > 1 else ''}" for n in threads]
    assert "fused against explicit attention" in names
    assert all(each.ok for each in found), found
    single = found[0]
    assert single.gradients is not None
    assert 1e-9 < single.logits < 3e-6
    assert 1e-9 < single.gradients < 5e-6
    rounded = next(each for each in found if each.name.startswith("bfloat16 matmuls"))
    assert 1e-4 < rounded.logits < 5e-2


def wrong_scale(q: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Compute fused attention with scores that are a thousandth too large, in float32 only."""
    return RIGHT(q * 1.001 if q.dtype == torch.float32 else q, *rest, **named)


def wrong_slope(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """Return a GELU with the right value and a wrong gradient, in float32 only."""
    value = GELU(x, approximate=approximate)
    return value if x.dtype == torch.float64 else value + 1e-3 * (x - x.detach())


RIGHT = F.scaled_dot_product_attention
GELU = F.gelu


def test_a_wrong_kernel_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(F, "scaled_dot_product_attention", wrong_scale)
    found = {each.name: each for each in check_devices(tiny(), ["cpu"])}
    assert not found["float32, 1 thread"].ok
    assert not found["fused against explicit attention"].ok
    assert found["bfloat16 weights, as in generation"].ok  # a thousandth is less than its rounding


def test_a_wrong_gradient_is_detected_even_if_logits_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(F, "gelu", wrong_slope)
    single = check_devices(tiny(activation="gelu"), ["cpu"])[0]
    assert single.logits < single.limit
    assert not single.ok


def test_non_finite_numbers_never_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    nan = float("nan")
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *given, **named: RIGHT(*given, **named) * nan)
    found = check_attention(tiny(), torch.device("cpu"))
    assert not found.ok
    told = json.loads(json.dumps(found.facts(), allow_nan=False))
    assert (told["logits"], told["gradients"], told["ok"]) == (None, None, False)


def test_threads_and_random_state_are_restored() -> None:
    before = torch.get_num_threads()
    random = torch.get_rng_state()
    check_devices(tiny(layers=1), ["cpu"])
    assert torch.get_num_threads() == before
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize("changes", [{"context": 1}, {"window": 1}])
def test_with_one_visible_key_zero_gradients_agree(changes: dict[str, int]) -> None:
    assert check_attention(tiny(**changes), torch.device("cpu")).ok


def test_a_window_is_reduced_until_it_masks_tokens() -> None:
    cut, notes = cut_sizes(tiny(window=27))
    assert cut.window is not None
    assert cut.window < min(device.LENGTH, cut.context)
    assert f"window 27 -> {cut.window}" in notes


@pytest.mark.parametrize("name", recipe_names())
def test_sizes_are_reduced_and_choices_are_kept(name: str) -> None:
    config = Config.from_dict(load_recipe(name).settings).model
    cut, notes = cut_sizes(config)
    assert cut.layers <= 2
    assert cut.width <= 256
    assert cut.F <= 512
    assert cut.heads // cut.G == config.heads // config.G
    for kept in ("family", "positions", "norm", "norm_order", "activation", "K", "qk_norm", "tied"):
        assert getattr(cut, kept) == getattr(config, kept)
    for size in ("layers", "width", "heads", "context"):
        said = f"{size} {getattr(config, size)} -> {getattr(cut, size)}"
        assert (said in notes) == (getattr(config, size) != getattr(cut, size))


def test_heads_are_reduced_in_whole_groups() -> None:
    cut, notes = cut_sizes(ModelConfig(width=1024, heads=32, kv_heads=8, window=200, context=4096))
    assert (cut.heads, cut.G, cut.K, cut.window, cut.width) == (8, 2, 32, 12, 256)
    assert "heads 32 -> 8" in notes


def test_removed_heads_beyond_the_reduced_size_are_ignored() -> None:
    removed = ["dec.0.self.5", "dec.0.self.11", "dec.3.self.0", "enc.1.self.7", "dec.1.cross.2"]
    whole = ModelConfig(
        family="encoder-decoder", width=1024, heads=16, layers=4, encoder_layers=3, removed_heads=tuple(removed)
    )
    assert cut_sizes(whole)[0].removed_heads == ("dec.0.self.5", "dec.1.cross.2", "enc.1.self.7")


def test_the_table_of_extras_equals_that_of_the_package() -> None:
    extras = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    wanted = {name: tuple(re.split(r"[><=\[]", each)[0] for each in needs) for name, needs in extras.items()}
    assert {name: packages for name, (packages, _) in EXTRAS.items()} == {
        name: needs for name, needs in wanted.items() if name not in ("all", "test")
    }


def test_the_machine_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = inspect_machine(tmp_path)
    assert found.versions["torch"] == torch.__version__
    assert found.cores >= 1
    assert found.disk_free > 1 << 20
    assert found.memory is None or found.memory_free is None or found.memory >= found.memory_free > 0
    assert found.devices[0].name == "cpu"
    assert found.devices[0].speeds["float32"] == 1
    assert found.devices[0].gflops == {"float32": 100, "bfloat16": 1}  # from the cache of the tests
    assert found.devices[0].speeds["bfloat16"] == 0.01
    assert found.devices[0].auto == "float32"
    compiler = tmp_path / "my-compiler"
    compiler.write_text("#!/bin/sh\n", encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert find_compiler() is None
    monkeypatch.setenv("CXX", str(compiler))
    assert find_compiler() == str(compiler)


def test_an_unsupported_precision_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*shape: int, **kind: Any) -> torch.Tensor:
        raise RuntimeError("not implemented")

    assert computes_in(torch.device("cpu"), torch.bfloat16)
    monkeypatch.setattr(device.torch, "ones", refuses)
    assert not computes_in(torch.device("cpu"), torch.bfloat16)
