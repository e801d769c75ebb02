"""Formulas of a walk, evaluated in float64 for a whole matrix and for one cell."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from glassformer.inspection.explain.sections import Numbers
from glassformer.inspection.explain.subject import Subject
from glassformer.inspection.sites import stacks
from glassformer.model.transformer import Embedding, Stack, activate


@dataclass(frozen=True)
class Products:
    """Terms of a dot product left · right.

    Attributes:
        left, right: names with their row or column, such as X[2, :] and W_Q[:, 5].
        factors: pairs of factors, (terms, 2).
    """

    left: str
    right: str
    factors: tuple[tuple[float, float], ...]

    @property
    def total(self) -> float:
        """Sum of the terms, computed by `math.fsum` without loss of precision."""
        return math.fsum(one * other for one, other in self.factors)


@dataclass(frozen=True)
class Working:
    """Derivation of one cell of a matrix.

    Attributes:
        lines: names and values of the inputs and results, in order; the last one is the cell.
        products: terms of the dot product, for a matrix multiplication; otherwise None.
    """

    lines: tuple[tuple[str, float], ...]
    products: Products | None = None

    @property
    def value(self) -> float:
        """Value of the cell."""
        return self.lines[-1][1]


@dataclass(frozen=True, eq=False)
class FormulaContext:
    """Context of a formula: its model, its position in the model, and the matrices before it.

    Attributes:
        subject: the model and its input.
        known: the earlier matrices that the formula may use, by name.
        source: whether the formula belongs to the encoder of an encoder-decoder.
        layer, head: the layer and head of the formula; None if it belongs to none.
        cross: whether the formula belongs to a cross-attention.
        shown: the matrix that the formula yields, as computed by the forward pass.
    """

    subject: Subject
    known: dict[str, Numbers]
    source: bool
    layer: int | None
    head: int | None
    cross: bool
    shown: Numbers

    def __getitem__(self, name: str) -> Numbers:
        if name not in self.known and name.endswith("ᵀ"):
            return self.known[name[:-1]].T
        return self.known[name]

    def hide(self, scores: Numbers) -> Numbers:
        """Return scores (T, S) with -inf where the forward pass masked the key."""
        return np.where(np.isneginf(self.shown), -np.inf, scores)

    @property
    def stack(self) -> Stack:
        """Stack that the formula belongs to."""
        found = stacks(self.subject.model)
        return found["enc"] if self.source else list(found.values())[-1]

    @property
    def embedding(self) -> Embedding:
        """Embedding of the formula's stack."""
        own: Embedding | None = getattr(self.subject.model, "source_embedding", None) if self.source else None
        return self.subject.model.embedding if own is None else own

    @property
    def ids(self) -> tuple[int, ...]:
        """Token ids that the formula's stack reads."""
        return self.subject.ids if self.source or self.subject.target_ids is None else self.subject.target_ids


@dataclass(frozen=True, eq=False)
class Sum:
    """Sum of matrices, elementwise products and matrix multiplications: X W_Q + b_Q, X + O, a(G) · U."""

    terms: tuple[tuple[str, Numbers, str, Numbers | None, str], ...]

    def whole(self) -> Numbers:
        total: Numbers = np.zeros((1, 1))
        for _, one, sign, other, _ in self.terms:
            total = total + (one if other is None else one * other if sign == "·" else one @ other)
        return total

    def at(self, row: int, column: int) -> Working:
        lines = []
        products = None
        for left, one, sign, other, right in self.terms:
            r = min(row, len(one) - 1)  # a bias has one row
            if other is None:
                lines.append((f"{left}[{r}, {column}]", float(one[r, column])))
            elif sign == "·":
                pair = float(one[r, column]), float(other[r, column])
                lines += [(f"{left}[{r}, {column}]", pair[0]), (f"{right}[{r}, {column}]", pair[1])]
                return Working((*lines, (f"{left} · {right}", pair[0] * pair[1])))
            else:
                factors = tuple(zip(one[r].tolist(), other[:, column].tolist(), strict=True))
                beside = f"{right[:-1]}[{column}, :]" if right == "Kᵀ" else f"{right}[:, {column}]"
                products = Products(f"{left}[{r}, :]", beside, factors)
                lines.append((f"{left} {right}: sum of {len(factors):,} products", products.total))
        if len(lines) > 1:
            lines.append(("sum", math.fsum(value for _, value in lines)))
        return Working(tuple(lines), products)


def summed(context: FormulaContext, formula: str) -> Sum:
    """Return the formula of a sum, such as `X W_Q + b_Q`."""
    terms: list[tuple[str, Numbers, str, Numbers | None, str]] = []
    for term in formula.split(" + "):
        if term == "…":  # the formula abbreviates the heads between the first and the last
            heads = sorted(
                (name for name in context.known if re.fullmatch(r"O\d+", name)), key=lambda name: int(name[1:])
            )
            terms += [(name, context[name], "", None, "") for name in heads[1:-1]]
        elif " · " in term:
            left, _, right = term.partition(" · ")
            terms.append((left, context[left], "·", context[right], right))
        else:
            left, _, right = term.rpartition(" ") if term.startswith("last vectors") else term.partition(" ")
            terms.append((left, context[left], " ", context[right] if right else None, right))
    return Sum(tuple(terms))


@dataclass(frozen=True, eq=False)
class Elementwise:
    """Elementwise operation: scaling, division by a number for each row, or an activation."""

    names: tuple[str, ...]
    matrices: tuple[Numbers, ...]
    how: str
    of: Callable[..., Any]

    def whole(self) -> Numbers:
        found: Numbers = self.of(*self.matrices)
        return found

    def at(self, row: int, column: int) -> Working:
        lines = []
        for name, matrix in zip(self.names, self.matrices, strict=True):
            r = min(row, matrix.shape[0] - 1)  # a gain has one row
            c = min(column, matrix.shape[1] - 1)  # r, the size of each row, has one column
            lines.append((f"{name}[{r}, {c}]", float(matrix[r, c])))
        return Working((*lines, (self.how, float(self.of(*(np.array([[value]]) for _, value in lines))[0, 0]))))


def scaled(context: FormulaContext, name: str, width: str) -> Elementwise:
    """Return the formula that divides a matrix by the square root of `width`."""
    root = math.sqrt(int(width))
    return Elementwise((name,), (context[name],), f"{name} / √{width} = {name} / {root:.4f}", lambda x: x / root)


def by_row(context: FormulaContext, name: str, size: str, gain: str) -> Elementwise:
    """Return the formula that divides each row by its size and multiplies it by a gain."""
    return Elementwise(
        (name, size, gain),
        (context[name], context[size], context[gain]),
        f"{name} / {size} · {gain}",
        lambda x, r, g: x / r * g,
    )


def activated(context: FormulaContext, activation: str, name: str) -> Elementwise:
    """Return the formula of an activation."""
    kind: Any = {"silu": "swiglu"}.get(activation, activation)
    return Elementwise(
        (name,), (context[name],), f"{activation}({name})", lambda x: activate(torch.from_numpy(x.copy()), kind).numpy()
    )


@dataclass(frozen=True, eq=False)
class MaskedScores:
    """Attention scores, -inf where the key is masked."""

    scores: Sum
    context: FormulaContext

    def whole(self) -> Numbers:
        return self.context.hide(self.scores.whole())

    def at(self, row: int, column: int) -> Working:
        value = float(self.whole()[row, column])
        made = self.scores.at(row, column)
        why = f"key {column} is hidden from query {row}" if math.isinf(value) else "not hidden: unchanged"
        return Working((*made.lines, (why, value)))


def hidden(context: FormulaContext, scores: str) -> MaskedScores:
    """Return the formula of masked scores: `scores` with -inf where the key is masked."""
    return MaskedScores(summed(context, scores), context)


@dataclass(frozen=True, eq=False)
class Softmax:
    """Softmax over each row of scores; a fully masked row becomes zeros."""

    name: str
    scores: Sum

    def whole(self) -> Numbers:
        powers, _ = self._powers()
        total = powers.sum(axis=1, keepdims=True)
        found: Numbers = powers / np.where(total == 0, 1, total)
        return found

    def at(self, row: int, column: int) -> Working:
        powers, largest = self._powers()
        own = float(powers[row, column])
        total = float(powers[row].sum())
        score = float(self.scores.whole()[row, column])
        return Working(
            (
                (f"{self.name}[{row}, {column}]", score),
                (f"largest score of row {row}", float(largest[row, 0])),
                ("e^(score - largest)", own),
                (f"sum of e^(score - largest) over row {row}", total),
                ("e^(score - largest) / sum", own / (total or 1.0)),
            )
        )

    def _powers(self) -> tuple[Numbers, Numbers]:
        scores = self.scores.whole()
        largest = scores.max(axis=1, keepdims=True, initial=-np.inf)
        largest = np.where(np.isinf(largest), 0.0, largest)
        return np.exp(scores - largest), largest


def softmax(context: FormulaContext, scores: str) -> Softmax:
    """Return the formula of the softmax over each row of scores."""
    return Softmax(scores, summed(context, scores))


@dataclass(frozen=True, eq=False)
class NormFormula:
    """Norm of each row: LayerNorm if `centred`, otherwise RMSNorm, with an optional gain and bias."""

    name: str
    x: Numbers
    centred: bool
    eps: float
    more: tuple[tuple[str, str, Numbers], ...]

    def whole(self) -> Numbers:
        x = self.x - self.x.mean(axis=1, keepdims=True) if self.centred else self.x
        found: Numbers = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + self.eps)
        for sign, _, values in self.more:
            found = found * values if sign == "·" else found + values
        return found

    def at(self, row: int, column: int) -> Working:
        x = self.x[row]
        value = float(self.x[row, column])
        lines = [(f"{self.name}[{row}, {column}]", value)]
        if self.centred:
            mean = float(x.mean())
            lines += [(f"mean of row {row}", mean), (f"variance of row {row}", float(x.var()))]
            size = math.sqrt(float(x.var()) + self.eps)
            value = value - mean
            how = "√(variance + ε)"
        else:
            square = float((x**2).mean())
            lines.append((f"mean square of row {row}", square))
            size = math.sqrt(square + self.eps)
            how = "√(mean square + ε)"
        value /= size
        lines += [(f"{how}, ε = {self.eps:g}", size), ("normalised", value)]
        for sign, name, values in self.more:
            other = float(values[0, column])
            value = value * other if sign == "·" else value + other
            lines += [(f"{name}[{column}]", other), ("times the gain" if sign == "·" else "plus the bias", value)]
        return Working(tuple(lines))


def normed(context: FormulaContext, name: str, kind: str, eps: str, rest: str) -> NormFormula:
    """Return the formula of a norm; `rest` has its gain and bias, such as ` · g + b`."""
    more = tuple((sign, letter, context[letter]) for sign, letter in re.findall(r" ([·+]) (\w+)", rest))
    return NormFormula(name, context[name], kind == "variance", float(eps), more)
