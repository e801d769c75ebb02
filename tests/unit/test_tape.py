"""The tape: every printed formula can be parsed, and computes the displayed numbers from earlier numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassformer.base.errors import GlassError
from glassformer.inspection.explain.tape import make_tape, tape_bytes
from tests.property.models import some_heads
from tests.unit.explained_models import CHOICES, FAMILIES, subject

MORE: list[dict[str, Any]] = [{"head_transform": True}, {"head_transform": True, "norm": "none"}]
CASES = [
    *((FAMILIES[number % len(FAMILIES)], choice) for number, choice in enumerate([*CHOICES, *MORE])),
    *(("encoder-decoder", choice) for choice in [*CHOICES[::2], *MORE]),
]
REMOVED = {"kv_heads": 2, "qk_norm": "head", "positions": "relative"}


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "choice"), CASES, ids=str)
def test_every_matrix_follows_from_earlier_ones(family: str, choice: dict[str, Any]) -> None:
    if family == "classifier":
        choice = {name: value for name, value in choice.items() if name != "head_transform"}
    check(family, choice)


@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder-decoder"])
def test_every_matrix_follows_from_earlier_ones_with_removed_heads(family: str) -> None:
    left = tuple(head for head in some_heads(family) if ".2." not in head)  # these models have two layers
    check(family, {**REMOVED, "removed_heads": left})


def check(family: str, choice: dict[str, Any]) -> None:
    """Check every matrix as a whole, and one cell of each step by step."""
    tape = make_tape(subject(family, **choice))
    generator = np.random.default_rng(0)
    done = set()
    for number, matrix in enumerate(tape.matrices):
        off = tape.difference(number)
        if off is None:
            assert matrix.role == "parameters"
            continue
        done.add(matrix.name)
        finite = np.abs(matrix.values[np.isfinite(matrix.values)]).max(initial=1.0)
        assert off <= 2e-5 * finite, (number, matrix.name, matrix.formula, off)
        row, column = (int(generator.integers(size)) for size in matrix.shape)
        working = tape.derive_cell(number, row, column)
        again = tape.recompute(number)
        assert working is not None
        assert again is not None
        assert np.isclose(working.value, again[row, column], rtol=1e-9, atol=1e-12), (matrix.name, matrix.formula)
        if working.products is not None:
            assert any(abs(working.products.total - value) < 1e-12 for _, value in working.lines)
    assert done >= {"Q", "K", "V", "S", "S'", "A", "Z", "O", "X1", "X2", "h", "F", "logits"}
    assert ("X3" in done) == (family == "encoder-decoder")


def test_a_product_shows_its_terms() -> None:
    tape = make_tape(subject("decoder"))
    number = next(n for n, matrix in enumerate(tape.matrices) if matrix.name == "S")
    q, k = (next(m for m in tape.matrices if m.name == name).values for name in "QK")
    working = tape.derive_cell(number, 3, 2)
    assert working is not None
    assert working.products is not None
    assert working.products.factors == tuple(zip(q[3].tolist(), k[2].tolist(), strict=True))
    assert abs(working.value - tape.matrices[number].values[3, 2]) < 1e-5


def test_parts_and_numbers_are_in_order() -> None:
    tape = make_tape(subject("encoder-decoder"))
    assert tape.parts[:4] == ("Tokens", "Encoder: embedding", "Encoder: positions", "Encoder: layer 0")
    assert [step.first for step in tape.steps] == sorted(step.first for step in tape.steps)
    assert sum(len(step.section.matrices) for step in tape.steps) == len(tape.matrices)
    held = sum(matrix.values.nbytes for matrix in tape.matrices if matrix.role != "parameters")
    model = subject("encoder-decoder").model
    assert held <= tape_bytes(model, 7, 4) <= 3 * held


def test_nonexistent_cells_are_refused() -> None:
    tape = make_tape(subject("decoder"))
    with pytest.raises(GlassError, match="no matrix 9999"):
        tape.matrix(9999)
    with pytest.raises(GlassError, match="no cell at row 99"):
        tape.derive_cell(0, 99, 0)
