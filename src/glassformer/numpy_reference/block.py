"""Transformer block: self-attention, optional cross-attention and feed-forward layer, with residual connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from glassformer.numpy_reference.arrays import Array, Bools, Weights, under, with_prefix
from glassformer.numpy_reference.attention import NumpyAttention, attention, attention_backward
from glassformer.numpy_reference.feedforward import NumpyFeedForward, feedforward, feedforward_backward
from glassformer.numpy_reference.norms import NumpyNorm, norm, norm_backward
from glassformer.numpy_reference.positions import RotaryAngles

if TYPE_CHECKING:
    from glassformer.base.config import ModelConfig


class BlockContext(NamedTuple):
    """Inputs of one forward pass that all blocks share: masks, bias, rotary angles and memory."""

    allowed: Bools  # (B, 1, T, T) mask of self-attention
    bias: Array | None = None  # (B, H, T, T) score bias of self-attention
    rotation: RotaryAngles | None = None  # used in self-attention
    memory: Array | None = None  # (B, S, D) encoder output that cross-attention reads
    memory_allowed: Bools | None = None  # (B, 1, 1, S) mask of cross-attention


class BlockGradients(NamedTuple):
    """Gradients of the inputs of a block or of one of its parts; None for an input that it does not have."""

    x: Array  # (B, T, D)
    bias: Array | None = None  # (B, H, T, T)
    memory: Array | None = None  # (B, S, D)


Part = NumpyAttention | NumpyFeedForward


def part(
    name: str, x: Array, weights: Weights, settings: ModelConfig, shared: BlockContext, site: str
) -> tuple[Array, Part]:
    """Run one part of a block, "attention", "cross" or "feedforward", without its norm: (B, T, D) -> (B, T, D)."""
    part_weights = under(name, weights)
    if name == "feedforward":
        return feedforward(x, part_weights, settings.activation)
    if name == "attention":
        return attention(x, x, part_weights, settings, f"{site}.self", shared.allowed, shared.bias, shared.rotation)
    if shared.memory is None or shared.memory_allowed is None:
        raise ValueError("cross-attention needs a memory")
    return attention(x, shared.memory, part_weights, settings, f"{site}.cross", shared.memory_allowed)


def part_backward(name: str, dy: Array, saved: Part) -> tuple[BlockGradients, dict[str, Array]]:
    """Return the gradients of a part's inputs and weights; in self-attention, dx includes dsource."""
    if isinstance(saved, NumpyFeedForward):
        dx, gradients = feedforward_backward(dy, saved)  # (B, T, D)
        return BlockGradients(dx), with_prefix(name, gradients)
    dx, dsource, dbias, gradients = attention_backward(dy, saved)
    if name == "attention":
        return BlockGradients(dx + dsource, bias=dbias), with_prefix(name, gradients)
    return BlockGradients(dx, memory=dsource), with_prefix(name, gradients)


class Residual(NamedTuple):
    """Values saved for the backward pass of one part with its norm and residual connection."""

    name: str
    part: Part
    norm: NumpyNorm


class NumpyBlock(NamedTuple):
    """Values saved by `block` for the backward pass."""

    order: str
    residuals: list[Residual]


def block(
    x: Array, weights: Weights, settings: ModelConfig, shared: BlockContext, site: str
) -> tuple[Array, NumpyBlock]:
    """Run a block: each part f returns x + f(norm(x)), norm(x + f(x)) or x + norm(f(x)), depending on `norm_order`.

    These are pre-norm (Xiong et al. 2020), post-norm (Vaswani et al. 2017) and output norm (Team OLMo 2025).

    x: (B, T, D) -> (B, T, D). `site` is the name of the block, such as `dec.0`.
    """
    names = ["attention", "feedforward"] if shared.memory is None else ["attention", "cross", "feedforward"]
    residuals = []
    for name in names:
        gain = under(f"{name}_norm", weights)
        if settings.norm_order == "pre":
            normed, saved_norm = norm(x, gain, settings.norm, settings.eps)  # (B, T, D)
            added, saved_part = part(name, normed, weights, settings, shared, site)  # (B, T, D)
            x = x + added  # (B, T, D)
        elif settings.norm_order == "output":
            y, saved_part = part(name, x, weights, settings, shared, site)  # (B, T, D)
            added, saved_norm = norm(y, gain, settings.norm, settings.eps)  # (B, T, D)
            x = x + added  # (B, T, D)
        else:
            added, saved_part = part(name, x, weights, settings, shared, site)  # (B, T, D)
            x, saved_norm = norm(x + added, gain, settings.norm, settings.eps)  # (B, T, D)
        residuals.append(Residual(name, saved_part, saved_norm))
    return x, NumpyBlock(settings.norm_order, residuals)


def block_backward(dx: Array, saved: NumpyBlock) -> tuple[BlockGradients, dict[str, Array]]:
    """Return the gradients of a block's inputs and weights; the gradient of x + f(x) is the sum over both branches."""
    gradients: dict[str, Array] = {}
    dbias = None
    dmemory = None
    for name, saved_part, saved_norm in reversed(saved.residuals):
        if saved.order == "pre":
            dinputs, part_gradients = part_backward(name, dx, saved_part)
            dnormed, norm_gradients = norm_backward(dinputs.x, saved_norm)  # (B, T, D)
            dx = dx + dnormed  # (B, T, D)
        elif saved.order == "output":
            dy, norm_gradients = norm_backward(dx, saved_norm)  # (B, T, D)
            dinputs, part_gradients = part_backward(name, dy, saved_part)
            dx = dx + dinputs.x  # (B, T, D)
        else:
            dsum, norm_gradients = norm_backward(dx, saved_norm)  # (B, T, D)
            dinputs, part_gradients = part_backward(name, dsum, saved_part)
            dx = dsum + dinputs.x  # (B, T, D)
        gradients |= part_gradients | with_prefix(f"{name}_norm", norm_gradients)
        dbias = dbias if dinputs.bias is None else dinputs.bias  # only self-attention has a bias
        dmemory = dmemory if dinputs.memory is None else dinputs.memory  # only cross-attention has a memory
    return BlockGradients(dx, dbias, dmemory), gradients
