"""Data classes of a trace. Tensors are detached; the letters of shapes are defined in `glassformer.base.shapes`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from glassformer.model.positions import Rotation


@dataclass(frozen=True, eq=False)
class AttentionTrace:
    """Trace of one attention layer. Query head h uses key-value head h // (H / G) unless heads were removed.

    After pruning, H and G count the remaining heads, which `heads` and `kv_index` identify.

    Attributes:
        heads: (H) number of each query head before pruning; 0 to H - 1 if no heads were removed.
        kv_index: (H) index of the key-value head that each query head uses.
        input: (B, T, D) input of the query projection.
        source: (B, S, D) input of the key and value projections: `input`, or the encoder's memory.
        q_projected, k_projected: (B, H, T, K) and (B, G, S, K), outputs of the projections.
        q_unrotated, k_unrotated: (B, H, T, K) and (B, G, S, K), after qk-norm, if any, and before rotation.
        q, k, v: (B, H, T, K), (B, G, S, K) and (B, G, S, U), as used for attention.
        rotation: rotation of q and k; None if positions are not rotary, and in cross-attention.
        scaled: (B, H, T, S) q kᵀ / √K, including masked keys.
        bias: (B or 1, H, T, S) position bias added to `scaled`, -inf where masked; None if there is no bias.
        masked: (B, H, T, S) input of the softmax: scaled + bias, -inf where the key is masked.
        allowed: (B, 1, T, S) bool, False where `masked` is -inf in all heads; computed from the mask if the layer has
            no heads.
        pattern: (B, H, T, S) attention weights: softmax of `masked`; zeros in fully masked rows.
        z: (B, H, T, U) pattern times v.
        head_outputs: (B, H, T, D) contribution of each head to the output projection, computed from z.
        output_bias: (D) bias of the output projection; None without a bias.
        output: (B, T, D) sum of `head_outputs` over heads plus `output_bias`, up to rounding.
    """

    heads: tuple[int, ...]
    kv_index: tuple[int, ...]
    input: Tensor
    source: Tensor
    q_projected: Tensor
    k_projected: Tensor
    q_unrotated: Tensor
    k_unrotated: Tensor
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
        """Unscaled scores q kᵀ, (B, H, T, S): √K times `scaled`, because the model divides the queries by √K."""
        return self.scaled * math.sqrt(self.q.shape[-1])


@dataclass(frozen=True, eq=False)
class FeedForwardTrace:
    """Trace of one feed-forward layer; a module of another class than `FeedForward` has only `input` and `output`.

    Attributes:
        input: (B, T, D) input of the layer.
        up: (B, T, F) output of the first projection.
        gate: (B, T, F) output of the gate projection; None without a gate.
        activated: (B, T, F) activation of `gate`, or of `up` without a gate.
        hidden: (B, T, F) input of the last projection: `activated`, multiplied by `up` if there is a gate.
        output: (B, T, D) output of the layer.
    """

    input: Tensor
    up: Tensor | None
    gate: Tensor | None
    activated: Tensor | None
    hidden: Tensor | None
    output: Tensor


@dataclass(frozen=True, eq=False)
class BlockTrace:
    """Trace of one block; all residual streams and norms are (B, T, D).

    Attributes:
        order: for each part, "pre": after = before + part(norm(before)); "post": after = norm(before + part(before));
            "output": after = before + norm(part(before)).
        before: residual stream before the block.
        attention_norm, cross_norm, feedforward_norm: outputs of the norms; `cross_norm` is None without
            cross-attention.
        attention: trace of self-attention.
        after_attention: residual stream after self-attention.
        cross: trace of cross-attention; None without cross-attention.
        after_cross: residual stream after cross-attention; None without cross-attention.
        feedforward: trace of the feed-forward layer.
        after: residual stream after the block.
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
    """Trace of an encoder or a decoder.

    Attributes:
        ids: (B, T) input ids.
        attention_mask: (B, T) bool, False at padding; None: no padding.
        positions: (B or 1, T) position of each token, from 0.
        token_vectors: (B, T, D) rows of the embedding, multiplied by the embedding scale.
        position_vectors: (B or 1, T, D) vectors added to `token_vectors`; None if positions are not added to the
            embedding.
        embedded: (B, T, D) output of the embedding.
        blocks: traces of all blocks.
        final: (B, T, D) output of the final norm, or of the last block of a post-norm stack, which has no final norm.
    """

    ids: Tensor
    attention_mask: Tensor | None
    positions: Tensor
    token_vectors: Tensor
    position_vectors: Tensor | None
    embedded: Tensor
    blocks: tuple[BlockTrace, ...]
    final: Tensor


@dataclass(frozen=True, eq=False)
class Trace:
    """Trace of one forward pass.

    Attributes:
        stack: trace of the decoder, or of the encoder if the model has no decoder.
        source: trace of the encoder of an encoder-decoder; otherwise None.
        pooled: (B, D) pooled vector of a classifier; otherwise None.
        transformed: (B, T, D) final vectors after the head's transform; None without a transform.
        logits: (B, T, V), or (B, classes) for a classifier; from this pass, which computes attention step by step.
    """

    stack: StackTrace
    source: StackTrace | None
    pooled: Tensor | None
    transformed: Tensor | None
    logits: Tensor

    @property
    def probabilities(self) -> Tensor:
        """Softmax of `logits`, in float64 on the CPU and of the same shape, as in `glass generate --top`."""
        return self.logits.to(device="cpu").double().softmax(dim=-1)
