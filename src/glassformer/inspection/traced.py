"""What a trace holds: plain values, detached from the model. Letters as in `glassformer.base.shapes`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from glassformer.model.positions import Rotation


@dataclass(frozen=True, eq=False)
class AttentionTrace:
    """One attention layer. Query head h uses key and value head h // (H / G).

    Where heads were removed, H and G count those that are left, `heads` numbers them and `asks` says who uses which.

    Attributes:
        heads: (H) the number of each query head in the settings; 0 to H - 1 where none was removed.
        asks: (H) which of the G key and value heads each query head uses.
        input: (B, T, D) what the queries are made of.
        source: (B, S, D) what keys and values are made of: `input`, or the memory.
        q_projected, k_projected: (B, H, T, K) and (B, G, S, K) as they leave the projections.
        q_unturned, k_unturned: the same after qk-norm, where there is one, and before rotation.
        q, k, v: (B, H, T, K), (B, G, S, K), (B, G, S, K) as the attention uses them.
        rotation: what turned q and k; None where positions are not rotary, and in cross-attention.
        scaled: (B, H, T, S) q kᵀ / √K, at hidden keys too.
        bias: (B or 1, H, T, S) added to `scaled`, -inf where hidden; None: nothing is added.
        masked: (B, H, T, S) what the softmax reads: scaled + bias, -inf where the key is hidden from the query.
        allowed: (B, 1, T, S) bool; False: `masked` is -inf; of a layer without heads, as its mask says.
        pattern: (B, H, T, S) attention weights: softmax of `masked`; zeros where nothing is allowed.
        z: (B, H, T, K) pattern v.
        head_outputs: (B, H, T, D) what each head writes, computed from z: its part of the output projection.
        output_bias: (D,) of the output projection, or None.
        output: (B, T, D) the sum of `head_outputs` and `output_bias`, up to rounding.
    """

    heads: tuple[int, ...]
    asks: tuple[int, ...]
    input: Tensor
    source: Tensor
    q_projected: Tensor
    k_projected: Tensor
    q_unturned: Tensor
    k_unturned: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    rotation: Rotation | None
    scaled: Tensor
    bias: Tensor | None
    masked: Tensor
    allowed: Tensor
    pattern: Tensor
    z: Tensor
    head_outputs: Tensor
    output_bias: Tensor | None
    output: Tensor

    @property
    def scores(self) -> Tensor:
        """(B, H, T, S) q kᵀ: √K times `scaled`, because the model divides the queries by √K before they meet keys."""
        return self.scaled * math.sqrt(self.q.shape[-1])

    @property
    def weights(self) -> Tensor:
        """Another name of `pattern`."""
        return self.pattern

    @property
    def mixed(self) -> Tensor:
        """Another name of `z`."""
        return self.z


@dataclass(frozen=True, eq=False)
class FeedForwardTrace:
    """One feed-forward layer.

    Attributes:
        input: (B, T, D).
        up: (B, T, F) the first projection.
        gate: (B, T, F) the gate's projection; None where there is no gate.
        activated: (B, T, F) the activation of `gate`, or of `up` where there is none.
        hidden: (B, T, F) what the last projection reads: `activated`, times `up` where there is a gate.
        output: (B, T, D).
    """

    input: Tensor
    up: Tensor
    gate: Tensor | None
    activated: Tensor
    hidden: Tensor
    output: Tensor


@dataclass(frozen=True, eq=False)
class BlockTrace:
    """One block; all residuals and norms are (B, T, D).

    Attributes:
        order: for each part, "pre": after = before + part(norm(before)); "post": after = norm(before + part(before));
            "output": after = before + norm(part(before)).
        before: the residual stream that enters.
        attention_norm, cross_norm, feedforward_norm: what these norms gave; `cross_norm` may be None.
        attention: self-attention.
        after_attention: the residual stream after it.
        cross: attention to the memory, or None.
        after_cross: the residual stream after it, or None.
        feedforward: the feed-forward layer.
        after: the residual stream that leaves.
    """

    order: Literal["pre", "post", "output"]
    before: Tensor
    attention_norm: Tensor
    attention: AttentionTrace
    after_attention: Tensor
    cross_norm: Tensor | None
    cross: AttentionTrace | None
    after_cross: Tensor | None
    feedforward_norm: Tensor
    feedforward: FeedForwardTrace
    after: Tensor


@dataclass(frozen=True, eq=False)
class StackTrace:
    """An encoder or a decoder.

    Attributes:
        ids: (B, T).
        real: (B, T) bool, False at padding; None: all real.
        places: (B or 1, T) each token's position, counted from 0.
        token_vectors: (B, T, D) the embedding's rows, scaled where the setting says so.
        position_vectors: (B or 1, T, D) what is added to them; None where positions act elsewhere.
        embedded: (B, T, D) their sum.
        blocks: one for each layer.
        final: (B, T, D) after the final norm; of a post-norm stack, which has none, the last block's output.
    """

    ids: Tensor
    real: Tensor | None
    places: Tensor
    token_vectors: Tensor
    position_vectors: Tensor | None
    embedded: Tensor
    blocks: tuple[BlockTrace, ...]
    final: Tensor


@dataclass(frozen=True, eq=False)
class Trace:
    """One forward pass.

    Attributes:
        stack: the decoder, or the encoder of a model that has no decoder.
        source: the encoder of an encoder-decoder; else None.
        pooled: (B, D) the one vector that a classifier reads; else None.
        transformed: (B, T, D) the last vectors behind the head's transform; None where there is none.
        logits: (B, T, V), or (B, classes) of a classifier: those of this pass, in which scores and patterns are
            observed.
    """

    stack: StackTrace
    source: StackTrace | None
    pooled: Tensor | None
    transformed: Tensor | None
    logits: Tensor

    @property
    def probabilities(self) -> Tensor:
        """softmax(logits) in float64 on the CPU, as `glass generate --top` has it; same shape."""
        return self.logits.to(device="cpu").double().softmax(dim=-1)
