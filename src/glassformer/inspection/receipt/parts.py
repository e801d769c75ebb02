"""A logit as a sum: what each part of the model gave to it. Direct logit attribution (Elhage et al. 2021).

In a pre-norm model the residual stream of place i, before the final norm, is a plain sum:

    x_i = token + position + Σ_layers (Σ_heads Σ_j A[h, i, j] v_j W_O^h + b_O) + Σ_layers feed-forward

(and the heads of cross-attention, where there is a memory). With the scale σ_i of the final norm held at what it was
for the whole sum, the norm and the head are linear in x_i. With w the head's row of the token and g = gain · w:

    logit = Σ_i s_i u_i · x_i + beta · w + head bias,    u_i = g / σ_i             RMSNorm
                                                         u_i = (g - mean g) / σ_i  LayerNorm
                                                         u_i = w                   no norm

LayerNorm takes the mean off x_i; taking it off g instead is the same, since (x - mean x) · g = x · (g - mean g). The
shares s_i are 1 for the one place that the head reads, and 1 / n for each of n places where their mean is read. So
every part gives u_i · part, and all of them add up to the logit, but for rounding; they are computed in float64.

In a post-norm model each norm stands inside the stream: a part passes through the norms of all later layers, whose
scales depend on all parts together. No such sum exists, and it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from glassformer.errors import GlassError
from glassformer.inspection.traced import AttentionTrace, StackTrace, Trace
from glassformer.model.attention import Attention
from glassformer.model.block import Block
from glassformer.model.families import EncoderDecoder, Model

CROSS = "cross head"
Kind = Literal[
    "token embedding",
    "position embedding",
    "embedding norm bias",
    "head",
    "cross head",
    "attention bias",
    "cross bias",
    "feed-forward",
    "final norm bias",
    "head bias",
]


@dataclass(frozen=True)
class Part:
    """What one part of the model gave to the logit.

    Attributes:
        kind: what it is; "attention bias" is the one of an attention layer's output projection, "head bias" the one of
            the model's head, on the logits.
        value: its share of the logit, in the logit's own unit.
        layer: which block, from 0; None for what belongs to none.
        head: which attention head, from 0; None for what is none.
        sources: of heads and embeddings the split of `value` by the token that it came from, (S): through which place
            of the row, or of the encoder's memory for a cross head. None for what has no source token.
    """

    kind: Kind
    value: float
    layer: int | None = None
    head: int | None = None
    sources: tuple[float, ...] | None = None

    @property
    def name(self) -> str:
        """For people."""
        where = [] if self.layer is None else [f"layer {self.layer}"]
        return " ".join([*where, self.kind, *([] if self.head is None else [str(self.head)])])


def split_logit(
    model: Model, trace: Trace, places: Sequence[int], token: int, against: int | None = None
) -> list[Part]:
    """All parts of one logit of the first row, in the order of the model; their sum is the logit.

    Args:
        model: any of the families, pre-norm.
        trace: of the forward pass that gave the logit.
        places: what the head reads: the one place of the logit, or all whose mean a classifier reads.
        token: whose logit; of a classifier a class.
        against: another one: then it is the difference of the two logits.

    Raises:
        GlassError: the model is post-norm.
    """
    refuse_post_norm(model)
    stack = model.decoder if isinstance(model, EncoderDecoder) else model.stack
    w, bias = _head_row(model, token)  # (D), ()
    if against is not None:
        other, other_bias = _head_row(model, against)
        w, bias = w - other, None if bias is None or other_bias is None else bias - other_bias
    rows = list(places)
    u = _directions(stack.norm, _entering_norm(trace.stack, rows), w) / len(rows)  # (P, D)
    parts = _embedded(model.embedding.norm, trace.stack, rows, u)
    for layer, (block, made) in enumerate(zip(stack.blocks, trace.stack.blocks, strict=True)):
        assert isinstance(block, Block)
        parts += _attention(block.attention, made.attention, rows, u, layer, "head", "attention bias")
        if block.cross is not None and made.cross is not None:
            parts += _attention(block.cross, made.cross, rows, u, layer, "cross head", "cross bias")
        written = _double(made.feedforward.output[0, rows])  # (P, D)
        parts.append(Part("feed-forward", float((written * u).sum()), layer))
    beta = getattr(stack.norm, "bias", None)
    if beta is not None:
        parts.append(Part("final norm bias", float(_double(beta) @ w)))
    if bias is not None:
        parts.append(Part("head bias", float(bias)))
    return parts


def refuse_post_norm(model: Model) -> None:
    """Raise a `GlassError` if the model's logits have no exact split."""
    if model.config.norm_order == "post":
        raise GlassError(
            "model.norm_order = post: what a part writes passes through the norms of all later layers, "
            "so a logit has no exact split into parts",
            "Give a run with model.norm_order = pre.",
        )


def total(parts: Sequence[Part]) -> float:
    """The sum of all values; `math.fsum`, so that adding up loses nothing."""
    return math.fsum(part.value for part in parts)


def _double(x: Tensor) -> Tensor:
    return x.detach().to(device="cpu").to(torch.float64)


def _head_row(model: Model, token: int) -> tuple[Tensor, Tensor | None]:
    """The head's row of a token or class, (D), and its bias."""
    own: Tensor | None = model.head.weight  # (V, D), or (C, D) of a classifier
    biases: Tensor | None = model.head.bias  # (V) or (C)
    matrix = model.embedding.tokens.weight if own is None else own  # (V, D) or (C, D)
    return _double(matrix[token]), None if biases is None else _double(biases[token])


def _entering_norm(stack: StackTrace, rows: list[int]) -> Tensor:
    """The residual stream before the final norm: (P, D)."""
    return _double(stack.blocks[-1].after[0, rows])


def _directions(norm: nn.Module, x: Tensor, w: Tensor) -> Tensor:
    """What a part of each norm's input is multiplied by, to give w · the norm's output, its scale held.

    Inputs x (P, D), and w (D), or (P, D) where each place has its own -> (P, D).
    """
    if isinstance(norm, nn.LayerNorm):
        scale = (x.var(dim=-1, keepdim=True, unbiased=False) + norm.eps).sqrt()  # (P, 1)
        g = _double(norm.weight) * w  # (D) or (P, D)
        return (g - g.mean(dim=-1, keepdim=True)) / scale  # (P, D)
    if isinstance(norm, nn.RMSNorm):
        assert norm.eps is not None
        scale = (x.square().mean(dim=-1, keepdim=True) + norm.eps).sqrt()  # (P, 1)
        return _double(norm.weight) * w / scale  # (P, D)
    return w.expand_as(x)  # (P, D)


def _embedded(norm: nn.Module, stack: StackTrace, rows: list[int], u: Tensor) -> list[Part]:
    """What the embeddings of the places themselves give; those of other places arrive through heads.

    Where a norm follows the embeddings, its scale is held, too: u then goes through it as w does through the final one.
    """
    vectors: dict[Kind, Tensor] = {"token embedding": _double(stack.token_vectors[0, rows])}  # (P, D)
    if stack.position_vectors is not None:
        vectors["position embedding"] = _double(stack.position_vectors[0, rows])  # (P, D)
    through = _directions(norm, sum(vectors.values(), torch.zeros_like(u)), u)  # (P, D)
    parts = [_of_places(kind, each, rows, through, stack.ids.shape[1]) for kind, each in vectors.items()]
    beta = getattr(norm, "bias", None)
    if beta is not None:
        parts.append(Part("embedding norm bias", float((u @ _double(beta)).sum())))
    return parts


def _of_places(kind: Kind, vectors: Tensor, rows: list[int], u: Tensor, length: int) -> Part:
    values = (_double(vectors) * u).sum(dim=-1)  # (P)
    sources = torch.zeros(length, dtype=torch.float64).index_put((torch.tensor(rows),), values)  # (T)
    return Part(kind, float(values.sum()), sources=tuple(sources.tolist()))


def _attention(
    layer: Attention, made: AttentionTrace, rows: list[int], u: Tensor, number: int, kind: Kind, bias_kind: Kind
) -> list[Part]:
    """Each head's value by source token, and the output projection's bias."""
    matrix = _double(layer.output.weight).unflatten(1, (layer.heads, -1))  # (D, H, K)
    read = torch.einsum("pd,dhk->hpk", u, matrix)  # (H, P, K): u as each head's values see it
    v = _double(made.v[0]).repeat_interleave(layer.heads // layer.kv_heads, dim=0)  # (H, S, K)
    weights = _double(made.weights[0, :, rows])  # (H, P, S)
    sources = (weights * (read @ v.transpose(-2, -1))).sum(dim=1)  # (H, S)
    parts = [Part(kind, float(each.sum()), number, head, tuple(each.tolist())) for head, each in enumerate(sources)]
    if made.output_bias is not None:
        parts.append(Part(bias_kind, float((u @ _double(made.output_bias)).sum()), number))
    return parts
