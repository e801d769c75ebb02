"""Invariants of the encoder and the encoder-decoder: visibility, and no effect of padding and batch."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.property.models import POSITIONS, VOCAB, as_if_trained, encoder, encoder_decoder, kinds, named, tiny, tokens


def padded(rows: list[Tensor], width: int, side: str, filler: int) -> tuple[Tensor, Tensor]:
    """Return rows (1, n) padded on one side to ids (B, width), with their attention mask (B, width)."""
    ids = torch.full((len(rows), width), filler)
    real = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        n = row.shape[1]
        part = slice(width - n, width) if side == "left" else slice(0, n)
        ids[i, part] = row[0]
        real[i, part] = True
    return ids, real


def other(ids: Tensor, row: int, place: int) -> Tensor:
    """Return the ids with one token changed."""
    changed = ids.clone()
    changed[row, place] = (changed[row, place] + 1) % VOCAB
    return changed


# ---- encoder


@pytest.mark.parametrize(
    ("kind", "side", "window"), list(product(kinds("encoder"), ["left", "right"], [None, 3])), ids=named
)
def test_encoder_padding_and_batch_have_no_effect(kind: dict[str, Any], side: str, window: int | None) -> None:
    model = encoder(**{"kv_heads": 2, **kind}, window=window)
    rows = [tokens(1, n, seed=n) for n in (13, 1, 7)]
    outputs = []
    for filler in (0, 5):
        ids, real = padded(rows, 17, side, filler)
        outputs.append(model(ids, real)[real])
    assert torch.equal(outputs[0], outputs[1])
    alone = torch.cat([model(row)[0] for row in rows])
    assert alone.std() > 0.3
    torch.testing.assert_close(outputs[0], alone, atol=1e-5, rtol=0)


@settings(max_examples=12)
@given(positions=st.sampled_from(POSITIONS), left=st.integers(0, 5), right=st.integers(0, 5), filler=st.integers(0, 30))
def test_encoder_padding_on_both_sides_has_no_effect(positions: str, left: int, right: int, filler: int) -> None:
    model = encoder(positions=positions)
    row = tokens(1, 11)
    ids = torch.full((1, left + 11 + right), filler)
    ids[:, left : left + 11] = row
    real = torch.zeros_like(ids, dtype=torch.bool)
    real[:, left : left + 11] = True
    torch.testing.assert_close(model(ids, real)[real], model(row)[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("positions", POSITIONS)
def test_every_token_of_an_encoder_sees_both_sides(positions: str) -> None:
    model = encoder(positions=positions)
    before = tokens(2, 13)
    for place in (0, 6, 12):
        changed = (model(before) - model(other(before, 0, place))).abs().amax(dim=2)  # (B, T)
        assert (changed[0] > 1e-5).all()
        assert (changed[1] == 0).all()


def test_an_encoder_window_is_symmetric() -> None:
    """One layer with window 3 attends to the token itself and to two tokens on each side."""
    model = encoder(positions="none", window=3, layers=1)
    before = tokens(1, 13)
    changed = (model(before) - model(other(before, 0, 6))).abs().amax(dim=2)[0]
    assert (changed > 0).nonzero().flatten().tolist() == [4, 5, 6, 7, 8]


def test_an_encoder_without_positions_ignores_the_order() -> None:
    model = encoder(positions="none").double()
    ids = tokens(3, 13)
    order = torch.randperm(13, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(model(ids[:, order]), model(ids)[:, order], atol=1e-12, rtol=0)


@pytest.mark.parametrize("positions", [name for name in POSITIONS if name != "none"])
def test_an_encoder_with_positions_depends_on_the_order(positions: str) -> None:
    """The previous test can fail: with positions, swapped tokens give different logits."""
    model = encoder(positions=positions)
    ids = tokens(1, 13)
    order = torch.tensor([0, 7, 2, 3, 4, 5, 6, 1, 8, 9, 10, 11, 12])
    assert (model(ids[:, order]) - model(ids)[:, order]).abs().max() > 1e-3


def test_an_encoder_that_is_given_only_padding_stays_finite() -> None:
    model = as_if_trained(tiny(family="encoder")).requires_grad_(True)
    real = torch.ones(2, 7, dtype=torch.bool)
    real[1] = False
    logits = model(tokens(2, 7), real)
    logits.square().sum().backward()
    assert torch.isfinite(logits).all()
    assert all(torch.isfinite(each.grad).all() for each in model.parameters() if each.grad is not None)


# ---- encoder-decoder


@pytest.mark.parametrize(("kind", "window"), list(product(kinds("encoder-decoder"), [None, 5])), ids=named)
def test_a_target_token_never_changes_what_comes_before_it(kind: dict[str, Any], window: int | None) -> None:
    model = encoder_decoder(**{"kv_heads": 3, **kind}, window=window)
    source = tokens(2, 11, seed=1)
    target = tokens(2, 17, seed=2)
    changed = (model(source, target) - model(source, other(target, 0, 7))).abs().amax(dim=2)  # (B, T)
    assert (changed[0, :7] == 0).all()
    assert (changed[0, 7:12] > 1e-5).all()
    assert (changed[1] == 0).all()


@pytest.mark.parametrize(("kind", "side"), list(product(kinds("encoder-decoder"), ["left", "right"])), ids=named)
def test_source_and_target_padding_and_batch_have_no_effect(kind: dict[str, Any], side: str) -> None:
    model = encoder_decoder(**{"kv_heads": 1, **kind})
    sources = [tokens(1, n, seed=n) for n in (11, 2, 5)]
    targets = [tokens(1, n, seed=20 + n) for n in (3, 13, 7)]
    outputs = []
    for filler in (0, 9):
        source, real_source = padded(sources, 13, side, filler)
        target, real_target = padded(targets, 17, "right", filler)
        outputs.append(model(source, target, real_source)[real_target])
    assert torch.equal(outputs[0], outputs[1])
    alone = torch.cat([model(source, target)[0] for source, target in zip(sources, targets, strict=True)])
    assert alone.std() > 0.3
    torch.testing.assert_close(outputs[0], alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("positions", POSITIONS)
def test_every_target_token_sees_every_source_token(positions: str) -> None:
    model = encoder_decoder(positions=positions)
    source = tokens(2, 11, seed=1)
    target = tokens(2, 7, seed=2)
    for place in (0, 5, 10):
        changed = (model(source, target) - model(other(source, 0, place), target)).abs().amax(dim=2)  # (B, T)
        assert (changed[0] > 1e-5).all()
        assert (changed[1] == 0).all()


def test_a_source_of_only_padding_gives_finite_logits_and_gradients() -> None:
    model = as_if_trained(tiny(family="encoder-decoder")).requires_grad_(True)
    source = tokens(2, 11, seed=1)
    target = tokens(2, 7, seed=2)
    real = torch.ones(2, 11, dtype=torch.bool)
    real[1] = False
    logits = model(source, target, real)
    logits.square().sum().backward()
    assert torch.isfinite(logits).all()
    assert all(torch.isfinite(each.grad).all() for each in model.parameters() if each.grad is not None)
    with torch.no_grad():
        assert torch.equal(logits[1], model(other(source, 1, 3), target, real)[1])


def test_source_and_target_may_have_any_lengths() -> None:
    model = encoder_decoder(positions="relative")
    for source, target in ((1, 1), (1, 23), (29, 1), (29, 29)):
        assert model(tokens(2, source), tokens(2, target)).shape == (2, target, VOCAB)


# ---- precision


@pytest.mark.parametrize(("family", "norm"), list(product(["encoder", "encoder-decoder"], ["layernorm", "rmsnorm"])))
def test_norms_keep_their_precision_under_autocast(family: str, norm: str) -> None:
    """Inputs and outputs of norms are float32 for every `norm_order`, although the module before returns bfloat16."""
    seen: list[torch.dtype] = []
    for kind in kinds(family):
        model = as_if_trained(tiny(**{"family": family, "norm": norm, **kind}))
        for part in model.modules():
            if isinstance(part, nn.LayerNorm | nn.RMSNorm):
                part.register_forward_hook(lambda _, given, result: seen.extend((given[0].dtype, result.dtype)))
        with torch.autocast("cpu", torch.bfloat16):
            model(*[tokens(2, 7, seed=each) for each in range(1 + (family == "encoder-decoder"))])
    assert set(seen) == {torch.float32}
