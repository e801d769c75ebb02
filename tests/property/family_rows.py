"""Random rows of the task that each family of models is trained for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from glassformer.tasks.task_rows import TaskRows
from glassformer.text.batches import Batch
from glassformer.text.rows import Labelled, Masked, Pair
from tests.property.models import VOCAB

CPU = torch.device("cpu")
COLLATE = {
    "decoder": Batch.from_rows,
    "encoder": Batch.from_masked,
    "classifier": Batch.from_labelled,
    "encoder-decoder": Batch.from_pairs,
}


def data(family: str, lengths: tuple[int, ...] = (5, 7, 7, 11, 13)) -> TaskRows:
    """Return random rows of a family's task, short ones first."""
    numbers = np.random.default_rng(3)

    def ids(length: int) -> Any:
        return numbers.integers(0, VOCAB, size=length)

    make = {
        "decoder": ids,
        "encoder": lambda n: Masked(ids(n), ids(n), np.arange(n) % 3 == 0),
        "classifier": lambda n: Labelled(ids(n), n % 5),
        "encoder-decoder": lambda n: Pair(ids(n), ids(n - 2)),
    }[family]
    task: Any = SimpleNamespace(collate=COLLATE[family])
    return TaskRows(task, [make(length) for length in lengths], CPU)
