"""Operations behind the matrices of a walk: each has a formula, and recomputes its matrix or one cell in float64.

This file has the protocol and what all operations share. `arithmetic.py` has those that compute with matrices of the
walk, `lookups.py` those that read tables of the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from glassformer.inspection.explain.sections import Numbers
from glassformer.inspection.explain.subject import Subject
from glassformer.inspection.sites import stacks
from glassformer.model.transformer import Embedding, Stack


@dataclass(frozen=True)
class Products:
    """Terms of a dot product left · right.

    Attributes:
        left, right: names with their row or column, such as X[2, :] and W_Q[:, 5].
        factors: (terms, 2).
    """

    left: str
    right: str
    factors: tuple[tuple[float, float], ...]

    @property
    def total(self) -> float:
        """Sum of the terms, added by `math.fsum` without loss of precision."""
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
    """Inputs of an operation: the model, the position of the operation in it, and the matrices before it.

    Attributes:
        subject: the model and its input.
        known: the matrices before it, by name.
        source: whether the operation belongs to the encoder of an encoder-decoder.
        layer, head: the layer and head of the operation; None if it belongs to none.
        cross: whether the operation belongs to a cross-attention.
        shown: the resulting matrix, as computed by the forward pass.
    """

    subject: Subject
    known: dict[str, Numbers]
    source: bool
    layer: int | None
    head: int | None
    cross: bool
    shown: Numbers

    def __getitem__(self, name: str) -> Numbers:
        return self.known[name]

    def hide(self, scores: Numbers) -> Numbers:
        """Return scores (T, S) with -inf where the forward pass has -inf, because the key was hidden."""
        return np.where(np.isneginf(self.shown), -np.inf, scores)

    @property
    def stack(self) -> Stack:
        """Stack that the operation belongs to."""
        found = stacks(self.subject.model)
        return found["enc"] if self.source else list(found.values())[-1]

    @property
    def embedding(self) -> Embedding:
        """Embedding of the operation's stack."""
        own: Embedding | None = getattr(self.subject.model, "source_embedding", None) if self.source else None
        return self.subject.model.embedding if own is None else own

    @property
    def ids(self) -> tuple[int, ...]:
        """Token ids that the operation's stack reads."""
        return self.subject.ids if self.source or self.subject.target_ids is None else self.subject.target_ids


class Operation(Protocol):
    """An operation with its inputs named."""

    @property
    def formula(self) -> str:
        """Formula to print beside the matrix."""
        ...

    def whole(self, context: FormulaContext) -> Numbers:
        """Return the whole matrix, or an array that broadcasts to it."""
        ...

    def at(self, context: FormulaContext, row: int, column: int) -> Working:
        """Return the derivation of one cell."""
        ...
