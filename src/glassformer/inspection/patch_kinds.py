"""Kinds of patches, which replace activations of a model; `glassformer.inspection.patching` lists the activations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.base.wording import counted

Source = Tensor | Mapping[str, Tensor]
"""A tensor, or a recording with a tensor under the name of the patched activation; `Pattern` appends `.pattern`."""


@dataclass(frozen=True, eq=False)
class Zero:
    """Patch that replaces an activation with zeros, or removes rotary positions, position biases or the causal mask."""

    where: Tensor | None = field(default=None, kw_only=True)

    def value(self, current: Tensor, name: str) -> Tensor:
        """Return the replacement for `current`, with the same shape."""
        return torch.zeros_like(current)


@dataclass(frozen=True, eq=False)
class Value:
    """Patch that replaces an activation with a tensor that broadcasts to its shape."""

    tensor: Tensor
    where: Tensor | None = field(default=None, kw_only=True)

    def value(self, current: Tensor, name: str) -> Tensor:
        """Return the replacement for `current`, with the same shape."""
        return expand_to(self.tensor, current.shape, current, name)


@dataclass(frozen=True, eq=False)
class Mean:
    """Patch that replaces an activation with the mean over all rows and positions of recorded values.

    Attributes:
        source: values of shape (rows, positions, width), or a recording with such values under the same name.
        real: (rows, positions) bool, False at padding, which is excluded from the mean; None: no padding.
    """

    source: Source
    real: Tensor | None = None
    where: Tensor | None = field(default=None, kw_only=True)

    def value(self, current: Tensor, name: str) -> Tensor:
        """Return the replacement for `current`, with the same shape."""
        values = source_tensor(self.source, name)  # (rows, positions, width)
        if values.dim() != 3:
            raise GlassError(
                f"a mean over values of shape {tuple(values.shape)} was given for {name}",
                "Give values of shape (rows, positions, width), or use `Value` for a single vector.",
            )
        if self.real is not None and self.real.shape != values.shape[:2]:
            raise GlassError(
                f"`real` of shape {tuple(self.real.shape)} was given with values of shape {tuple(values.shape)}",
                "Give one bool for each row and position.",
            )
        vectors = values.flatten(0, -2) if self.real is None else values[self.real]  # (n, width)
        if not len(vectors):
            raise GlassError(
                f"the mean for {name} has no positions: `real` is False everywhere",
                "Set `real` to True for some positions.",
            )
        return expand_to(vectors.mean(dim=0), current.shape, current, name)


@dataclass(frozen=True, eq=False)
class Resample:
    """Patch that replaces an activation with that at the same position for another input of equal shape.

    Attributes:
        source: a tensor, or a recording with a tensor under the name of the activation. The tensor has the shape of
            the activation; if `rows` is given, it can have any number of rows.
        rows: for each row, the index of the source row to use; None: the same row.
    """

    source: Source
    rows: Sequence[int] | None = None
    where: Tensor | None = field(default=None, kw_only=True)

    def value(self, current: Tensor, name: str) -> Tensor:
        """Return the replacement for `current`, with the same shape."""
        replacement = source_tensor(self.source, name)
        if self.rows is not None:
            if not all(0 <= row < len(replacement) for row in self.rows):
                problem = f"rows is {list(self.rows)}, but the source has {counted(len(replacement), 'rows')}"
                raise GlassError(problem, "Give indices of source rows, counted from 0.")
            replacement = replacement[list(self.rows)]
        if replacement.shape != current.shape:
            raise shape_error(replacement, current.shape, name)
        return replacement.to(current)


@dataclass(frozen=True, eq=False)
class Pattern:
    """Patch that replaces attention weights with given weights, (B, H, T, S) for a layer or (B, T, S) for a head.

    Attributes:
        source: the attention weights, or a recording of `pattern`.
    """

    source: Source
    where: Tensor | None = field(default=None, kw_only=True)

    def weights(self, shape: tuple[int, ...], first: Tensor, like: Tensor, name: str) -> Tensor:
        """Return the attention weights, expanded to `shape`."""
        return expand_to(source_tensor(self.source, f"{name}.pattern"), shape, like, name)


@dataclass(frozen=True, eq=False)
class KnockOut:
    """Patch that sets the attention weights to 1 at the first visible token of each row, and to 0 elsewhere.

    In cross-attention, this is the first visible token of the source. The first visible token is the first that is not
    padding, unless a window hides this token from all queries of the forward pass.
    """

    where: Tensor | None = field(default=None, kw_only=True)

    def weights(self, shape: tuple[int, ...], first: Tensor, like: Tensor, name: str) -> Tensor:
        """Return the attention weights of `shape`; `first` (B) is the position of each row's first visible token."""
        keys = torch.arange(shape[-1], device=like.device)  # (S)
        one_hot = (keys == first[:, None]).to(like.dtype)  # (B, S)
        return one_hot.view(len(first), *[1] * (len(shape) - 2), -1).expand(shape)


Patch = Zero | Value | Mean | Resample | Pattern | KnockOut


def source_tensor(source: Source, name: str) -> Tensor:
    """Return the tensor of a source; for a recording, the tensor under `name`."""
    if isinstance(source, Tensor):
        return source
    try:
        return source[name]
    except GlassError:  # a recording raises a more specific error
        raise
    except KeyError:
        raise GlassError(f"the source has no values for {name}", f"Give a source with the key {name!r}.") from None


def expand_to(tensor: Tensor, shape: Sequence[int], like: Tensor, name: str) -> Tensor:
    """Expand `tensor` to `shape`, with the device and dtype of `like`."""
    try:
        return tensor.to(like).expand(shape)
    except RuntimeError:
        raise shape_error(tensor, shape, name) from None


def shape_error(tensor: Tensor, shape: Sequence[int], name: str) -> GlassError:
    """Return the error for a value with the wrong shape."""
    return GlassError(
        f"a value of shape {tuple(tensor.shape)} was given for {name}, which has the shape {tuple(shape)} here",
        f"Give a shape of {tuple(shape)}; values of `Value`, `Mean` and `Pattern` may also broadcast to it.",
    )
