"""Operations on matrices of a walk: sums, matrix multiplications, scaling, norms, activations, masks and softmax."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from glassformer.inspection.explain.operations import CellDerivation, FormulaContext, Numbers, Products
from glassformer.model.transformer import activate

SHORTENED = 2
"""Maximum number of heads that a formula shows; if there are more, it shows only the first and the last."""


@dataclass(frozen=True)
class Term:
    """Matrix in a formula, such as X or b_O."""

    name: str

    @property
    def formula(self) -> str:
        return self.name

    def compute_matrix(self, context: FormulaContext) -> Numbers:
        return context[self.name]

    def lines(self, context: FormulaContext, row: int, column: int) -> tuple[list[tuple[str, float]], Products | None]:
        """Return the line of this matrix in the derivation of a cell, and None, because there is no dot product."""
        matrix = context[self.name]
        r = min(row, len(matrix) - 1)  # a bias has one row, which applies to all rows
        return [(f"{self.name}[{r}, {column}]", float(matrix[r, column]))], None


@dataclass(frozen=True)
class MatrixProduct:
    """Matrix multiplication, such as X W_Q, or Q Kᵀ if `transposed`."""

    left: str
    right: str
    transposed: bool = False

    @property
    def formula(self) -> str:
        return f"{self.left} {self.right}{'ᵀ' if self.transposed else ''}"

    def compute_matrix(self, context: FormulaContext) -> Numbers:
        product: Numbers = context[self.left] @ self._right(context)
        return product

    def lines(self, context: FormulaContext, row: int, column: int) -> tuple[list[tuple[str, float]], Products | None]:
        """Return the line of this product in the derivation of a cell, and the factors of its dot product."""
        factors = zip(context[self.left][row].tolist(), self._right(context)[:, column].tolist(), strict=True)
        right_vector = f"{self.right}[{column}, :]" if self.transposed else f"{self.right}[:, {column}]"
        products = Products(f"{self.left}[{row}, :]", right_vector, tuple(factors))
        return [(f"{self.formula}: sum of {len(products.factors):,} products", products.total)], products

    def _right(self, context: FormulaContext) -> Numbers:
        return context[self.right].T if self.transposed else context[self.right]


@dataclass(frozen=True)
class Sum:
    """Sum of matrices and matrix products, such as X W_Q + b_Q or O0 + … + O5 + b_O.

    Args:
        terms: summands, in the order of the formula.
        heads: number of leading terms that are outputs of heads; see `SHORTENED`.
    """

    terms: tuple[Term | MatrixProduct, ...]
    heads: int = 0

    @property
    def formula(self) -> str:
        names = [term.formula for term in self.terms]
        if self.heads > SHORTENED:
            names[1 : self.heads - 1] = ["…"]
        return " + ".join(names)

    def compute_matrix(self, context: FormulaContext) -> Numbers:
        total: Numbers = np.zeros((1, 1))
        for term in self.terms:
            total = total + term.compute_matrix(context)
        return total

    def derive_cell(self, context: FormulaContext, row: int, column: int) -> CellDerivation:
        lines: list[tuple[str, float]] = []
        products = None
        for term in self.terms:
            term_lines, term_products = term.lines(context, row, column)
            lines += term_lines
            products = term_products or products
        if len(lines) > 1:
            lines.append(("sum", math.fsum(value for _, value in lines)))
        return CellDerivation(tuple(lines), products)


def sum_of(*names: str) -> Sum:
    """Return the sum of the matrices with these names."""
    return Sum(tuple(Term(name) for name in names))


def projection(x: str, matrix: str, bias: str | None) -> Sum:
    """Return x W, or x W + b."""
    product = MatrixProduct(x, matrix)
    return Sum((product,) if bias is None else (product, Term(bias)))


def sum_of_heads(heads: Sequence[str], bias: str | None) -> Sum:
    """Return the sum of the outputs of heads and, if there is one, the bias of the output projection."""
    names = [*heads, *([] if bias is None else [bias])]
    return Sum(tuple(Term(name) for name in names), heads=len(heads))


@dataclass(frozen=True)
class Entrywise(ABC):
    """Entrywise operation. Subclasses define the formula, the inputs and the computation."""

    @property
    @abstractmethod
    def formula(self) -> str:
        """Formula to print beside the matrix."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """Names of the input matrices, in the order of the arguments of `compute`."""

    @abstractmethod
    def compute(self, *entries: Numbers) -> Numbers:
        """Return the result for arrays that broadcast to each other."""

    def last_line(self) -> str:
        """Return the name of the result in the derivation of a cell."""
        return self.formula

    def compute_matrix(self, context: FormulaContext) -> Numbers:
        return self.compute(*(context[name] for name in self.inputs))

    def derive_cell(self, context: FormulaContext, row: int, column: int) -> CellDerivation:
        lines = []
        for name in self.inputs:
            matrix = context[name]
            r = min(row, matrix.shape[0] - 1)  # a gain has one row, which applies to all rows
            c = min(column, matrix.shape[1] - 1)  # r, the sizes of the rows, has one column
            lines.append((f"{name}[{r}, {c}]", float(matrix[r, c])))
        result = self.compute(*(np.array([[value]]) for _, value in lines))
        return CellDerivation((*lines, (self.last_line(), float(result[0, 0]))))


@dataclass(frozen=True)
class Scaled(Entrywise):
    """Scores divided by √K, such as S / √16."""

    name: str
    width: int

    @property
    def formula(self) -> str:
        return f"{self.name} / √{self.width}"

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.name,)

    def compute(self, *entries: Numbers) -> Numbers:
        (scores,) = entries
        return scores / math.sqrt(self.width)

    def last_line(self) -> str:
        return f"{self.formula} = {self.name} / {math.sqrt(self.width):.4f}"


@dataclass(frozen=True)
class Gated(Entrywise):
    """Entrywise product of the activated gate and the up-projection, a(G) · U."""

    gate: str
    up: str

    @property
    def formula(self) -> str:
        return f"{self.gate} · {self.up}"

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.gate, self.up

    def compute(self, *entries: Numbers) -> Numbers:
        gate, up = entries
        return gate * up


@dataclass(frozen=True)
class DividedByRowSize(Entrywise):
    """Rows divided by their root mean squares and multiplied by a gain, such as Q / r_Q · g_Q."""

    name: str
    size: str
    gain: str

    @property
    def formula(self) -> str:
        return f"{self.name} / {self.size} · {self.gain}"

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.name, self.size, self.gain

    def compute(self, *entries: Numbers) -> Numbers:
        x, size, gain = entries
        return x / size * gain


@dataclass(frozen=True)
class Activated(Entrywise):
    """Activation of each entry, such as gelu(U).

    Args:
        activation: name of the activation in formulas; for a gated layer, the name of the gate's activation, silu or
            gelu.
        name: name of the input matrix.
    """

    activation: str
    name: str

    @property
    def formula(self) -> str:
        return f"{self.activation}({self.name})"

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.name,)

    def compute(self, *entries: Numbers) -> Numbers:
        (x,) = entries
        kind: Any = {"silu": "swiglu"}.get(self.activation, self.activation)
        activated: Numbers = activate(torch.from_numpy(x.copy()), kind).numpy()
        return activated


@dataclass(frozen=True)
class Masked:
    """Scores with -inf where the key is masked."""

    scores: Sum

    @property
    def formula(self) -> str:
        return f"{self.scores.formula}, -inf where masked"

    def compute_matrix(self, context: FormulaContext) -> Numbers:
        return context.hide(self.scores.compute_matrix(context))

    def derive_cell(self, context: FormulaContext, row: int, column: int) -> CellDerivation:
        value = float(self.compute_matrix(context)[row, column])
        scores_derivation = self.scores.derive_cell(context, row, column)
        label = f"key {column} is masked for query {row}" if math.isinf(value) else "not masked: unchanged"
        return CellDerivation((*scores_derivation.lines, (label, value)))


@dataclass(frozen=True)
class Softmax:
    """Softmax of each row of scores; a row in which all keys are masked becomes zeros."""

    scores: Sum

    @property
    def formula(self) -> str:
        return f"softmax({self.scores.formula}), row by row"

    def compute_matrix(self, context: FormulaContext) -> Numbers:
        exponentials, _ = _exponentials(self.scores.compute_matrix(context))
        total = exponentials.sum(axis=1, keepdims=True)
        weights: Numbers = exponentials / np.where(total == 0, 1, total)
        return weights

    def derive_cell(self, context: FormulaContext, row: int, column: int) -> CellDerivation:
        scores = self.scores.compute_matrix(context)
        exponentials, largest = _exponentials(scores)
        exponential = float(exponentials[row, column])
        total = float(exponentials[row].sum())
        return CellDerivation(
            (
                (f"{self.scores.formula}[{row}, {column}]", float(scores[row, column])),
                (f"largest of row {row}", float(largest[row, 0])),
                ("e^(score - largest)", exponential),
                (f"sum of e^(score - largest) over row {row}", total),
                ("e^(score - largest) / sum", exponential / (total or 1.0)),
            )
        )


def _exponentials(scores: Numbers) -> tuple[Numbers, Numbers]:
    """Return e^(score - largest of its row), (T, S), and the largest scores, (T, 1), 0 where all are -inf."""
    largest = scores.max(axis=1, keepdims=True, initial=-np.inf)
    largest = np.where(np.isinf(largest), 0.0, largest)
    return np.exp(scores - largest), largest


@dataclass(frozen=True)
class Normalized:
    """Norm of each row: LayerNorm if `centred`, otherwise RMSNorm.

    Args:
        name: name of the input matrix.
        centred: True if the mean is subtracted.
        eps: number added to the variance or the mean square.
        gain, bias: names of the parameters; None: no such parameter.
    """

    name: str
    centred: bool
    eps: float
    gain: str | None = None
    bias: str | None = None

    @property
    def formula(self) -> str:
        if self.centred:
            formula = f"({self.name} - mean) / √(variance + {self.eps:g})"
        else:
            formula = f"{self.name} / √(mean square + {self.eps:g})"
        if self.gain is not None:
            formula += f" · {self.gain}"
        if self.bias is not None:
            formula += f" + {self.bias}"
        return formula

    def compute_matrix(self, context: FormulaContext) -> Numbers:
        x = context[self.name]
        if self.centred:
            x = x - x.mean(axis=1, keepdims=True)
        normalized: Numbers = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + self.eps)
        if self.gain is not None:
            normalized = normalized * context[self.gain]
        if self.bias is not None:
            normalized = normalized + context[self.bias]
        return normalized

    def derive_cell(self, context: FormulaContext, row: int, column: int) -> CellDerivation:
        x = context[self.name][row]
        value = float(x[column])
        lines = [(f"{self.name}[{row}, {column}]", value)]
        if self.centred:
            mean = float(x.mean())
            variance = float(x.var())
            lines += [(f"mean of row {row}", mean), (f"variance of row {row}", variance)]
            size = math.sqrt(variance + self.eps)
            value = value - mean
            size_label = "√(variance + ε)"
        else:
            square = float((x**2).mean())
            lines.append((f"mean square of row {row}", square))
            size = math.sqrt(square + self.eps)
            size_label = "√(mean square + ε)"
        value /= size
        lines += [(f"{size_label}, ε = {self.eps:g}", size), ("normalized", value)]
        if self.gain is not None:
            gain = float(context[self.gain][0, column])
            value = value * gain
            lines += [(f"{self.gain}[{column}]", gain), ("times the gain", value)]
        if self.bias is not None:
            bias = float(context[self.bias][0, column])
            value = value + bias
            lines += [(f"{self.bias}[{column}]", bias), ("plus the bias", value)]
        return CellDerivation(tuple(lines))
