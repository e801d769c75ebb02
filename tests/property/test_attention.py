"""attend(): the explicit and the fused path agree, masked weights are exactly zero, everything is finite."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.model.attention import EXPLICIT_BF16_TOKENS, Mask, attend


def random_mask(kind: str, T: int, S: int, heads: int, seed: int) -> Mask:
    generator = torch.Generator().manual_seed(seed)
    allowed = torch.rand(2, 1, T, S, generator=generator) < 0.5
    mask = Mask.of(allowed) if kind in ("holes", "holes+bias") else Mask(is_causal=kind == "causal")
    return mask.with_bias(torch.randn(2, heads, T, S, generator=generator)) if "bias" in kind else mask


@settings(max_examples=60)
@given(
    kind=st.sampled_from(["everything", "causal", "holes", "holes+bias", "everything+bias"]),
    groups=st.sampled_from([(6, 6), (6, 2), (6, 1)]),
    T=st.sampled_from([1, 3, 7]),
    extra=st.sampled_from([0, 4]),
    widths=st.sampled_from([(5, 5), (4, 8), (8, 3)]),
    seed=st.integers(0, 1000),
)
def test_fused_and_explicit_agree_forward_and_backward(
    kind: str, groups: tuple[int, int], T: int, extra: int, widths: tuple[int, int], seed: int
) -> None:
    (H, G) = groups
    (K, KV) = widths
    S = T if kind == "causal" else T + extra
    generator = torch.Generator().manual_seed(seed)
    shapes = [(2, H, T, K), (2, G, S, K), (2, G, S, KV)]
    parts = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    mask = random_mask(kind, T, S, H, seed)
    mask = mask if mask.bias is None else Mask(mask.allowed, mask.is_causal, mask.fully_masked, mask.bias.double())
    results = []
    for explicit in (False, True):
        q, k, v = (part.clone().requires_grad_() for part in parts)
        out, weights = attend(q, k, v, mask, explicit=explicit)
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
        assert (weights is not None) == explicit
        results.append([out.detach(), q.grad, k.grad, v.grad])
    for fused, plain in zip(*results, strict=True):
        assert torch.isfinite(fused).all()
        torch.testing.assert_close(fused, plain, atol=1e-10, rtol=0)


@pytest.mark.parametrize("kind", ["everything", "causal", "holes", "holes+bias", "everything+bias"])
@pytest.mark.parametrize(("T", "heads"), [(7, 1), (7, 6), (EXPLICIT_BF16_TOKENS, 2), (EXPLICIT_BF16_TOKENS + 3, 2)])
def test_bfloat16_on_the_cpu_is_correct_for_short_and_long_sequences(kind: str, T: int, heads: int) -> None:
    """Test both sides of `EXPLICIT_BF16_TOKENS`: longer sequences use the fused kernel instead of the explicit path."""
    generator = torch.Generator().manual_seed(T)
    q, k, v = (torch.randn(2, n, T, 8, generator=generator, dtype=torch.bfloat16) for n in (6, heads, heads))
    mask = random_mask(kind, T, T, 6, seed=3)
    precise = mask if mask.bias is None else Mask(mask.allowed, mask.is_causal, mask.fully_masked, mask.bias.double())
    upstream = torch.randn(2, 6, T, 8, generator=generator, dtype=torch.bfloat16).double()
    results = []
    for parts, how in (((q.double(), k.double(), v.double()), precise), ((q, k, v), mask)):
        own = [part.clone().requires_grad_() for part in parts]
        out, weights = attend(*own, how)
        assert weights is None
        assert out.dtype == parts[0].dtype
        (out.double() * upstream).sum().backward()
        results.append([out.detach(), *(part.grad for part in own)])
    for found, wanted in zip(results[1], results[0], strict=True):
        assert found is not None
        assert wanted is not None
        assert (found.double() - wanted).norm() < 0.03 * wanted.norm()  # weights, values and sums have 8 bits


def test_hidden_weights_are_exact_zeros_and_rows_sum_to_one() -> None:
    q = torch.full((1, 2, 5, 3), 1e5)
    k = torch.randn(1, 2, 5, 3)
    out, weights = attend(q, k, k, Mask(is_causal=True), explicit=True)
    assert weights is not None
    assert (weights.triu(1) == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 5))
    assert torch.isfinite(out).all()


@pytest.mark.parametrize("explicit", [False, True])
def test_a_fully_masked_query_gets_zeros_and_finite_gradients(explicit: bool) -> None:
    allowed = torch.ones(2, 1, 3, 5, dtype=torch.bool)
    allowed[1, :, 2] = False
    q, k, v = (torch.randn(2, 4, n, 7, requires_grad=True) for n in (3, 5, 5))
    out, _ = attend(q, k, v, Mask.of(allowed), explicit=explicit)
    assert (out[1, :, 2] == 0).all()
    assert (out[0] != 0).any()
    out.square().sum().backward()
    assert all(torch.isfinite(part.grad).all() for part in (q, k, v) if part.grad is not None)


def test_dropout_acts_on_both_paths() -> None:
    q = torch.randn(1, 2, 6, 4)
    for explicit in (False, True):
        torch.manual_seed(0)
        dropped, _ = attend(q, q, q, Mask(), dropout=0.5, explicit=explicit)
        plain, _ = attend(q, q, q, Mask(), explicit=explicit)
        assert not torch.allclose(dropped, plain)
