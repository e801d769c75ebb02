"""Verification in bfloat16 is fast on a CPU with slow bfloat16, and sees the same rounding."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from glassformer.base.config import ModelConfig
from glassformer.model.build import build_model
from glassformer.model.device import autocast
from glassformer.model.evaluation_mode import inference
from glassformer.model.precision import Speeds, cache_speeds
from glassformer.verification.process_state import bfloat16_on_cpu
from tests.products import BfloatProducts

CPU = torch.device("cpu")


@pytest.mark.parametrize("context", [24, 300])  # attention step by step, and the fused kernel
@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder-decoder"])
def test_float32_products_of_rounded_operands_equal_bfloat16_products(
    family: str, context: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLASS_CACHE", str(tmp_path))
    config = ModelConfig.model_validate({"family": family, "width": 64, "heads": 4, "layers": 2, "context": context})
    model = build_model(config, 97)
    ids = torch.randint(97, (2, context), generator=torch.Generator().manual_seed(0))  # (B, T)
    given = (ids, ids) if family == "encoder-decoder" else (ids,)
    found: list[torch.Tensor] = []
    seen: list[BfloatProducts] = []
    with inference(model):
        exact = model(*given)  # (B, T, V)
        for speeds in (Speeds(100.0, 500.0), Speeds(100.0, 1.0)):
            cache_speeds(speeds)
            with BfloatProducts() as products, autocast(CPU, torch.bfloat16), bfloat16_on_cpu():
                found.append(model(*given).float())  # (B, T, V)
            seen.append(products)
    fast, slow = seen
    assert fast.bfloat16 > 10
    assert slow.names == {}
    assert slow.others == fast.bfloat16 + fast.others
    rounding = float((found[0] - exact).norm())
    assert rounding > 0
    assert float((found[1] - exact).norm()) == pytest.approx(rounding, rel=0.1)
    assert (found[1] - found[0]).norm() < rounding
