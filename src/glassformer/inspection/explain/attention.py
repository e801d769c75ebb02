"""Sections on one attention layer: each head, from its projections to its output, and the sum over heads."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from torch import Tensor, nn

from glassformer.inspection.explain.arithmetic import (
    DividedByRowSize,
    Masked,
    MatrixProduct,
    Normalized,
    Scaled,
    Softmax,
    Sum,
    projection,
    sum_of,
    sum_of_heads,
)
from glassformer.inspection.explain.lookups import DistanceBias, NoHeads, Rotated, SizeOfAllHeads
from glassformer.inspection.explain.operations import Operation
from glassformer.inspection.explain.sections import Matrix, Section, numbers, parameters
from glassformer.inspection.traced import AttentionTrace
from glassformer.model.attention import Attention, NoProjection

Labels = tuple[str, ...]


@dataclass(frozen=True)
class AttentionCaptions:
    """Labels and choices for displaying an attention layer.

    Attributes:
        queries, keys: texts of the query tokens and of the key tokens.
        position: position of the query that notes describe.
        x, source: names of the input matrices: `x` is projected to queries, `source` to keys and values.
        layer: number of the layer.
        heads: numbers of the heads to show; None: all.
        positions: value of `model.positions`; empty for cross-attention.
    """

    queries: Labels
    keys: Labels
    position: int
    x: str
    source: str
    layer: int
    heads: Collection[int] | None
    positions: str


def attention_sections(trace: AttentionTrace, layer: Attention, captions: AttentionCaptions) -> list[Section]:
    """Return a section for each shown head, then one for the sum of all heads.

    After pruning, the number of a head can differ from its index.
    """
    indices = [index for index, head in enumerate(trace.heads) if captions.heads is None or head in captions.heads]
    return [*(_head(trace, layer, index, captions) for index in indices), _output(trace, layer, captions)]


def _largest_weights(weights: Tensor, captions: AttentionCaptions) -> str:
    """Return a note on the keys, at most three, with the largest weights of the query at `captions.position`.

    `weights` (T, S) are the attention weights of a head.
    """
    row = numbers(weights[captions.position])[0]  # (S)
    top_keys = np.argsort(-row, kind="stable")[:3]
    attended = ", ".join(f"{captions.keys[key]} {row[key]:.4f}" for key in top_keys if row[key] > 0)
    return (
        f"{captions.queries[captions.position]} (position {captions.position}) attends most to: {attended or 'nothing'}"
    )


def _head(trace: AttentionTrace, layer: Attention, head: int, captions: AttentionCaptions) -> Section:
    number = trace.heads[head]
    kv_head = trace.kv_index[head]
    steps = [_projections(trace, layer, head, captions)]
    if layer.query_norm is not None and layer.key_norm is not None:
        steps.append(_qk_norm(trace, layer.query_norm, layer.key_norm, head, kv_head, captions))
    if trace.rotation is not None:
        steps.append(_rotation(trace, head, kv_head, captions))
    steps += _scores(trace, head, captions)
    steps.append(_mixing(trace, layer, head, captions))
    notes = [_largest_weights(trace.pattern[0, head], captions)]
    sharing_heads = [
        other
        for other, other_kv_head in zip(trace.heads, trace.kv_index, strict=True)
        if other_kv_head == kv_head and other != number
    ]
    if sharing_heads:
        notes.append(f"The head shares its keys and values with {_heads(sharing_heads)}.")
    children = tuple(replace(step, layer=captions.layer, head=number) for step in steps)
    return Section("head", f"Head {number}", notes=tuple(notes), children=children, layer=captions.layer, head=number)


def _heads(numbers: list[int]) -> str:
    """Return a phrase for heads, such as "head 2" or "heads 0, 1 and 4"."""
    *earlier, last = map(str, numbers)
    return f"heads {', '.join(earlier)} and {last}" if earlier else f"head {last}"


def _projections(trace: AttentionTrace, layer: Attention, head: int, captions: AttentionCaptions) -> Section:
    """Return the section on Q, K and V of a head, with the columns of the projection matrices that compute them."""
    kv_head = trace.kv_index[head]
    matrices: list[Matrix] = []
    for name, linear, index, source, projected, labels in (
        ("Q", layer.query, head, captions.x, trace.q_projected[0, head], captions.queries),
        ("K", layer.key, kv_head, captions.source, trace.k_projected[0, kv_head], captions.keys),
        ("V", layer.value, kv_head, captions.source, trace.v[0, kv_head], captions.keys),
    ):
        width = projected.shape[-1]
        rows = slice(index * width, index * width + width)
        matrices.append(Matrix(f"W_{name}", None, parameters(linear.weight[rows].T), role="parameters"))
        bias = None
        if linear.bias is not None:
            bias = f"b_{name}"
            matrices.append(Matrix(bias, None, parameters(linear.bias[rows]), ("bias",), role="parameters"))
        matrices.append(Matrix(name, projection(source, f"W_{name}", bias), numbers(projected), labels))
    return Section("projections", "Queries, keys and values", tuple(matrices))


def _qk_norm(
    trace: AttentionTrace,
    query_norm: nn.RMSNorm,
    key_norm: nn.RMSNorm,
    head: int,
    kv_head: int,
    captions: AttentionCaptions,
) -> Section:
    """Return the section on query and key norms.

    The queries (or keys) of each head are divided by their root mean square, or by r, the root mean square of the
    concatenated queries (or keys) of all heads.
    """
    matrices: list[Matrix] = []
    projections: tuple[tuple[Literal["Q", "K"], str, nn.RMSNorm, int, Tensor, Tensor, Labels], ...] = (
        ("Q", captions.x, query_norm, head, trace.q_projected[0], trace.q_unrotated[0], captions.queries),
        ("K", captions.source, key_norm, kv_head, trace.k_projected[0], trace.k_unrotated[0], captions.keys),
    )
    for name, x, norm, index, projected, normed, labels in projections:
        K = projected.shape[-1]
        gain = numbers(norm.weight)  # (1, K) or (1, heads K)
        eps = norm.eps or 0.0
        operation: Operation = Normalized(name, False, eps, f"g_{name}")
        if len(norm.weight) > K:
            mean = projected.double().square().mean(dim=(0, 2))[:, None]  # (T, 1)
            matrices.append(Matrix(f"r_{name}", SizeOfAllHeads(name, x, eps), numbers((mean + eps).sqrt()), labels))
            gain = gain[:, index * K : index * K + K]  # (1, K)
            operation = DividedByRowSize(name, f"r_{name}", f"g_{name}")
        matrices.append(Matrix(f"g_{name}", None, gain, ("gain",), role="parameters"))
        matrices.append(Matrix(name, operation, numbers(normed[index]), labels))
    return Section("qk_norm", "Queries and keys normalized", tuple(matrices))


def _rotation(trace: AttentionTrace, head: int, kv_head: int, captions: AttentionCaptions) -> Section:
    return Section(
        "rotation",
        "Queries and keys rotated by their positions",
        (
            Matrix("Q", Rotated("Q"), numbers(trace.q[0, head]), captions.queries),
            Matrix("K", Rotated("K"), numbers(trace.k[0, kv_head]), captions.keys),
        ),
    )


def _scores(trace: AttentionTrace, head: int, captions: AttentionCaptions) -> list[Section]:
    """Return the sections from query-key scores to attention weights."""
    K = trace.q.shape[-1]

    def score_matrix(name: str, operation: Operation, values: Tensor) -> Matrix:
        return Matrix(name, operation, numbers(values), captions.queries, captions.keys)

    scaled = trace.scaled[0, head]  # (T, S)
    allowed = trace.allowed[0, 0].expand_as(trace.scaled[0, head])  # (T, S)
    steps = [
        Section(
            "scores",
            "Scores",
            (score_matrix("S", Sum((MatrixProduct("Q", "K", transposed=True),)), trace.scores[0, head]),),
        ),
        Section(
            "scaling",
            "Scaling",
            (score_matrix("S'", Scaled("S", K), scaled),),
            notes=(f"A head is {K} wide, so every score is divided by √{K} = {math.sqrt(K):.4f}.",),
        ),
    ]
    scores = sum_of("S'")
    if trace.bias is not None:
        bias = trace.bias[0, head]  # (T, S)
        scores = sum_of("S'", "B")
        steps.append(Section("bias", "Distance bias", (score_matrix("B", DistanceBias(captions.positions), bias),)))
    n_hidden = int((~allowed).sum())
    if n_hidden:
        masked = score_matrix("M", Masked(scores), trace.masked[0, head])  # (T, S)
        verb = "are" if n_hidden > 1 else "is"
        note = f"{n_hidden:,} of the {allowed.numel():,} scores {verb} masked."
        steps.append(Section("mask", "Mask", (masked,), notes=(note,)))
        scores = sum_of("M")
    else:
        steps.append(Section("open", "Mask", notes=("No score is masked.",)))
    weights = Matrix("A", Softmax(scores), numbers(trace.pattern[0, head]), captions.queries, captions.keys, "weights")
    steps.append(Section("softmax", "Softmax", (weights,)))
    return steps


def _mixing(trace: AttentionTrace, layer: Attention, head: int, captions: AttentionCaptions) -> Section:
    U = trace.v.shape[-1]
    head_weight = layer.output.weight[:, head * U : head * U + U]  # (D, U)
    notes: tuple[str, ...] = ()
    if isinstance(layer.output, NoProjection):
        notes = ("The layer has no output projection: W_O only places the head's values in its channels of O.",)
    return Section(
        "mixing",
        "Weighted sum of values, and the output of the head",
        (
            Matrix("Z", projection("A", "V", None), numbers(trace.z[0, head]), captions.queries),
            Matrix("W_O", None, parameters(head_weight.T), role="parameters"),
            Matrix(
                f"O{trace.heads[head]}",
                projection("Z", "W_O", None),
                numbers(trace.head_outputs[0, head]),
                captions.queries,
            ),
        ),
        notes=notes,
    )


def _output(trace: AttentionTrace, layer: Attention, captions: AttentionCaptions) -> Section:
    heads = [f"O{head}" for head in trace.heads]
    matrices: tuple[Matrix, ...] = ()
    bias = None
    if trace.output_bias is not None:
        bias = "b_O"
        matrices = (Matrix(bias, None, parameters(trace.output_bias), ("bias",), role="parameters"),)
    total = sum_of_heads(heads, bias) if heads or bias else NoHeads()
    matrices += (Matrix("O", total, numbers(trace.output[0]), captions.queries),)
    return Section("output", "All heads together", matrices, layer=captions.layer)
