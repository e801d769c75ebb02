"""Sections on one attention layer: each head from its projections to its output, then the sum over heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor, nn

from glassformer.inspection.explain.sections import Matrix, Section, numbers, parameters
from glassformer.inspection.traced import AttentionTrace
from glassformer.model.attention import Attention

Labels = tuple[str, ...]


@dataclass(frozen=True)
class AttentionCaptions:
    """Labels and choices for displaying an attention layer.

    Attributes:
        queries, keys: texts of the tokens.
        place: position of the query that the notes describe.
        x, source: names of the matrices that queries, and keys and values, are projected from.
        layer: layer number.
        heads: numbers of the heads to show; None: all.
        bias: formula of the position bias on the scores.
    """

    queries: Labels
    keys: Labels
    place: int
    x: str
    source: str
    layer: int
    heads: Collection[int] | None
    bias: str


def attention_sections(part: AttentionTrace, layer: Attention, view: AttentionCaptions) -> list[Section]:
    """Return a section for each shown head, then one for the sum of all heads.

    After pruning, the number of a head differs from its index.
    """
    chosen = [index for index, head in enumerate(part.heads) if view.heads is None or head in view.heads]
    return [*(_head(part, layer, index, view) for index in chosen), _output(part, layer, view)]


def looks(weights: Tensor, view: AttentionCaptions) -> str:
    """Return a note on the three keys with the largest weights for the query `view.place`; `weights` is (T, S)."""
    row = numbers(weights[view.place])[0]  # (S)
    best = np.argsort(-row, kind="stable")[:3]
    seen = ", ".join(f"{view.keys[key]} {row[key]:.4f}" for key in best if row[key] > 0)
    return f"{view.queries[view.place]} (position {view.place}) attends most to: {seen or 'no token'}"


def _head(part: AttentionTrace, layer: Attention, head: int, view: AttentionCaptions) -> Section:
    number = part.heads[head]
    shared = part.asks[head]
    steps = [_projections(part, layer, head, view)]
    if layer.query_norm is not None and layer.key_norm is not None:
        steps.append(_qk_norm(part, layer.query_norm, layer.key_norm, head, shared, view))
    if part.rotation is not None:
        steps.append(_rotation(part, head, shared, view))
    steps += _scores(part, head, view)
    steps.append(_mixing(part, layer, head, view))
    notes = [looks(part.weights[0, head], view)]
    others = [other for other, asked in zip(part.heads, part.asks, strict=True) if asked == shared and other != number]
    if others:
        notes.append(f"The head shares its keys and values with {_heads(others)}.")
    placed = tuple(replace(step, layer=view.layer, head=number) for step in steps)
    return Section("head", f"Head {number}", notes=tuple(notes), children=placed, layer=view.layer, head=number)


def _heads(numbers: list[int]) -> str:
    """Return heads in words: head 2, heads 0 and 2, heads 0, 1 and 4."""
    *most, last = map(str, numbers)
    return f"heads {', '.join(most)} and {last}" if most else f"head {last}"


def _projections(part: AttentionTrace, layer: Attention, head: int, view: AttentionCaptions) -> Section:
    """Return the section on Q, K and V of one head, with the head's columns of the projection matrices."""
    shared = part.asks[head]
    matrices: list[Matrix] = []
    for name, linear, index, source, projected, labels in (
        ("Q", layer.query, head, view.x, part.q_projected[0, head], view.queries),
        ("K", layer.key, shared, view.source, part.k_projected[0, shared], view.keys),
        ("V", layer.value, shared, view.source, part.v[0, shared], view.keys),
    ):
        width = part.q.shape[-1]
        rows = slice(index * width, index * width + width)
        matrices.append(Matrix(f"W_{name}", "", parameters(linear.weight[rows].T), role="parameters"))
        plus = ""
        if linear.bias is not None:
            matrices.append(Matrix(f"b_{name}", "", parameters(linear.bias[rows]), ("bias",), role="parameters"))
            plus = f" + b_{name}"
        matrices.append(Matrix(name, f"{source} W_{name}{plus}", numbers(projected), labels))
    return Section("projections", "Queries, keys and values", tuple(matrices))


def _qk_norm(
    part: AttentionTrace, query_norm: nn.RMSNorm, key_norm: nn.RMSNorm, head: int, shared: int, view: AttentionCaptions
) -> Section:
    """Return the section on query and key norms.

    The root mean square is that of each head, or r, that of all heads concatenated.
    """
    matrices: list[Matrix] = []
    for name, norm, index, projected, normed, labels in (
        ("Q", query_norm, head, part.q_projected[0], part.q_unturned[0], view.queries),
        ("K", key_norm, shared, part.k_projected[0], part.k_unturned[0], view.keys),
    ):
        K = projected.shape[-1]
        gain = numbers(norm.weight)  # (1, K) or (1, heads K)
        size = f"√(mean square + {norm.eps:g})"
        if len(norm.weight) > K:
            mean = projected.double().square().mean(dim=(0, 2))[:, None]  # (T, 1)
            formula = f"√(mean square of all heads' {name} + {norm.eps:g})"
            matrices.append(Matrix(f"r_{name}", formula, numbers((mean + (norm.eps or 0.0)).sqrt()), labels))
            gain = gain[:, index * K : index * K + K]  # (1, K)
            size = f"r_{name}"
        matrices.append(Matrix(f"g_{name}", "", gain, ("gain",), role="parameters"))
        matrices.append(Matrix(name, f"{name} / {size} · g_{name}", numbers(normed[index]), labels))
    return Section("qk_norm", "Queries and keys normalised", tuple(matrices))


def _rotation(part: AttentionTrace, head: int, shared: int, view: AttentionCaptions) -> Section:
    return Section(
        "rotation",
        "Queries and keys rotated by their positions",
        (
            Matrix("Q", "Q turned", numbers(part.q[0, head]), view.queries),
            Matrix("K", "K turned", numbers(part.k[0, shared]), view.keys),
        ),
    )


def _scores(part: AttentionTrace, head: int, view: AttentionCaptions) -> list[Section]:
    """Return the sections from query-key scores to attention weights."""
    K = part.q.shape[-1]

    def square(name: str, formula: str, values: Tensor) -> Matrix:
        return Matrix(name, formula, numbers(values), view.queries, view.keys)

    scaled = part.scaled[0, head]  # (T, S)
    allowed = part.allowed[0, 0].expand_as(part.scaled[0, head])  # (T, S)
    steps = [
        Section("scores", "Scores", (square("S", "Q Kᵀ", part.scores[0, head]),)),
        Section(
            "scaling",
            "Scaling",
            (square("S'", f"S / √{K}", scaled),),
            notes=(f"The head width is {K}, so each score is divided by √{K} = {math.sqrt(K):.4f}.",),
        ),
    ]
    name = "S'"
    if part.bias is not None:
        bias = part.bias[0, head]  # (T, S)
        name = "S' + B"
        steps.append(Section("bias", "Bias for distance", (square("B", view.bias, bias),)))
    steps.append(_mask(square, part.masked[0, head], name, allowed))
    into = "M" if steps[-1].matrices else name
    weights = Matrix(
        "A", f"softmax({into}), row by row", numbers(part.weights[0, head]), view.queries, view.keys, "weights"
    )
    steps.append(Section("softmax", "Softmax", (weights,)))
    return steps


def _mask(square: Callable[[str, str, Tensor], Matrix], masked: Tensor, name: str, allowed: Tensor) -> Section:
    """Return the section on masked scores (T, S); it has no matrix if no key is masked."""
    hidden = int((~allowed).sum())
    if not hidden:
        return Section("open", "Mask", notes=("Nothing is hidden.",))
    shown = square("M", f"{name}, -inf where hidden", masked)  # (T, S)
    verb = "are" if hidden > 1 else "is"
    return Section("mask", "Mask", (shown,), notes=(f"{hidden:,} of the {allowed.numel():,} scores {verb} hidden.",))


def _mixing(part: AttentionTrace, layer: Attention, head: int, view: AttentionCaptions) -> Section:
    K = part.q.shape[-1]
    own = layer.output.weight[:, head * K : head * K + K]  # (D, K)
    return Section(
        "mixing",
        "Weighted sum of values, and the output of the head",
        (
            Matrix("Z", "A V", numbers(part.mixed[0, head]), view.queries),
            Matrix("W_O", "", parameters(own.T), role="parameters"),
            Matrix(f"O{part.heads[head]}", "Z W_O", numbers(part.head_outputs[0, head]), view.queries),
        ),
    )


def _output(part: AttentionTrace, layer: Attention, view: AttentionCaptions) -> Section:
    written = [f"O{head}" for head in part.heads]
    terms = [written[0], "…", written[-1]] if len(written) > 2 else written
    matrices: tuple[Matrix, ...] = ()
    if part.output_bias is not None:
        terms.append("b_O")
        matrices = (Matrix("b_O", "", parameters(part.output_bias), ("bias",), role="parameters"),)
    total = " + ".join(terms) or "zeros: no head is left"
    matrices += (Matrix("O", total, numbers(part.output[0]), view.queries),)
    return Section("output", "All heads together", matrices, layer=view.layer)
