"""Operations of a walk: each has a formula for a matrix, and recomputes the matrix or one cell in float64.

This module defines the `Operation` protocol and shared data classes. `arithmetic` has the operations that need only
matrices of the walk. `lookups` has the operations that also need the model, such as its tables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from glassformer.inspection.explain.subject import Subject
from glassformer.model.transformer import Embedding, Stack

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Products:
    """Terms of a dot product left · right.

    Attributes:
        left, right: names of the two vectors, such as X[2, :] and W_Q[:, 5].
        factors: (terms, 2) pairs of numbers to multiply.
    """

    left: str
    right: str
    factors: tuple[tuple[float, float], ...]

    @property
    def total(self) -> float:
        """Dot product: sum of the terms, by `math.fsum` without loss of precision."""
        return math.fsum(one * other for one, other in self.factors)


@dataclass(frozen=True)
class CellDerivation:
    """Derivation of one cell of a matrix.

    Attributes:
        lines: names and values of inputs and intermediate results, in order; the last line is the cell.
        products: terms of the dot product, if the derivation lists one for a matrix multiplication; otherwise None.
    """

    lines: tuple[tuple[str, float], ...]
    products: Products | None = None

    @property
    def value(self) -> float:
        """Value of the cell."""
        return self.lines[-1][1]


@dataclass(frozen=True, eq=False)
class FormulaContext:
    """Context of an operation: the model, the operation's location in the model, and the matrices computed before.

    Attributes:
        subject: the model and its input.
        matrices: matrices computed before, by name.
        source: True if the operation belongs to the encoder of an encoder-decoder.
        layer, head: numbers of the layer and head that the operation belongs to; None if there is none.
        cross: True if the operation belongs to cross-attention.
        result: result of the operation in the forward pass.
    """

    subject: Subject
    matrices: dict[str, Numbers]
    source: bool
    layer: int | None
    head: int | None
    cross: bool
    result: Numbers

    def __getitem__(self, name: str) -> Numbers:
        return self.matrices[name]

    def hide(self, scores: Numbers) -> Numbers:
        """Return the scores (T, S), with -inf where the forward pass has -inf for a masked key."""
        return np.where(np.isneginf(self.result), -np.inf, scores)

    @property
    def stack(self) -> Stack:
        """Stack that the operation belongs to."""
        named_stacks = self.subject.model.stacks
        return named_stacks["enc"] if self.source else list(named_stacks.values())[-1]

    @property
    def embedding(self) -> Embedding:
        """Embedding of the operation's stack."""
        source_embedding: Embedding | None = (
            getattr(self.subject.model, "source_embedding", None) if self.source else None
        )
        return self.subject.model.embedding if source_embedding is None else source_embedding

    @property
    def ids(self) -> tuple[int, ...]:
        """Token ids that the operation's stack reads."""
        return self.subject.ids if self.source or self.subject.target_ids is None else self.subject.target_ids


class Operation(Protocol):
    """Protocol of the operation that computes a matrix of a walk."""

    @property
    def formula(self) -> str:
        """Formula to print beside the matrix."""
        ...

    def compute_matrix(self, context: FormulaContext) -> Numbers:
        """Return the whole matrix, or an array that broadcasts to its shape."""
        ...

    def derive_cell(self, context: FormulaContext, row: int, column: int) -> CellDerivation:
        """Return the derivation of one cell."""
        ...
