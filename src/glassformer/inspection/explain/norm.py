"""One norm as a step."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from glassformer.inspection.explain.attention import Labels
from glassformer.inspection.explain.sections import Matrix, Section, numbers, parameters


def norm_section(
    key: str, title: str, norm: nn.Module, x: str, name: str, before: Tensor, after: Tensor, labels: Labels
) -> Section:
    """A norm with its gain, and what it did to the size of the last token's vector."""
    centred = isinstance(norm, nn.LayerNorm)
    weight = getattr(norm, "weight", None)
    bias = getattr(norm, "bias", None)
    matrices: list[Matrix] = []
    eps = getattr(norm, "eps", None) or 0.0
    formula = f"({x} - mean) / √(variance + {eps:g})" if centred else f"{x} / √(mean square + {eps:g})"
    for letter, parameter, sign, what in (("g", weight, "·", "gain"), ("b", bias, "+", "bias")):
        if parameter is not None:
            matrices.append(Matrix(letter, "", parameters(parameter), (what,), role="parameters"))
            formula += f" {sign} {letter}"
    last = numbers(before[0, -1])  # (1, D)
    size = f"mean {last.mean():.4f}, sd {last.std():.4f}" if centred else f"rms {np.sqrt((last**2).mean()):.4f}"
    matrices.append(Matrix(name, formula, numbers(after[0]), labels))
    return Section(key, title, tuple(matrices), notes=(f"{labels[-1]} (place {len(labels) - 1}) came with {size}.",))
