"""Tape: all matrices of a walk by number; all of them except parameters can be recomputed.

The operation of a matrix recomputes it in float64 from the matrices shown before it and, if needed, from tables of the
model. The difference from the matrix shown is the rounding error of the model's arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from glassformer.base.errors import GlassError
from glassformer.base.wording import span
from glassformer.inspection.explain.operations import CellDerivation, FormulaContext, Numbers
from glassformer.inspection.explain.sections import Matrix, Section, Walk
from glassformer.inspection.explain.subject import Subject
from glassformer.inspection.explain.walk import make_walk
from glassformer.model.transformer import Model


@dataclass(frozen=True, eq=False)
class TapeStep:
    """Section of a walk, with its position on the tape.

    Attributes:
        part: number of the part of the model, such as a layer, that the section belongs to.
        section: the section.
        depth: level of nesting: 0 for the section of a part, 1 for its children, and so on.
        first: number of the section's first matrix.
    """

    part: int
    section: Section
    depth: int
    first: int


@dataclass(frozen=True, eq=False)
class Tape:
    """All matrices of one forward pass.

    Attributes:
        walk: the walk with these matrices.
        parts: titles of the parts of the model, in order.
        steps: all sections, in order.
        matrices: all matrices, in order; the index of a matrix is its number.
    """

    walk: Walk
    parts: tuple[str, ...]
    steps: tuple[TapeStep, ...]
    matrices: tuple[Matrix, ...]
    _contexts: tuple[FormulaContext, ...] = field(repr=False)

    def matrix(self, number: int) -> Matrix:
        """Return the matrix with the given number.

        Raises:
            GlassError: no matrix has that number.
        """
        if not 0 <= number < len(self.matrices):
            raise GlassError(f"there is no matrix {number} on this tape", f"Give {span(0, len(self.matrices) - 1)}.")
        return self.matrices[number]

    def recompute(self, number: int) -> Numbers | None:
        """Return the whole matrix, recomputed in float64 by its operation; None for parameters.

        Raises:
            GlassError: no matrix has that number.
        """
        matrix = self.matrix(number)
        if matrix.operation is None:
            return None
        return np.broadcast_to(matrix.operation.compute_matrix(self._contexts[number]), matrix.shape)

    def difference(self, number: int) -> float | None:
        """Return the largest absolute difference between the recomputed and the shown matrix; None for parameters.

        Raises:
            GlassError: no matrix has that number.
        """
        recomputed = self.recompute(number)
        if recomputed is None:
            return None
        values = self.matrices[number].values
        equal = recomputed == values  # so that the difference of equal infinities is 0
        return float(np.abs(np.where(equal, 0.0, recomputed) - np.where(equal, 0.0, values)).max(initial=0.0))

    def derive_cell(self, number: int, row: int, column: int) -> CellDerivation | None:
        """Return the derivation of one cell from the numbers shown; None for parameters.

        Raises:
            GlassError: there is no such cell.
        """
        matrix = self.matrix(number)
        rows, columns = matrix.shape
        if not (0 <= row < rows and 0 <= column < columns):
            problem = f"{matrix.name} has no cell at row {row}, column {column}"
            raise GlassError(problem, f"Give row {span(0, rows - 1)} and column {span(0, columns - 1)}.")
        return None if matrix.operation is None else matrix.operation.derive_cell(self._contexts[number], row, column)


def make_tape(subject: Subject, top: int = 10) -> Tape:
    """Run one forward pass and return its tape.

    Args:
        subject: the model and its input.
        top: maximum number of candidates in each prediction.
    """
    walk = make_walk(subject, top=top)
    return _Recorder(subject).tape(walk)


def tape_bytes(model: Model, tokens: int, target: int | None = None) -> int:
    """Estimate the bytes of a tape's matrices, excluding parameters, so that a long text can be refused in advance.

    Args:
        model: a model of any family.
        tokens: number of tokens of the text, or of the source.
        target: number of target tokens of an encoder-decoder; otherwise None.
    """
    config = model.config
    T = tokens if target is None else target
    scores = config.layers * config.heads * 5 * T * T
    rows = config.layers * T
    if target is not None:
        encoder_layers = config.encoder_layers or config.layers
        scores += config.heads * (4 * config.layers * T * tokens + 5 * encoder_layers * tokens * tokens)
        rows += config.layers * (T + tokens) // 2 + encoder_layers * tokens
    vectors = rows * (config.heads * (4 * (config.K + config.U) + config.width) + 12 * config.width + 5 * config.F)
    return 8 * (scores + vectors + T * model.vocab_size)


class _Recorder:
    """Recorder that collects the matrices of a walk, with the context of each operation."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._named_matrices = dict[str, Numbers]()
        self._parts: list[str] = []
        self._steps: list[TapeStep] = []
        self._matrices: list[Matrix] = []
        self._contexts: list[FormulaContext] = []
        self._side = "own"
        self._cross = False

    def tape(self, walk: Walk) -> Tape:
        """Return the tape of the walk."""
        for section, title in _walk_parts(walk):
            if section.key in ("encoder", "decoder"):
                self._begin_stack(section.key)
                continue
            self._parts.append(title)
            if section.key in ("transform", "logits") and "last hidden states" not in self._named_matrices:
                last_vectors = self._stack_output()
                self._named_matrices["last hidden states"] = (
                    last_vectors[list(self._subject.positions)] if self._subject.positions else last_vectors
                )
            matrices_before = dict(self._named_matrices)
            self._add_section(section, 0)
            if section.key == "layer":  # each layer uses the same names, beginning with X for its input
                self._named_matrices = {**matrices_before, "X": self._named_matrices[section.output]}
        return Tape(walk, tuple(self._parts), tuple(self._steps), tuple(self._matrices), tuple(self._contexts))

    def _begin_stack(self, stack: str) -> None:
        """Begin the encoder or the decoder: discard earlier matrices, except the encoder's output, named "memory"."""
        self._side = "source" if stack == "encoder" else "own"
        self._named_matrices = {} if stack == "encoder" else {"memory": self._stack_output()}

    def _stack_output(self) -> Numbers:
        """Return the output of the most recent stack, after the final norm, if any."""
        return self._named_matrices.get("Y", self._named_matrices["X"])

    def _add_section(self, section: Section, depth: int) -> None:
        self._steps.append(TapeStep(len(self._parts) - 1, section, depth, len(self._matrices)))
        cross_before = self._cross
        self._cross = self._cross or section.key == "cross"
        if section.key == "pooling":
            self._named_matrices["above"] = self._stack_output()
        for matrix in section.matrices:
            self._add_matrix(matrix, section)
        for child in section.children:
            self._add_section(child, depth + 1)
        self._cross = cross_before

    def _add_matrix(self, matrix: Matrix, section: Section) -> None:
        source = self._side == "source"
        named_matrices = dict(self._named_matrices)
        context = FormulaContext(
            self._subject, named_matrices, source, section.layer, section.head, self._cross, matrix.values
        )
        self._contexts.append(context)
        self._matrices.append(matrix)
        self._named_matrices[matrix.name] = matrix.values


def _walk_parts(walk: Walk) -> Iterator[tuple[Section, str]]:
    """Yield the parts of a model with their titles; for an encoder-decoder, each stack, followed by its parts."""
    for section in walk.sections:
        yield section, section.title
        if section.key in ("encoder", "decoder"):
            for child in section.children:
                yield child, f"{section.key.capitalize()}: {child.title[0].lower()}{child.title[1:]}"
