"""Embedding and stack of blocks, with the positions and masks that the blocks share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from glassformer.numpy_reference.arrays import Array, Bools, Ints, Weights, under, with_prefix
from glassformer.numpy_reference.attention import self_allowed
from glassformer.numpy_reference.block import BlockContext, NumpyBlock, block, block_backward
from glassformer.numpy_reference.linear import look_up_backward
from glassformer.numpy_reference.norms import NumpyNorm, norm, norm_backward
from glassformer.numpy_reference.positions import (
    position_vectors,
    relative_bias_backward,
    rotation,
    score_bias,
    token_positions,
)

if TYPE_CHECKING:
    from glassformer.base.config import ModelConfig


class NumpyEmbedding(NamedTuple):
    """Values saved by `embed` for the backward pass."""

    tokens: Ints  # (B, T)
    positions: Ints  # (B, T)
    scale: float
    norm: NumpyNorm | None
    weights: Weights


def embed(tokens: Ints, positions: Ints, weights: Weights, settings: ModelConfig) -> tuple[Array, NumpyEmbedding]:
    """Return x = scale · E[token] + P[position], with scale √D or 1 (Vaswani et al. 2017, sections 3.4 and 3.5).

    P is learned (Gehring et al. 2017, section 3.1), sinusoidal, or absent for other position methods. A norm may follow
    (Devlin et al. 2019).

    tokens, positions: (B, T) -> (B, T, D).
    """
    scale = math.sqrt(settings.width) if settings.embedding_scale else 1.0
    x = weights["tokens.weight"][tokens] * scale  # (B, T, D)
    added = position_vectors(positions, weights, settings)  # (B, T, D)
    if added is not None:
        x = x + added  # (B, T, D)
    saved_norm = None
    if settings.embedding_norm:
        x, saved_norm = norm(x, under("norm", weights), settings.norm, settings.eps)  # (B, T, D)
    return x, NumpyEmbedding(tokens, positions, scale, saved_norm, weights)


def embed_backward(dx: Array, saved: NumpyEmbedding) -> dict[str, Array]:
    """Return the gradients of the embedding's weights: dE[token] += scale · dx and dP[position] += dx."""
    token_table = saved.weights["tokens.weight"]  # (V, D)
    gradients: dict[str, Array] = {}
    if saved.norm is not None:
        dx, norm_gradients = norm_backward(dx, saved.norm)  # (B, T, D)
        gradients = with_prefix("norm", norm_gradients)
    gradients["tokens.weight"] = look_up_backward(dx * saved.scale, saved.tokens, token_table)  # (V, D)
    if "positions.table.weight" in saved.weights:
        position_table = saved.weights["positions.table.weight"]  # (context, D)
        gradients["positions.table.weight"] = look_up_backward(dx, saved.positions, position_table)  # (context, D)
    return gradients


class NumpyStack(NamedTuple):
    """Values saved by `stack` for the backward pass."""

    embedding: NumpyEmbedding
    blocks: list[NumpyBlock]
    norm: NumpyNorm | None
    buckets: Ints | None  # (B, T, T) of relative positions
    weights: Weights


def stack(
    tokens: Ints,
    attention_mask: Bools,
    embedding: Weights,
    weights: Weights,
    settings: ModelConfig,
    causal: bool,
    memory: Array | None = None,
    memory_attention_mask: Bools | None = None,
) -> tuple[Array, NumpyStack]:
    """Run the embedding, L blocks, and a final norm unless `norm_order` is post.

    Args:
        tokens: (B, T) ids.
        attention_mask: (B, T) bool, False at padding, which may be on either side and is not counted in positions.
        embedding, weights: weights of the embedding and of the stack.
        settings: model settings.
        causal: whether a token attends only to itself and earlier tokens (decoder), or to both sides (encoder).
        memory: (B, S, D) encoder output for cross-attention; None in a stack without cross-attention.
        memory_attention_mask: (B, S) bool, False at padding of the memory.

    Returns:
        Hidden states (B, T, D), and the values for the backward pass.
    """
    positions = token_positions(attention_mask)  # (B, T)
    relative_positions = positions[:, :, None] - positions[:, None, :]  # (B, T, T)
    bias, buckets = score_bias(relative_positions, weights, settings, causal)  # (B, H, T, T)
    angles = None
    if settings.positions == "rotary":
        angles = rotation(positions, settings.K, settings.rotary_base)  # (B, 1, T, K)
    allowed = self_allowed(positions, attention_mask, causal, settings.window)  # (B, 1, T, T)
    memory_allowed = None if memory_attention_mask is None else memory_attention_mask[:, None, None, :]  # (B, 1, 1, S)
    shared = BlockContext(allowed, bias, angles, memory, memory_allowed)
    x, saved_embedding = embed(tokens, positions, embedding, settings)  # (B, T, D)
    blocks: list[NumpyBlock] = []
    while block_weights := under(f"blocks.{len(blocks)}", weights):
        site = f"{'dec' if causal else 'enc'}.{len(blocks)}"
        x, saved_block = block(x, block_weights, settings, shared, site)  # (B, T, D)
        blocks.append(saved_block)
    saved_norm = None
    if settings.norm_order != "post":
        x, saved_norm = norm(x, under("norm", weights), settings.norm, settings.eps)  # (B, T, D)
    return x, NumpyStack(saved_embedding, blocks, saved_norm, buckets, weights)


class StackGradients(NamedTuple):
    """Gradients of the embedding's weights, the stack's weights and the memory."""

    embedding: dict[str, Array]
    stack: dict[str, Array]
    memory: Array | None  # (B, S, D) sum over all layers


def stack_backward(dx: Array, saved: NumpyStack) -> StackGradients:
    """Return the gradients of embedding, stack and memory; those of score bias and memory are sums over all layers."""
    gradients: dict[str, Array] = {}
    if saved.norm is not None:
        dx, norm_gradients = norm_backward(dx, saved.norm)  # (B, T, D)
        gradients |= with_prefix("norm", norm_gradients)
    dbias = np.zeros(())
    dmemory = None
    for index in reversed(range(len(saved.blocks))):
        dinputs, block_gradients = block_backward(dx, saved.blocks[index])
        gradients |= with_prefix(f"blocks.{index}", block_gradients)
        dx = dinputs.x  # (B, T, D)
        dbias = dbias if dinputs.bias is None else dbias + dinputs.bias  # (B, H, T, T)
        if dinputs.memory is not None:
            dmemory = dinputs.memory if dmemory is None else dmemory + dinputs.memory  # (B, S, D)
    if saved.buckets is not None:
        name = "score_positions.table.weight"
        gradients[name] = relative_bias_backward(dbias, saved.buckets, saved.weights[name])  # (buckets, H)
    return StackGradients(embed_backward(dx, saved.embedding), gradients, dmemory)
