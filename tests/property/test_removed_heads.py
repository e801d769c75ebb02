"""A removed head equals a head with gate 0: the same logits from smaller matrices and a smaller cache."""

from __future__ import annotations

from itertools import product
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from glassformer.base.config import ModelConfig, SampleConfig, TrainConfig
from glassformer.base.errors import GlassError
from glassformer.generation.beam import beam_search
from glassformer.inspection.head_gates import gated
from glassformer.inspection.sites import attentions, find_head, heads
from glassformer.inspection.trace import trace
from glassformer.model.attention import Mask
from glassformer.model.build import build_model
from glassformer.model.cache import Cache
from glassformer.model.count import count_model
from glassformer.model.pruned_attention import PrunedAttention, head_numbers
from glassformer.model.transformer import Decoder, EncoderDecoder, Model
from glassformer.training.optimizers import make_optimizers
from tests.property.models import POSITIONS, VOCAB, as_if_trained, some_heads, tiny, tokens

FAMILIES = ("decoder", "encoder", "encoder-decoder")
KV_HEADS = {"multi-head": 6, "grouped-query": 2, "pairs": 3, "multi-query": 1}
REAL = torch.tensor([[True] * 17, [False] * 4 + [True] * 13, [True] * 9 + [False] * 8])


def removed_from(model: Model, config: ModelConfig) -> Model:
    """Return a model of this config with the remaining weights of `model`."""
    small = build_model(config, VOCAB).eval().requires_grad_(False)
    weights = model.state_dict()
    K = config.K
    for site, layer in attentions(small).items():
        query = [row for head in config.kept_heads(str(site)) for row in range(head * K, head * K + K)]
        key = [row for head in config.kept_kv_heads(str(site)) for row in range(head * K, head * K + K)]
        prefix = next(name for name, module in small.named_modules() if module is layer)
        for part, rows in (("query", query), ("key", key), ("value", key)):
            for name in (f"{prefix}.{part}.weight", f"{prefix}.{part}.bias"):
                if name in weights:
                    weights[name] = weights[name][rows]
        weights[f"{prefix}.output.weight"] = weights[f"{prefix}.output.weight"][:, query]
        if not query:
            for name in (f"{prefix}.query_norm.weight", f"{prefix}.key_norm.weight"):
                weights.pop(name, None)
    small.load_state_dict(weights)
    return small


def both(**changes: Any) -> tuple[Model, Model]:
    """Return a model in float64, and the same model without some heads."""
    config = tiny(**changes)
    model = as_if_trained(config)
    return model.double(), removed_from(model, config.replace(removed_heads=some_heads(config.family))).double()


def closed(model: Model, config: ModelConfig) -> dict[str, Tensor]:
    """Return gates of 0 for the removed heads and 1 for all others."""
    return {
        str(site): torch.tensor([float(head in config.kept_heads(str(site))) for head in range(layer.heads)])
        for site, layer in attentions(model).items()
    }


def say(model: Model, padded: bool) -> Tensor:
    real = REAL if padded else None
    if isinstance(model, EncoderDecoder):
        return model(tokens(3, 17), tokens(3, 13, seed=1), real)
    return model(tokens(3, 17), real)


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "positions", "kv_heads"), list(product(FAMILIES, POSITIONS, KV_HEADS)))
def test_a_gate_of_0_equals_a_removed_head(family: str, positions: str, kv_heads: str) -> None:
    """Cases: self- and cross-attention, groups that become unequal, and an attention layer without heads."""
    index = POSITIONS.index(positions)
    other = {"qk_norm": ("head", "none")[index % 2], "norm_order": ("pre", "post", "output")[index % 3]}
    whole, small = both(
        family=family,
        positions=positions,
        kv_heads=KV_HEADS[kv_heads],
        attention_bias=index > 2,
        window=5 if index % 2 else None,
        **other,
    )
    for padded in (False, True):
        with gated(whole, closed(whole, small.config)):
            expected = say(whole, padded)
        assert (say(small, padded) - expected).abs().max() <= 1e-6
        assert (say(whole, padded) - expected).abs().max() > 1e-3  # the heads mattered
    with torch.no_grad():
        for site, layer in attentions(whole).items():
            kept = torch.tensor([head in small.config.kept_heads(str(site)) for head in range(6)])
            layer.output.weight.mul_(kept.repeat_interleave(10))  # (D, H K): the columns of a head
    assert (say(small, False) - say(whole, False)).abs().max() <= 1e-6


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_rows_and_columns_of_removed_heads_are_gone(kv_heads: int) -> None:
    """Of heads 0 to 5, heads 1, 2 and 3 stay in the first layer; key heads without queries are removed, too."""
    _, small = both(kv_heads=kv_heads, attention_bias=True, qk_norm="head")
    first, second, third = attentions(small).values()
    left = {1: 1, 2: 2, 3: 2, 6: 3}[kv_heads]  # groups of 6, 3, 2 and 1
    assert first.query.weight.shape == (30, 22)
    assert first.output.weight.shape == (22, 30)
    assert first.key.weight.shape == first.value.weight.shape == (10 * left, 22)
    assert first.key.bias.shape == (10 * left,)
    assert (third.heads, head_numbers(third)) == (5, [0, 1, 2, 4, 5])
    assert sum(p.numel() for p in second.parameters()) == second.output.bias.numel() == 22
    assert torch.equal(second(torch.randn(2, 3, 22).double(), Mask(is_causal=True))[1, 2], second.output.bias)


@pytest.mark.parametrize("family", ["decoder", "encoder-decoder"])
@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_each_layer_caches_only_its_remaining_heads(family: str, kv_heads: int) -> None:
    _, small = both(family=family, kv_heads=kv_heads)
    cache = Cache(small.config, 2, 7, torch.device("cpu"), torch.float32)
    layers = [layer for site, layer in attentions(small).items() if (site.stack, site.part) == ("dec", "self")]
    assert [each.keys.shape for each in cache.layers] == [(2, layer.kv_heads, 7, 10) for layer in layers]
    assert layers[1].kv_heads == 0
    kept = sum(each.keys.numel() + each.values.numel() for each in cache.layers) // 14 * 4
    assert sum(part.cache_bytes for part in count_model(small.config, VOCAB)) == kept


@pytest.mark.parametrize("family", ["decoder", "encoder-decoder"])
def test_beam_search_works_with_different_heads_per_layer(family: str) -> None:
    _, small = both(family=family)
    assert isinstance(small, Decoder | EncoderDecoder)
    settings = SampleConfig(tokens=9, beams=4)
    found = beam_search(small, [[1, 2, 3], [4, 5, 6]], settings, 0)
    wanted = beam_search(small, [[1, 2, 3], [4, 5, 6]], settings, 0, cached=False)
    assert [[each.tokens for each in texts] for texts in found] == [[each.tokens for each in texts] for texts in wanted]


@pytest.mark.parametrize("kv_heads", [2, 6])
def test_counts_are_those_of_the_smaller_model(kv_heads: int) -> None:
    config = tiny(removed_heads=some_heads("decoder"), kv_heads=kv_heads, qk_norm="head", head_transform=True)
    model = build_model(config, VOCAB)
    parts = count_model(config, VOCAB)
    assert sum(part.parameters for part in parts) == sum(p.numel() for p in model.parameters())
    ids = torch.zeros(1, config.context, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(ids)
    assert counter.get_total_flops() == sum(part.flops for part in parts) * config.context


def test_heads_keep_their_names() -> None:
    _, small = both(family="encoder-decoder")
    names = [str(head) for head in heads(small)]
    assert set(names).isdisjoint(small.config.removed_heads)
    assert len(names) + len(small.config.removed_heads) == 9 * 6
    assert names[:3] == ["enc.0.self.2", "enc.0.self.4", "enc.0.self.5"]
    with pytest.raises(GlassError, match=r"no head 'enc\.0\.self\.3'") as caught:
        find_head(small, "enc.0.self.3")
    assert "enc.0.self.2, enc.0.self.4, enc.0.self.5, enc.1.self.0 to enc.1.self.5" in caught.value.remedy
    found = trace(small, tokens(1, 7), tokens(1, 5, seed=1)).stack.blocks[0]
    assert found.attention.heads == (1, 2, 3)
    assert found.cross is not None
    assert found.cross.heads == (0, 2, 3)


@pytest.mark.parametrize(("kv_heads", "optimizer"), [(2, "adamw"), (3, "muon")])
def test_remaining_weights_are_trained(kv_heads: int, optimizer: Literal["adamw", "muon"]) -> None:
    """Every weight changes, except the norm before an attention layer without heads."""
    model = build_model(tiny(removed_heads=some_heads("decoder"), qk_norm="head", kv_heads=kv_heads), VOCAB, seed=1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizers = make_optimizers(model, TrainConfig(optimizer=optimizer, weight_decay=0.0))
    for _ in range(2):
        model(tokens(2, 13)).logsumexp(dim=-1).mean().backward()
        for each in optimizers:
            each.step()
    for name, value in model.state_dict().items():
        assert torch.isfinite(value).all(), name
        still = value.numel() == 0 or name == "stack.blocks.1.attention_norm.weight"
        assert torch.equal(value, before[name]) == still, name
    headless = model.stack.blocks[1].attention  # type: ignore[union-attr]
    assert isinstance(headless, PrunedAttention)
    assert all(getattr(headless, part).weight.grad is None for part in ("query", "key", "value"))
