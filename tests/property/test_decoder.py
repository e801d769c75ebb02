"""Decoder invariants for all settings: causality, no effect of padding or batch, cached equals uncached."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from glassformer.base.config import ModelConfig
from glassformer.model.attention import Mask
from glassformer.model.build import build_model
from glassformer.model.cache import Cache
from glassformer.model.transformer import Block
from tests.property.models import VOCAB, decoder, kinds, named, tiny, tokens

KINDS = kinds("decoder")
HEADS = {"multi-head": 6, "grouped-query": 2, "multi-query": 1}


@pytest.mark.parametrize(("kind", "window"), list(product(KINDS, [None, 5])), ids=named)
def test_a_token_never_changes_what_comes_before_it(kind: dict[str, Any], window: int | None) -> None:
    model = decoder(tiny(**{"kv_heads": 2, **kind}, window=window))
    before = tokens(2, 17)
    after = before.clone()
    after[:, 11] = (after[:, 11] + 1) % VOCAB
    changed = (model(before) - model(after)).abs().amax(dim=(0, 2))
    assert (changed[:11] == 0).all()
    assert changed[11] > 1e-3


@pytest.mark.parametrize(("kind", "side"), list(product(KINDS, ["left", "right"])), ids=named)
def test_padding_and_batch_mates_change_nothing(kind: dict[str, Any], side: str) -> None:
    model = decoder(tiny(**kind, window=7))
    lengths = [13, 1, 7]
    width = 13
    rows = [tokens(1, n, seed=n) for n in lengths]
    real = torch.zeros(3, width, dtype=torch.bool)
    outputs = []
    for filler in (0, 5):
        padded = torch.full((3, width), filler)
        for i, row in enumerate(rows):
            part = slice(width - lengths[i], width) if side == "left" else slice(0, lengths[i])
            padded[i, part] = row[0]
            real[i, part] = True
        outputs.append(model(padded, real)[real])
    assert torch.equal(outputs[0], outputs[1])
    alone = torch.cat([model(row)[0] for row in rows])
    torch.testing.assert_close(outputs[0], alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("kind", "heads", "window", "ragged"), list(product(KINDS, HEADS, [None, 5], [False, True])), ids=named
)
def test_cached_logits_equal_uncached(kind: dict[str, Any], heads: str, window: int | None, ragged: bool) -> None:
    config = tiny(**{**kind, "kv_heads": HEADS[heads]}, window=window)
    model = decoder(config)
    whole = tokens(3 if ragged else 1, 23)
    real = torch.ones_like(whole, dtype=torch.bool)
    if ragged:
        real[0, :6] = False
        real[2, :11] = False
    expected = model(whole, real if ragged else None)
    cache = Cache(config, len(whole), 29, whole.device, torch.float32)
    pieces = []
    start = 0
    for length in (13, 1, 1, 3, 1, 4):  # a prompt, single tokens, and chunks of several tokens
        part = slice(start, start + length)
        pieces.append(model(whole[:, part], real[:, part] if ragged and start == 0 else None, cache))
        start += length
    assert start == 23
    assert expected[real].std() > 0.5
    difference = (torch.cat(pieces, dim=1) - expected)[real].abs().max()
    assert difference <= 1e-5


def test_a_cache_shifted_by_one_position_is_detected() -> None:
    """The cache test can fail: a masked first token, which also shifts the next position by one, changes the logits."""
    config = tiny(positions="rotary")
    model = decoder(config)
    whole = tokens(1, 9)
    cache = Cache(config, 1, 29, whole.device, torch.float32)
    model(whole[:, :8], None, cache)
    cache.attention_mask[:, 0] = False
    cache.padded = True
    assert (model(whole[:, 8:], None, cache)[:, 0] - model(whole)[:, 8]).abs().max() > 1e-3


@pytest.mark.thorough
@pytest.mark.parametrize("vocab", [50, 32_100])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("norm", "order"), [("layernorm", "pre"), ("rmsnorm", "post"), ("none", "pre"), ("rmsnorm", "output")]
)
def test_the_first_loss_is_ln_v(vocab: int, tied: bool, norm: str, order: str) -> None:
    """The loss of a new model is within 1 % of ln V for every kind of position and activation, at several widths."""
    inputs = torch.randint(0, vocab, (4, 32), generator=torch.Generator().manual_seed(0))
    targets = torch.randint(0, vocab, (4, 32), generator=torch.Generator().manual_seed(1))
    for positions, activation, width, scale in [
        ("learned", "gelu", 32, False),
        ("sinusoidal", "relu", 256, True),
        ("rotary", "swiglu", 128, False),
        ("alibi", "relu2", 64, True),
        ("relative", "geglu", 256, False),
        ("none", "gelu_tanh", 32, False),
        ("sinusoidal", "relu", 32, False),
        ("learned", "swiglu", 256, True),
    ]:
        config = ModelConfig.model_validate(
            {
                "layers": 3,
                "heads": 4,
                "width": width,
                "context": 32,
                "tied": tied,
                "norm": norm,
                "norm_order": order,
                "positions": positions,
                "activation": activation,
                "embedding_scale": scale,
                "qk_norm": ("head" if width > 32 else "whole") if scale else "none",
                "head_transform": scale != tied,
                "zero_output": scale == tied,
            }
        )
        with torch.no_grad():
            logits = build_model(config, vocab, seed=3)(inputs)
        loss = cross_entropy(logits.flatten(0, 1), targets.flatten()).item()
        assert abs(loss / math.log(vocab) - 1) < 0.01, (positions, activation, width, scale)


@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder-decoder"])
def test_blocks_with_zero_output_begin_as_the_identity(family: str) -> None:
    def same(zero: bool) -> list[bool]:
        model = build_model(tiny(family=family, zero_output=zero), VOCAB)
        x = torch.randn(2, 5, model.config.width, generator=torch.Generator().manual_seed(0))  # (B, T, D)
        blocks = [module for module in model.modules() if isinstance(module, Block)]
        assert len(blocks) >= 2
        return [torch.equal(block(x, Mask(), memory=x), x) for block in blocks]

    assert all(same(zero=True))
    assert not any(same(zero=False))
