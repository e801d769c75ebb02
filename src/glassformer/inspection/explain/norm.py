"""Section of a walk that shows one norm: its gain, bias and output."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from glassformer.inspection.explain.arithmetic import Normalized
from glassformer.inspection.explain.attention import Labels
from glassformer.inspection.explain.sections import Matrix, Section, numbers, parameters


def norm_section(
    key: str,
    title: str,
    norm: nn.Module,
    x: str,
    name: str,
    before: Tensor,
    after: Tensor,
    labels: Labels,
    position: int | None = None,
) -> Section:
    """Return the section on a norm: gain, bias and output, with a note on the norm's input in the last row.

    Args:
        key, title: key and title of the section.
        norm: the norm.
        x, name: names of the norm's input and output.
        before, after: (B, P, D) input and output of the norm.
        labels: (P) labels of the rows.
        position: position of the last row; None: there is a row for each position.
    """
    centred = isinstance(norm, nn.LayerNorm)
    weight = getattr(norm, "weight", None)
    bias = getattr(norm, "bias", None)
    matrices: list[Matrix] = []
    eps = getattr(norm, "eps", None) or 0.0
    for letter, parameter, row in (("g", weight, "gain"), ("b", bias, "bias")):
        if parameter is not None:
            matrices.append(Matrix(letter, None, parameters(parameter), (row,), role="parameters"))
    operation = Normalized(x, centred, eps, None if weight is None else "g", None if bias is None else "b")
    last_input = numbers(before[0, -1])  # (1, D)
    size = (
        f"mean {last_input.mean():.4f}, sd {last_input.std():.4f}"
        if centred
        else f"rms {np.sqrt((last_input**2).mean()):.4f}"
    )
    matrices.append(Matrix(name, operation, numbers(after[0]), labels))
    last_position = len(labels) - 1 if position is None else position
    return Section(
        key, title, tuple(matrices), notes=(f"{labels[-1]} (position {last_position}) had {size} before the norm.",)
    )
