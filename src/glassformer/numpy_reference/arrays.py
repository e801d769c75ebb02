"""Array types, and functions on dictionaries of weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Weights = Mapping[str, Array]
"""Weights or gradients by name, with the names of the PyTorch model's `state_dict`."""


def under(prefix: str, weights: Weights) -> dict[str, Array]:
    """Return the weights whose names start with a prefix, without the prefix: `norm.weight` becomes `weight`."""
    start = f"{prefix}."
    return {name.removeprefix(start): value for name, value in weights.items() if name.startswith(start)}


def with_prefix(prefix: str, weights: Weights) -> dict[str, Array]:
    """Return the weights with a prefix added to their names: `weight` becomes `norm.weight`."""
    return {f"{prefix}.{name}": value for name, value in weights.items()}


def sum_gradients(*gradients: Weights) -> dict[str, Array]:
    """Add up gradients by name: the gradient of a weight is the sum over its uses (chain rule)."""
    total: dict[str, Array] = {}
    for one in gradients:
        for name, value in one.items():
            total[name] = total[name] + value if name in total else value
    return total
