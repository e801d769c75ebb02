"""The block that all families are made of: self-attention, cross-attention, feed-forward, each added to the stream."""

from __future__ import annotations

from typing import NamedTuple

from glassformer.numpy_reference.arrays import Array, Bools, Weights, placed, under
from glassformer.numpy_reference.attention import NumpyAttention, attention, attention_backward
from glassformer.numpy_reference.feedforward import NumpyFeedForward, feedforward, feedforward_backward
from glassformer.numpy_reference.norms import NumpyNorm, norm, norm_backward
from glassformer.numpy_reference.positions import RotaryAngles
from glassformer.numpy_reference.settings import Settings


class BlockContext(NamedTuple):
    """Inputs of one forward pass that all blocks share: masks, bias, rotary angles and memory."""

    allowed: Bools  # (B, 1, T, T) of self-attention
    bias: Array | None = None  # (B, H, T, T) of self-attention
    rotation: RotaryAngles | None = None  # of self-attention
    memory: Array | None = None  # (B, S, D) what cross-attention looks at
    memory_allowed: Bools | None = None  # (B, 1, 1, S)


class BlockGradients(NamedTuple):
    """The gradients that leave a part or a block, besides those of its weights; None where it took no such input."""

    x: Array  # (B, T, D)
    bias: Array | None = None  # (B, H, T, T)
    memory: Array | None = None  # (B, S, D)


Part = NumpyAttention | NumpyFeedForward


def part(
    name: str, x: Array, weights: Weights, settings: Settings, view: BlockContext, site: str
) -> tuple[Array, Part]:
    """One of the three parts of a block, by its name; (B, T, D) -> (B, T, D)."""
    own = under(name, weights)
    if name == "feedforward":
        return feedforward(x, own, settings.activation)
    if name == "attention":
        return attention(x, x, own, settings, f"{site}.self", view.allowed, view.bias, view.rotation)
    if view.memory is None or view.memory_allowed is None:
        raise ValueError("cross-attention needs a memory to look at")
    return attention(x, view.memory, own, settings, f"{site}.cross", view.memory_allowed)


def part_backward(name: str, dy: Array, kept: Part) -> tuple[BlockGradients, dict[str, Array]]:
    """In self-attention x is also the source of keys and values, so both gradients add up."""
    if isinstance(kept, NumpyFeedForward):
        dx, gradients = feedforward_backward(dy, kept)  # (B, T, D)
        return BlockGradients(dx), placed(name, gradients)
    dx, dsource, dbias, gradients = attention_backward(dy, kept)
    if name == "attention":
        return BlockGradients(dx + dsource, bias=dbias), placed(name, gradients)
    return BlockGradients(dx, memory=dsource), placed(name, gradients)


class Residual(NamedTuple):
    """Values saved for the backward pass of one part, its norm and its residual connection."""

    name: str
    part: Part
    norm: NumpyNorm


class NumpyBlock(NamedTuple):
    """Values saved by `block` for the backward pass."""

    order: str
    residuals: list[Residual]


def block(x: Array, weights: Weights, settings: Settings, view: BlockContext, site: str) -> tuple[Array, NumpyBlock]:
    """For each part f: x + f(norm(x)), norm(x + f(x)) or x + norm(f(x)).

    Pre-norm: Xiong et al. 2020; post-norm: Vaswani et al. 2017; at the output: OLMo 2 (Team OLMo 2025).

    x: (B, T, D) -> (B, T, D). `site` names the block, `dec.0`.
    """
    names = ["attention", "feedforward"] if view.memory is None else ["attention", "cross", "feedforward"]
    residuals = []
    for name in names:
        gain = under(f"{name}_norm", weights)
        if settings.norm_order == "pre":
            normed, kept_norm = norm(x, gain, settings.norm, settings.eps)  # (B, T, D)
            added, kept_part = part(name, normed, weights, settings, view, site)  # (B, T, D)
            x = x + added  # (B, T, D)
        elif settings.norm_order == "output":
            written, kept_part = part(name, x, weights, settings, view, site)  # (B, T, D)
            added, kept_norm = norm(written, gain, settings.norm, settings.eps)  # (B, T, D)
            x = x + added  # (B, T, D)
        else:
            added, kept_part = part(name, x, weights, settings, view, site)  # (B, T, D)
            x, kept_norm = norm(x + added, gain, settings.norm, settings.eps)  # (B, T, D)
        residuals.append(Residual(name, kept_part, kept_norm))
    return x, NumpyBlock(settings.norm_order, residuals)


def block_backward(dx: Array, kept: NumpyBlock) -> tuple[BlockGradients, dict[str, Array]]:
    """The parts from the last to the first; of x + f(x) the gradient goes both past f and through it, and adds up."""
    gradients: dict[str, Array] = {}
    dbias = None
    dmemory = None
    for name, kept_part, kept_norm in reversed(kept.residuals):
        if kept.order == "pre":
            flow, own = part_backward(name, dx, kept_part)
            through, gain = norm_backward(flow.x, kept_norm)  # (B, T, D)
            dx = dx + through  # (B, T, D)
        elif kept.order == "output":
            dwritten, gain = norm_backward(dx, kept_norm)  # (B, T, D)
            flow, own = part_backward(name, dwritten, kept_part)
            dx = dx + flow.x  # (B, T, D)
        else:
            dsum, gain = norm_backward(dx, kept_norm)  # (B, T, D)
            flow, own = part_backward(name, dsum, kept_part)
            dx = dsum + flow.x  # (B, T, D)
        gradients |= own | placed(f"{name}_norm", gain)
        dbias = dbias if flow.bias is None else flow.bias  # one part has a bias, one a memory
        dmemory = dmemory if flow.memory is None else flow.memory
    return BlockGradients(dx, dbias, dmemory), gradients
