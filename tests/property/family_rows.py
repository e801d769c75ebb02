"""Random rows of the task that each model family is trained for."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from glassformer.tasks.task_rows import TaskRows
from glassformer.text.rows import Row
from tests.property.models import VOCAB

CPU = torch.device("cpu")


def data(family: str, lengths: tuple[int, ...] = (5, 7, 7, 11, 13)) -> TaskRows:
    """Return random rows of a family's task, one for each length."""
    numbers = np.random.default_rng(3)

    def ids(length: int) -> Any:
        return numbers.integers(0, VOCAB, size=length)

    def pair(length: int) -> Row:
        source = ids(length)
        return Row.of_text(ids(length - 2), source=source)

    make = {
        "decoder": lambda n: Row.of_text(ids(n)),
        "encoder": lambda n: Row(ids(n), ids(n), loss_mask=np.arange(n) % 3 == 0),
        "classifier": lambda n: Row(ids(n), np.array([n % 5])),
        "encoder-decoder": pair,
    }[family]
    task: Any = None
    return TaskRows(task, [make(length) for length in lengths], CPU)
