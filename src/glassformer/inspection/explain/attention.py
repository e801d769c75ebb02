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
from glassformer.model.attention import Attention

Labels = tuple[str, ...]


@dataclass(frozen=True)
class AttentionCaptions:
    """Labels and choices for displaying an attention layer.

    Attributes:
        queries, keys: texts of the query tokens and of the key tokens.
        place: position of the query that notes describe.
        x, source: names of the matrices that queries, and that keys and values, are projected from.
        layer: number of the layer.
        heads: numbers of the heads to show; None: all.
        positions: value of `model.positions`; empty for cross-attention.
    """

    queries: Labels
    keys: Labels
    place: int
    x: str
    source: str
    layer: int
    heads: Collection[int] | None
    positions: str


def attention_sections(part: AttentionTrace, layer: Attention, view: AttentionCaptions) -> list[Section]:
    """Return a section for each shown head, then one for the sum of all heads.

    After pruning, the number of a head can differ from its index.
    """
    chosen = [index for index, head in enumerate(part.heads) if view.heads is None or head in view.heads]
    return [*(_head(part, layer, index, view) for index in chosen), _output(part, layer, view)]


def _largest_weights(weights: Tensor, view: AttentionCaptions) -> str:
    """Return a note on the keys (at most three) with the largest weights (T, S) for the query at `view.place`."""
    row = numbers(weights[view.place])[0]  # (S)
    best = np.argsort(-row, kind="stable")[:3]
    seen = ", ".join(f"{view.keys[key]} {row[key]:.4f}" for key in best if row[key] > 0)
    return f"{view.queries[view.place]} (position {view.place}) attends most to: {seen or 'nothing'}"


def _head(part: AttentionTrace, layer: Attention, head: int, view: AttentionCaptions) -> Section:
    number = part.heads[head]
    shared = part.kv_index[head]
    steps = [_projections(part, layer, head, view)]
    if layer.query_norm is not None and layer.key_norm is not None:
        steps.append(_qk_norm(part, layer.query_norm, layer.key_norm, head, shared, view))
    if part.rotation is not None:
        steps.append(_rotation(part, head, shared, view))
    steps += _scores(part, head, view)
    steps.append(_mixing(part, layer, head, view))
    notes = [_largest_weights(part.weights[0, head], view)]
    others = [
        other for other, asked in zip(part.heads, part.kv_index, strict=True) if asked == shared and other != number
    ]
    if others:
        notes.append(f"The head shares its keys and values with {_heads(others)}.")
    placed = tuple(replace(step, layer=view.layer, head=number) for step in steps)
    return Section("head", f"Head {number}", notes=tuple(notes), children=placed, layer=view.layer, head=number)


def _heads(numbers: list[int]) -> str:
    """Return a phrase for heads, such as "head 2" or "heads 0, 1 and 4"."""
    *most, last = map(str, numbers)
    return f"heads {', '.join(most)} and {last}" if most else f"head {last}"


def _projections(part: AttentionTrace, layer: Attention, head: int, view: AttentionCaptions) -> Section:
    """Return the section on Q, K and V of a head, with its columns of the projection matrices."""
    shared = part.kv_index[head]
    matrices: list[Matrix] = []
    for name, linear, index, source, projected, labels in (
        ("Q", layer.query, head, view.x, part.q_projected[0, head], view.queries),
        ("K", layer.key, shared, view.source, part.k_projected[0, shared], view.keys),
        ("V", layer.value, shared, view.source, part.v[0, shared], view.keys),
    ):
        width = part.q.shape[-1]
        rows = slice(index * width, index * width + width)
        matrices.append(Matrix(f"W_{name}", None, parameters(linear.weight[rows].T), role="parameters"))
        bias = None
        if linear.bias is not None:
            bias = f"b_{name}"
            matrices.append(Matrix(bias, None, parameters(linear.bias[rows]), ("bias",), role="parameters"))
        matrices.append(Matrix(name, projection(source, f"W_{name}", bias), numbers(projected), labels))
    return Section("projections", "Queries, keys and values", tuple(matrices))


def _qk_norm(
    part: AttentionTrace, query_norm: nn.RMSNorm, key_norm: nn.RMSNorm, head: int, shared: int, view: AttentionCaptions
) -> Section:
    """Return the section on query and key norms.

    Each head is divided by its own root mean square, or by r, the root mean square of all heads concatenated.
    """
    matrices: list[Matrix] = []
    sides: tuple[tuple[Literal["Q", "K"], str, nn.RMSNorm, int, Tensor, Tensor, Labels], ...] = (
        ("Q", view.x, query_norm, head, part.q_projected[0], part.q_unrotated[0], view.queries),
        ("K", view.source, key_norm, shared, part.k_projected[0], part.k_unrotated[0], view.keys),
    )
    for name, x, norm, index, projected, normed, labels in sides:
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


def _rotation(part: AttentionTrace, head: int, shared: int, view: AttentionCaptions) -> Section:
    return Section(
        "rotation",
        "Queries and keys rotated by their positions",
        (
            Matrix("Q", Rotated("Q"), numbers(part.q[0, head]), view.queries),
            Matrix("K", Rotated("K"), numbers(part.k[0, shared]), view.keys),
        ),
    )


def _scores(part: AttentionTrace, head: int, view: AttentionCaptions) -> list[Section]:
    """Return the sections from query-key scores to attention weights."""
    K = part.q.shape[-1]

    def square(name: str, operation: Operation, values: Tensor) -> Matrix:
        return Matrix(name, operation, numbers(values), view.queries, view.keys)

    scaled = part.scaled[0, head]  # (T, S)
    allowed = part.allowed[0, 0].expand_as(part.scaled[0, head])  # (T, S)
    steps = [
        Section(
            "scores", "Scores", (square("S", Sum((MatrixProduct("Q", "K", transposed=True),)), part.scores[0, head]),)
        ),
        Section(
            "scaling",
            "Scaling",
            (square("S'", Scaled("S", K), scaled),),
            notes=(f"A head is {K} wide, so every score is divided by √{K} = {math.sqrt(K):.4f}.",),
        ),
    ]
    scores = sum_of("S'")
    if part.bias is not None:
        bias = part.bias[0, head]  # (T, S)
        scores = sum_of("S'", "B")
        steps.append(Section("bias", "Bias for distance", (square("B", DistanceBias(view.positions), bias),)))
    hidden = int((~allowed).sum())
    if hidden:
        masked = square("M", Masked(scores), part.masked[0, head])  # (T, S)
        verb = "are" if hidden > 1 else "is"
        note = f"{hidden:,} of the {allowed.numel():,} scores {verb} hidden."
        steps.append(Section("mask", "Mask", (masked,), notes=(note,)))
        scores = sum_of("M")
    else:
        steps.append(Section("open", "Mask", notes=("Nothing is hidden.",)))
    weights = Matrix("A", Softmax(scores), numbers(part.weights[0, head]), view.queries, view.keys, "weights")
    steps.append(Section("softmax", "Softmax", (weights,)))
    return steps


def _mixing(part: AttentionTrace, layer: Attention, head: int, view: AttentionCaptions) -> Section:
    K = part.q.shape[-1]
    own = layer.output.weight[:, head * K : head * K + K]  # (D, K)
    return Section(
        "mixing",
        "Weighted sum of values, and the output of the head",
        (
            Matrix("Z", projection("A", "V", None), numbers(part.mixed[0, head]), view.queries),
            Matrix("W_O", None, parameters(own.T), role="parameters"),
            Matrix(
                f"O{part.heads[head]}",
                projection("Z", "W_O", None),
                numbers(part.head_outputs[0, head]),
                view.queries,
            ),
        ),
    )


def _output(part: AttentionTrace, layer: Attention, view: AttentionCaptions) -> Section:
    heads = [f"O{head}" for head in part.heads]
    matrices: tuple[Matrix, ...] = ()
    bias = None
    if part.output_bias is not None:
        bias = "b_O"
        matrices = (Matrix(bias, None, parameters(part.output_bias), ("bias",), role="parameters"),)
    total = sum_of_heads(heads, bias) if heads or bias else NoHeads()
    matrices += (Matrix("O", total, numbers(part.output[0]), view.queries),)
    return Section("output", "All heads together", matrices, layer=view.layer)
