"""What can stand in the place of a model's own values. Where it can stand: see `glassformer.inspection.patching`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from glassformer.base.errors import GlassError

Source = Tensor | Mapping[str, Tensor]
"""A tensor, or a recording, in which the tensor stands under the name of what is patched."""


@dataclass(frozen=True, eq=False)
class Zero:
    """Nothing; for `positions`, no places; for `mask`, no mask."""

    where: Tensor | None = field(default=None, kw_only=True)

    def value(self, current: Tensor, name: str) -> Tensor:
        """What stands in the place of `current`; same shape."""
        return torch.zeros_like(current)


@dataclass(frozen=True, eq=False)
class Value:
    """Any tensor that broadcasts to the shape of what is patched: one value for each row, or one for all."""

    tensor: Tensor
    where: Tensor | None = field(default=None, kw_only=True)

    def value(self, current: Tensor, name: str) -> Tensor:
        """What stands in the place of `current`; same shape."""
        return fit(self.tensor, current.shape, current, name)


@dataclass(frozen=True, eq=False)
class Mean:
    """The mean over all rows and places of a recorded probe batch.

    Attributes:
        source: (rows, places, width); of a recording, what stands there under the same name.
        real: (rows, places) bool, False at padding, which does not count; None: all count.
    """

    source: Source
    real: Tensor | None = None
    where: Tensor | None = field(default=None, kw_only=True)

    def value(self, current: Tensor, name: str) -> Tensor:
        """What stands in the place of `current`; same shape."""
        found = find(self.source, name)  # (rows, places, width)
        if found.dim() != 3:
            raise GlassError(
                f"a mean over values of shape {tuple(found.shape)} was given for {name}",
                "Give (rows, places, width); one value is for `Value`.",
            )
        if self.real is not None and self.real.shape != found.shape[:2]:
            raise GlassError(
                f"`real` of shape {tuple(self.real.shape)} was given with values of shape {tuple(found.shape)}",
                "Give one truth for each row and place.",
            )
        seen = found.flatten(0, -2) if self.real is None else found[self.real]  # (n, width)
        if not len(seen):
            raise GlassError(f"a mean over no places was given for {name}", "Give some that are real.")
        return fit(seen.mean(dim=0), current.shape, current, name)


@dataclass(frozen=True, eq=False)
class Resample:
    """What the same place held for other input, of equal shape.

    Attributes:
        source: a tensor of the shape of what is patched, or a recording.
        rows: which row of the source each row takes; None: its own.
    """

    source: Source
    rows: Sequence[int] | None = None
    where: Tensor | None = field(default=None, kw_only=True)

    def value(self, current: Tensor, name: str) -> Tensor:
        """What stands in the place of `current`; same shape."""
        found = find(self.source, name)
        if self.rows is not None:
            if not all(0 <= row < len(found) for row in self.rows):
                raise GlassError(f"rows {list(self.rows)} were asked of {len(found)} rows", "Rows count from 0.")
            found = found[list(self.rows)]
        if found.shape != current.shape:
            raise unfit(found, current.shape, name)
        return found.to(current)


@dataclass(frozen=True, eq=False)
class Pattern:
    """Frozen attention weights, (B, H, T, S) for an attention and (B, T, S) for a head, or a recording of `pattern`."""

    source: Source
    where: Tensor | None = field(default=None, kw_only=True)

    def weights(self, shape: tuple[int, ...], first: Tensor, like: Tensor, name: str) -> Tensor:
        """The weights, of that shape."""
        return fit(find(self.source, f"{name}.pattern"), shape, like, name)


@dataclass(frozen=True, eq=False)
class KnockOut:
    """All attention to the row's first real token (of cross-attention, the source's)."""

    where: Tensor | None = field(default=None, kw_only=True)

    def weights(self, shape: tuple[int, ...], first: Tensor, like: Tensor, name: str) -> Tensor:
        """The weights, of that shape; `first` (B) is the column of each row's first real token."""
        keys = torch.arange(shape[-1], device=like.device)  # (S)
        one = (keys == first[:, None]).to(like.dtype)  # (B, S)
        return one.view(len(first), *[1] * (len(shape) - 2), -1).expand(shape)


Kind = Zero | Value | Mean | Resample | Pattern | KnockOut


def find(source: Source, name: str) -> Tensor:
    """The tensor that a source has under that name."""
    if isinstance(source, Tensor):
        return source
    try:
        return source[name]
    except GlassError:  # a recording says what to record
        raise
    except KeyError:
        raise GlassError(f"the values given have none for {name}", f"Put {name!r} among them.") from None


def fit(found: Tensor, shape: Sequence[int], like: Tensor, name: str) -> Tensor:
    """`found` in that shape, with the device and precision of `like`."""
    try:
        return found.to(like).expand(shape)
    except RuntimeError:
        raise unfit(found, shape, name) from None


def unfit(found: Tensor, shape: Sequence[int], name: str) -> GlassError:
    """The error of a value that cannot stand there."""
    return GlassError(
        f"a value of shape {tuple(found.shape)} was given for {name}, which has the shape {tuple(shape)} here",
        f"Give {tuple(shape)}, or for `Value`, `Mean` and `Pattern` what broadcasts to it.",
    )
