"""Measuring a loss needs the same memory for a large validation split as for a small one."""

from __future__ import annotations

import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from glassformer.tasks.task import LazyRows
from glassformer.text.rows import Row
from glassformer.training.validation import validation_loss
from tests.property.models import VOCAB, decoder, encoder_decoder, tiny

pytestmark = pytest.mark.thorough

CONTEXT = 13
FEW = 60  # rows, in three batches
MANY = 4000
BATCH = 20


class Held(TorchDispatchMode):
    """A counter of the bytes of tensors created by operations and still alive, and of their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count its results."""
        made = function(*args, **(kwargs or {}))
        for value in made if isinstance(made, tuple | list) else [made]:
            if isinstance(value, torch.Tensor):
                self.now += value.nbytes
                weakref.finalize(value, self._let_go, value.nbytes)
        self.peak = max(self.peak, self.now)
        return made

    def _let_go(self, size: int) -> None:
        self.now -= size


def peaks(model: Any, make: Any, rows: int) -> tuple[int, int]:
    """Return the peak bytes of tensors, and of all Python and NumPy objects."""

    def measure() -> None:
        some = LazyRows(range(rows), make)
        validation_loss(model, some, torch.device("cpu"), most_tokens=BATCH * CONTEXT)

    with Held() as held:
        measure()
    tracemalloc.start()
    try:
        measure()
        return held.peak, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("family", ["decoder", "encoder-decoder"])
def test_memory_does_not_grow_with_the_rows(family: str) -> None:
    ids = np.random.default_rng(0).integers(0, VOCAB, size=CONTEXT + 1)
    source = None if family == "decoder" else ids[1:]
    model = decoder(tiny(context=CONTEXT)) if family == "decoder" else encoder_decoder(context=CONTEXT)

    def make(number: int) -> Row:
        return Row.of_text(ids, source=source)

    peaks(model, make, FEW)  # objects that are created once and kept
    few = peaks(model, make, FEW)
    many = peaks(model, make, MANY)
    assert few[0] == many[0] > 0
    assert many[1] < few[1] + 4 * MANY  # less than half a number for each row; an array of them would be 8 bytes each
