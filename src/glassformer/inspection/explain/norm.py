"""Section on one norm."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from glassformer.inspection.explain.attention import Labels
from glassformer.inspection.explain.sections import Matrix, Section, numbers, parameters


def norm_section(
    key: str, title: str, norm: nn.Module, x: str, name: str, before: Tensor, after: Tensor, labels: Labels
) -> Section:
    """Return the section on a norm: its gain, bias and output, with a note on the last token's input statistics."""
    centred = isinstance(norm, nn.LayerNorm)
    weight = getattr(norm, "weight", None)
    bias = getattr(norm, "bias", None)
    matrices: list[Matrix] = []
    eps = getattr(norm, "eps", None) or 0.0
    formula = f"({x} - mean) / √(variance + {eps:g})" if centred else f"{x} / √(mean square + {eps:g})"
    for letter, parameter, sign, label in (("g", weight, "·", "gain"), ("b", bias, "+", "bias")):
        if parameter is not None:
            matrices.append(Matrix(letter, "", parameters(parameter), (label,), role="parameters"))
            formula += f" {sign} {letter}"
    last = numbers(before[0, -1])  # (1, D)
    size = f"mean {last.mean():.4f}, sd {last.std():.4f}" if centred else f"rms {np.sqrt((last**2).mean()):.4f}"
    matrices.append(Matrix(name, formula, numbers(after[0]), labels))
    note = f"{labels[-1]} (position {len(labels) - 1}) before the norm: {size}."
    return Section(key, title, tuple(matrices), notes=(note,))
