"""A stack of blocks with what they share, and the embedding below it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from glassformer.numpy_reference.arrays import Array, Bools, Ints, Weights, placed, under
from glassformer.numpy_reference.attention import self_allowed
from glassformer.numpy_reference.block import BlockContext, NumpyBlock, block, block_backward
from glassformer.numpy_reference.linear import look_up_backward
from glassformer.numpy_reference.norms import NumpyNorm, norm, norm_backward
from glassformer.numpy_reference.positions import (
    position_vectors,
    relative_bias_backward,
    rotation,
    score_bias,
    token_places,
)
from glassformer.numpy_reference.settings import Settings


class NumpyEmbedding(NamedTuple):
    """Values saved by `embed` for the backward pass."""

    tokens: Ints  # (B, T)
    places: Ints  # (B, T)
    scale: float
    norm: NumpyNorm | None
    weights: Weights


def embed(tokens: Ints, places: Ints, weights: Weights, settings: Settings) -> tuple[Array, NumpyEmbedding]:
    """x = scale · E[token] + P[place], the scale √D or 1 (Vaswani et al. 2017, sections 3.4 and 3.5).

    P is learned (Gehring et al. 2017, section 3.1) or made of waves, or absent where places come in elsewhere. A norm
    may follow (Devlin et al. 2019).

    tokens, places: (B, T) -> (B, T, D).
    """
    scale = math.sqrt(settings.width) if settings.embedding_scale else 1.0
    x = weights["tokens.weight"][tokens] * scale  # (B, T, D)
    added = position_vectors(places, weights, settings)  # (B, T, D)
    if added is not None:
        x = x + added  # (B, T, D)
    last = None
    if settings.embedding_norm:
        x, last = norm(x, under("norm", weights), settings.norm, settings.eps)  # (B, T, D)
    return x, NumpyEmbedding(tokens, places, scale, last, weights)


def embed_backward(dx: Array, kept: NumpyEmbedding) -> dict[str, Array]:
    """Only rows that were used get a gradient: of tokens dE[token] += scale · dx, of places dP[place] += dx."""
    table = kept.weights["tokens.weight"]  # (V, D)
    gradients: dict[str, Array] = {}
    if kept.norm is not None:
        dx, gain = norm_backward(dx, kept.norm)  # (B, T, D)
        gradients = placed("norm", gain)
    gradients["tokens.weight"] = look_up_backward(dx * kept.scale, kept.tokens, table)  # (V, D)
    if "positions.table.weight" in kept.weights:
        places = kept.weights["positions.table.weight"]  # (C, D)
        gradients["positions.table.weight"] = look_up_backward(dx, kept.places, places)  # (C, D)
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
    real: Bools,
    embedding: Weights,
    weights: Weights,
    settings: Settings,
    causal: bool,
    memory: Array | None = None,
    real_memory: Bools | None = None,
) -> tuple[Array, NumpyStack]:
    """Embed, then L blocks, then the last norm, unless each block ends with one.

    Args:
        tokens: (B, T).
        real: (B, T) False at padding, on either side. Places count real tokens only.
        embedding, weights: of the embedding and of the stack.
        settings: of the model.
        causal: a decoder's; an encoder's looks both ways.
        memory: (B, S, D) for cross-attention, with `real_memory` (B, S).

    Returns:
        (B, T, D), and what the backward pass needs.
    """
    places = token_places(real)  # (B, T)
    back = places[:, :, None] - places[:, None, :]  # (B, T, T)
    bias, buckets = score_bias(back, weights, settings, causal)  # (B, H, T, T)
    turn = None
    if settings.positions == "rotary":
        turn = rotation(places, settings.K, settings.rotary_base)  # (B, 1, T, K)
    allowed = self_allowed(places, real, causal, settings.window)  # (B, 1, T, T)
    seen = None if real_memory is None else real_memory[:, None, None, :]  # (B, 1, 1, S)
    view = BlockContext(allowed, bias, turn, memory, seen)
    x, kept_embedding = embed(tokens, places, embedding, settings)  # (B, T, D)
    blocks: list[NumpyBlock] = []
    while own := under(f"blocks.{len(blocks)}", weights):
        site = f"{'dec' if causal else 'enc'}.{len(blocks)}"
        x, kept = block(x, own, settings, view, site)  # (B, T, D)
        blocks.append(kept)
    last = None
    if settings.norm_order != "post":
        x, last = norm(x, under("norm", weights), settings.norm, settings.eps)  # (B, T, D)
    return x, NumpyStack(kept_embedding, blocks, last, buckets, weights)


class StackGradients(NamedTuple):
    """Gradients of the embedding, the weights of the stack and the memory."""

    embedding: dict[str, Array]
    stack: dict[str, Array]
    memory: Array | None  # (B, S, D) the sum over the layers, all of which look at it


def stack_backward(dx: Array, kept: NumpyStack) -> StackGradients:
    """From the last norm to the embedding; the bias and the memory, shared by all layers, get the sum over them."""
    gradients: dict[str, Array] = {}
    if kept.norm is not None:
        dx, gain = norm_backward(dx, kept.norm)  # (B, T, D)
        gradients |= placed("norm", gain)
    dbias = np.zeros(())
    dmemory = None
    for index in reversed(range(len(kept.blocks))):
        flow, own = block_backward(dx, kept.blocks[index])
        gradients |= placed(f"blocks.{index}", own)
        dx = flow.x  # (B, T, D)
        dbias = dbias if flow.bias is None else dbias + flow.bias  # (B, H, T, T)
        if flow.memory is not None:
            dmemory = flow.memory if dmemory is None else dmemory + flow.memory  # (B, S, D)
    if kept.buckets is not None:
        name = "score_positions.table.weight"
        gradients[name] = relative_bias_backward(dbias, kept.buckets, kept.weights[name])  # (buckets, H)
    return StackGradients(embed_backward(dx, kept.embedding), gradients, dmemory)
