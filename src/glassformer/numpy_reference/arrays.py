"""Arrays, weights by name, and the three things that are done with names."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Weights = Mapping[str, Array]
"""Name -> array, the names of the PyTorch model's `state_dict`; gradients come in the same form."""


def under(prefix: str, weights: Weights) -> dict[str, Array]:
    """The weights of one part, by the names that they have inside it: `norm.weight` under `norm` is `weight`."""
    start = f"{prefix}."
    return {name.removeprefix(start): value for name, value in weights.items() if name.startswith(start)}


def placed(prefix: str, weights: Weights) -> dict[str, Array]:
    """The way back: `weight` placed in `norm` is `norm.weight`."""
    return {f"{prefix}.{name}": value for name, value in weights.items()}


def total(*gradients: Weights) -> dict[str, Array]:
    """Gradients from several places, added by name: a weight that is used twice gets the sum (the chain rule)."""
    found: dict[str, Array] = {}
    for one in gradients:
        for name, value in one.items():
            found[name] = found[name] + value if name in found else value
    return found
