"""Parts removed from a model are gone, and everything else is unchanged."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from glassformer.experiments.part_removal import ALTERATIONS, BareBlock
from glassformer.model.transformer import Block, Decoder, Model
from tests.property.models import as_if_trained, tiny, tokens


def altered(part: str, **changes: object) -> Model:
    model = as_if_trained(tiny(**changes))
    ALTERATIONS[part].apply(model)
    return model.eval()


def test_without_a_mask_a_token_sees_later_tokens() -> None:
    ids = tokens(2, 13)
    other = ids.clone()
    other[:, -1] = (other[:, -1] + 1) % 31
    whole = as_if_trained(tiny())
    open_ = altered("causal-mask")
    assert torch.equal(whole(ids)[:, :-1], whole(other)[:, :-1])
    assert (open_(ids)[:, 0] - open_(other)[:, 0]).abs().amax() > 1e-3
    assert whole.state_dict().keys() == open_.state_dict().keys()


@pytest.mark.parametrize("norm_order", ["pre", "post", "output"])
def test_without_residuals_each_part_replaces_the_stream(norm_order: str) -> None:
    model = altered("residuals", norm_order=norm_order, layers=1)
    ids = tokens(2, 13)
    assert isinstance(model, Decoder)
    block = model.stack.blocks[0]
    assert isinstance(block, BareBlock)
    seen: list[Tensor] = []
    block.attention.register_forward_hook(lambda module, given, out: seen.append(out))
    logits = model(ids)  # (B, T, V)
    if norm_order == "pre":
        x = block.feedforward(block.feedforward_norm(seen[0]))  # (B, T, D)
    else:
        x = block.feedforward_norm(block.feedforward(block.attention_norm(seen[0])))  # (B, T, D)
    torch.testing.assert_close(logits, model.head(model.stack.norm(x), model.embedding))
    assert (logits - as_if_trained(tiny(norm_order=norm_order, layers=1))(ids)).abs().amax() > 1e-3


@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder-decoder"])
def test_every_family_keeps_its_parameters_without_residuals(family: str) -> None:
    model = altered("residuals", family=family)
    whole = as_if_trained(tiny(family=family))
    assert model.state_dict().keys() == whole.state_dict().keys()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), whole.parameters(), strict=True))
    given = (tokens(2, 13), tokens(2, 7)) if family == "encoder-decoder" else (tokens(2, 13),)
    assert torch.isfinite(model(*given)).all()


def test_without_feedforward_layers_only_attention_adds() -> None:
    model = altered("feedforward", layers=1)
    ids = tokens(2, 13)
    assert isinstance(model, Decoder)
    block = model.stack.blocks[0]
    assert isinstance(block, Block)
    added: list[Tensor] = []
    block.attention.register_forward_hook(lambda module, given, out: added.append(out))
    logits = model(ids)  # (B, T, V)
    x = model.embedding(ids, torch.arange(13)[None]) + added[0]  # (B, T, D)
    torch.testing.assert_close(logits, model.head(model.stack.norm(x), model.embedding))
    assert sum(p.numel() for p in model.parameters()) < sum(
        p.numel() for p in as_if_trained(tiny(layers=1)).parameters()
    )
