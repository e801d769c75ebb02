"""Masks of self-attention compared with their definition at each position, and full attention without a mask."""

from __future__ import annotations

import math

import pytest
import torch

from glassformer.model.attention import Mask, self_attention_mask


def shown(mask: Mask, rows: int, T: int) -> torch.Tensor:
    """Return the visible keys of each query, (B, T, T); queries without allowed keys see nothing."""
    allowed = mask.allowed_tensor(torch.zeros(rows, 1, T, T)).expand(rows, 1, T, T)
    return (allowed if mask.fully_masked is None else allowed & ~mask.fully_masked)[:, 0]


@pytest.mark.parametrize("window", [None, 1, 3, 7, 50])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_each_position_sees_what_the_definition_says(causal: bool, window: int | None, padded: bool) -> None:
    T = 7
    real = torch.ones(3, 7, dtype=torch.bool)
    if padded:
        real[1, 4:] = False
        real[2] = False
    places = torch.arange(T).repeat(3, 1)
    mask = self_attention_mask(places, places, real if padded else None, causal, window)
    for row, q, k in torch.cartesian_prod(torch.arange(3), torch.arange(T), torch.arange(T)).tolist():
        near = abs(q - k) < (window or math.inf)
        assert bool(shown(mask, 3, T)[row, q, k]) == (near and bool(real[row, k]) and (k <= q or not causal))


def test_full_attention_needs_no_mask_of_queries_by_keys() -> None:
    places = torch.arange(1013)[None]
    real = torch.ones(2, 1013, dtype=torch.bool)
    masks = [self_attention_mask(places, places, None, causal, None) for causal in (True, False)]
    masks.append(self_attention_mask(places, places, real, causal=False, window=None))
    tensors = [each for mask in masks for each in (mask.allowed, mask.fully_masked, mask.bias) if each is not None]
    assert tensors
    assert max(each.numel() for each in tensors) == real.numel()


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_a_bias_does_not_change_the_mask(causal: bool, window: int | None, padded: bool) -> None:
    places = torch.arange(7).repeat(2, 1)
    real = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    plain = self_attention_mask(places, places, real if padded else None, causal, window)
    biased = plain.with_bias(torch.ones(1, 3, 7, 7))
    assert torch.equal(shown(biased, 2, 7), shown(plain, 2, 7))
    assert biased.bias is not None
    hidden = ~plain.allowed_tensor(biased.bias).expand(2, 1, 7, 7)
    assert torch.equal(biased.bias[:, :1].isneginf().expand(2, 1, 7, 7), hidden)
