"""Direct logit attribution: the contribution of each part of the model to a logit (Elhage et al. 2021).

In a pre-norm model, the residual stream at position i, before the final norm, is a plain sum:

    x_i = token + position + Σ_layers (Σ_heads Σ_j A[h, i, j] v_j W_O^h + b_O) + Σ_layers feed-forward

An encoder-decoder adds the heads and the bias of cross-attention in each layer. If the scale σ_i of the final norm is
held fixed at its value for the whole sum, the norm and the head are linear in x_i. Let w be the token's row of the
head's matrix, and let g = gain · w:

    logit = Σ_i s_i u_i · x_i + beta · w + head bias,    u_i = g / σ_i             RMSNorm
                                                         u_i = (g - mean g) / σ_i  LayerNorm
                                                         u_i = w                   no norm

LayerNorm subtracts the mean of x_i. Instead, the mean of g can be subtracted from g, because
(x - mean x) · g = x · (g - mean g). The factor s_i is 1 if the head reads one position, and 1 / n for each of n pooled
positions. Thus, each part contributes s_i u_i · part. The contributions are computed in float64 and add up to the
logit, up to rounding.

With norms on the outputs of parts (norm_order = output), x_i is the sum of the embedding and norm(part). The scales of
these norms, and of a norm after the embedding, are held fixed, too: u is pulled back through each norm as w is through
the final norm, and the sum is equally exact.

In a post-norm model, each part passes through the norms of all later layers, whose scales depend on all parts together.
No such sum exists, so these models are refused. Models with a head transform are refused as well, because its
activation is not linear.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from glassformer.base.errors import GlassError
from glassformer.inspection.sites import last_stack
from glassformer.inspection.traced import AttentionTrace, StackTrace, Trace
from glassformer.model.attention import Attention
from glassformer.model.transformer import Block, Model

CROSS = "cross head"
Kind = Literal[
    "token embedding",
    "position embedding",
    "embedding norm bias",
    "head",
    "cross head",
    "attention bias",
    "attention norm bias",
    "cross bias",
    "cross norm bias",
    "feed-forward",
    "feed-forward norm bias",
    "final norm bias",
    "head bias",
]


@dataclass(frozen=True)
class LogitPart:
    """Contribution of one part of the model to a logit.

    Attributes:
        kind: kind of part; "attention bias" is the bias of an attention layer's output projection, "head bias" that of
            the model's output layer; "cross …" are parts of cross-attention.
        value: contribution to the logit, in units of the logit.
        layer: number of the part's block, from 0; None if the part belongs to no block.
        head: number of the attention head, from 0; None if the part is not a head.
        sources: split of `value` by the position that the contribution comes from, (S), for heads and embeddings: a
            position of the row, or of the encoder's memory for a cross-attention head. None for other parts, or without
            a split.
    """

    kind: Kind
    value: float
    layer: int | None = None
    head: int | None = None
    sources: tuple[float, ...] | None = None

    @property
    def name(self) -> str:
        """Return the display name of the part, such as "layer 1 head 0" or "layer 1 cross-attention head 0"."""
        layer = [] if self.layer is None else [f"layer {self.layer}"]
        head = [] if self.head is None else [str(self.head)]
        return " ".join([*layer, self.kind.replace("cross", "cross-attention"), *head])


@dataclass(frozen=True, eq=False)
class DirectionPart:
    """Contribution of one part of the model along a direction, at each of P positions.

    Attributes:
        kind, layer, head: as for `LogitPart`.
        values: (P) float64, the contribution at each position.
        sources: (P, S) float64, the split of `values` as in `LogitPart`, or None.
    """

    kind: Kind
    values: Tensor
    layer: int | None = None
    head: int | None = None
    sources: Tensor | None = None

    def part(self) -> LogitPart:
        """Return the sum over positions as a `LogitPart`."""
        sources = None if self.sources is None else tuple(self.sources.sum(dim=0).tolist())
        return LogitPart(self.kind, float(self.values.sum()), self.layer, self.head, sources)


def split_logit(
    model: Model, trace: Trace, positions: Sequence[int], token: int, against: int | None = None
) -> list[LogitPart]:
    """Split one logit of the first row into the contributions of all parts, in the order of the model.

    The contributions add up to the logit, up to rounding.

    Args:
        model: a model of any family, not post-norm, and without a transform in its head.
        trace: forward pass of the model.
        positions: the position of the logit, or all positions that a classifier pools.
        token: token or class of the logit.
        against: second token or class; if given, the difference of the two logits is split.

    Raises:
        GlassError: the model's logits have no exact split.
    """
    refuse_inexact(model)
    w, bias = head_rows(model, [token] * len(positions), against)  # (P, D), (P)
    w = w / len(positions)
    bias = None if bias is None else bias / len(positions)
    return [part.part() for part in split_logits(model, trace, list(positions), w, bias)]


def split_logits(
    model: Model, trace: Trace, rows: list[int], w: Tensor, bias: Tensor | None
) -> Iterator[DirectionPart]:
    """Split logits at P positions of the first row into the contributions of all parts, in the order of the model.

    The contributions add up to the logit at each position, up to rounding.

    Args:
        model: a model that `refuse_inexact` accepts.
        trace: forward pass of the model.
        rows: the P positions.
        w, bias: output weights (P, D) and biases (P), or None without biases, at each position; see `head_rows`.
    """
    yield from split_stream(model, trace, rows, final_directions(model, trace, rows, w))
    beta = getattr(last_stack(model).norm, "bias", None)
    if beta is not None:
        yield DirectionPart("final norm bias", w @ double(beta))
    if bias is not None:
        yield DirectionPart("head bias", bias)


def split_stream(model: Model, trace: Trace, rows: list[int], u: Tensor) -> Iterator[DirectionPart]:
    """Split the residual stream x before the final norm along u; at each position, the parts add up to u · x.

    Args:
        model, trace, rows: as for `split_logits`.
        u: direction for each position, (P, D).
    """
    yield from _embedded(model.embedding.norm, trace.stack, rows, u)
    for layer, (block, block_trace) in enumerate(zip(last_stack(model).blocks, trace.stack.blocks, strict=True)):
        assert isinstance(block, Block)
        direction, norm_bias = output_norm(
            block.norm_order, block.attention_norm, block_trace.attention.output, rows, u
        )
        yield from _attention(block.attention, block_trace.attention, rows, direction, layer, "head", "attention bias")
        yield from (DirectionPart("attention norm bias", values, layer) for values in norm_bias)
        if block.cross_norm is not None and block.cross is not None and block_trace.cross is not None:
            direction, norm_bias = output_norm(block.norm_order, block.cross_norm, block_trace.cross.output, rows, u)
            yield from _attention(block.cross, block_trace.cross, rows, direction, layer, "cross head", "cross bias")
            yield from (DirectionPart("cross norm bias", values, layer) for values in norm_bias)
        direction, norm_bias = output_norm(
            block.norm_order, block.feedforward_norm, block_trace.feedforward.output, rows, u
        )
        output = double(block_trace.feedforward.output[0, rows])  # (P, D)
        yield DirectionPart("feed-forward", (output * direction).sum(dim=-1), layer)
        yield from (DirectionPart("feed-forward norm bias", values, layer) for values in norm_bias)


def output_norm(order: str, norm: nn.Module, output: Tensor, rows: list[int], u: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return u (P, D) pulled back through the norm on a part's output (B, T, D), and the contribution of its bias.

    The contribution is a list with one tensor (P), or empty without a bias. Unless `order` is "output", there is no
    such norm, and u is returned unchanged.
    """
    if order != "output":
        return u, []
    beta = getattr(norm, "bias", None)
    bias_contributions = [] if beta is None else [u @ double(beta)]  # (P)
    return _directions(norm, double(output[0, rows]), u), bias_contributions  # (P, D)


def final_directions(model: Model, trace: Trace, rows: list[int], w: Tensor) -> Tensor:
    """Return w (P, D) pulled back through the final norm, as directions (P, D) in the stream before this norm."""
    return _directions(last_stack(model).norm, double(trace.stack.blocks[-1].after[0, rows]), w)


def refuse_inexact(model: Model) -> None:
    """Raise a `GlassError` if the model's logits have no exact split."""
    if model.config.norm_order == "post":
        raise GlassError(
            "model.norm_order = post: the output of a part passes through the norms of all later layers, "
            "so a logit has no exact split into parts",
            "Give a run with model.norm_order = pre or output.",
        )
    if model.config.head_transform:
        raise GlassError(
            "model.head_transform = true: an activation lies between the parts and the logits, "
            "so a logit has no exact split into parts",
            "Give a run with model.head_transform = false.",
        )


def total(parts: Sequence[LogitPart]) -> float:
    """Return the sum of all values, computed by `math.fsum` without loss of precision."""
    return math.fsum(part.value for part in parts)


def double(x: Tensor) -> Tensor:
    """Convert a tensor to float64 on the CPU, and detach it from the autograd graph."""
    return x.detach().to(device="cpu").to(torch.float64)


def head_rows(model: Model, tokens: Sequence[int], against: int | None = None) -> tuple[Tensor, Tensor | None]:
    """Return the head's weights (P, D) and biases (P) of tokens or classes, minus those of `against` if given.

    The biases are None if the head has none.
    """
    head_weight: Tensor | None = model.head.weight  # (V, D), or (C, D) of a classifier
    biases: Tensor | None = model.head.bias  # (V) or (C)
    matrix = model.embedding.tokens.weight if head_weight is None else head_weight  # (V, D) or (C, D)
    w = double(matrix[list(tokens)])  # (P, D)
    bias = None if biases is None else double(biases[list(tokens)])  # (P)
    if against is None:
        return w, bias
    other_bias = None if biases is None else double(biases[against])  # ()
    return w - double(matrix[against]), None if bias is None or other_bias is None else bias - other_bias


def _directions(norm: nn.Module, x: Tensor, w: Tensor) -> Tensor:
    """Return directions u (P, D) with u · x = w · norm(x), up to the norm's bias, with the norm's scale held fixed.

    Args:
        norm: the norm.
        x: inputs of the norm, (P, D).
        w: directions at the norm's output, (D) or (P, D).
    """
    if isinstance(norm, nn.LayerNorm):
        scale = (x.var(dim=-1, keepdim=True, unbiased=False) + norm.eps).sqrt()  # (P, 1)
        g = double(norm.weight) * w  # (D) or (P, D)
        return (g - g.mean(dim=-1, keepdim=True)) / scale  # (P, D)
    if isinstance(norm, nn.RMSNorm):
        assert norm.eps is not None
        scale = (x.square().mean(dim=-1, keepdim=True) + norm.eps).sqrt()  # (P, 1)
        return double(norm.weight) * w / scale  # (P, D)
    return w.expand_as(x)  # (P, D)


def _embedded(norm: nn.Module, stack: StackTrace, rows: list[int], u: Tensor) -> Iterator[DirectionPart]:
    """Yield the contributions of the embedding at each position; embeddings at other positions act through heads.

    If a norm follows the embedding, its scale is held fixed, too, and u is pulled back through this norm.
    """
    vectors: dict[Kind, Tensor] = {"token embedding": double(stack.token_vectors[0, rows])}  # (P, D)
    if stack.position_vectors is not None:
        vectors["position embedding"] = double(stack.position_vectors[0, rows])  # (P, D)
    direction = _directions(norm, sum(vectors.values(), torch.zeros_like(u)), u)  # (P, D)
    for kind, vector in vectors.items():
        values = (vector * direction).sum(dim=-1)  # (P)
        sources = torch.zeros(len(rows), stack.ids.shape[1], dtype=torch.float64)  # (P, T)
        sources[torch.arange(len(rows)), rows] = values
        yield DirectionPart(kind, values, sources=sources)
    beta = getattr(norm, "bias", None)
    if beta is not None:
        yield DirectionPart("embedding norm bias", u @ double(beta))


def _attention(
    layer: Attention, trace: AttentionTrace, rows: list[int], u: Tensor, number: int, kind: Kind, bias_kind: Kind
) -> Iterator[DirectionPart]:
    """Yield the contribution of each head by source position, then that of the output projection's bias."""
    matrix = double(layer.output.weight).unflatten(1, (layer.heads, layer.value_width))  # (D, H, U)
    head_directions = torch.einsum("pd,dhu->hpu", u, matrix)  # (H, P, U), u in the value space of each head
    v = double(trace.v[0, list(trace.kv_index)])  # (H, S, U)
    weights = double(trace.pattern[0, :, rows])  # (H, P, S)
    sources = weights * (head_directions @ v.transpose(-2, -1))  # (H, P, S)
    for head, head_sources in zip(trace.heads, sources, strict=True):
        yield DirectionPart(kind, head_sources.sum(dim=-1), number, head, head_sources)
    if trace.output_bias is not None:
        yield DirectionPart(bias_kind, u @ double(trace.output_bias), number)
