"""Embedding vectors as a map: principal components, and the nearest neighbours of a vector by cosine."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.base.errors import GlassError
from glassformer.inspection.attribution.case import check_number
from glassformer.model.transformer import Model


@dataclass(frozen=True, eq=False)
class Components:
    """The directions in which vectors differ most (Pearson 1901). A direction's sign is set by its largest channel.

    Attributes:
        mean: (D) float64.
        axes: (k, D), each of length 1, at right angles; the largest entry of each is positive.
        shares: (k) of the variance, along each.
    """

    mean: Tensor
    axes: Tensor
    shares: Tensor

    def of(self, vectors: Tensor) -> Tensor:
        """Vectors (N, D) -> their coordinates (N, k)."""
        return (vectors.detach().cpu().double() - self.mean) @ self.axes.T


def components(vectors: Tensor, count: int | None = None) -> Components:
    """The first principal components.

    Args:
        vectors: (N, D).
        count: how many; None: min(N, D).
    """
    x = vectors.detach().cpu().double()  # (N, D)
    mean = x.mean(dim=0)  # (D)
    x = x - mean
    sizes, axes = torch.linalg.eigh(x.T @ x)  # (D), (D, D) columns, the smallest first
    most = min(*x.shape) if count is None else min(count, *x.shape)
    sizes = sizes.flip(0).clamp(min=0)  # (D), the largest first
    axes = axes.flip(1).T  # (D, D) rows, in the same order
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))  # (D, 1)
    total = sizes.sum().clamp(min=torch.finfo(torch.float64).tiny)
    return Components(mean, (axes * largest.sign())[:most], (sizes / total)[:most])


def neighbours(vectors: Tensor, row: int, count: int) -> list[tuple[int, float]]:
    """The rows whose direction is nearest to a row's, and the cosines; the nearest first, the row itself left out.

    Args:
        vectors: (N, D).
        row: whose neighbours.
        count: how many.

    Raises:
        GlassError: there is no such row.
    """
    check_number("vector", row, len(vectors))
    x = vectors.detach().cpu().double()  # (N, D)
    sizes = x.norm(dim=1).clamp(min=torch.finfo(torch.float64).tiny)  # (N)
    cosines = (x @ x[row]) / (sizes * sizes[row])  # (N)
    order = torch.argsort(cosines, descending=True, stable=True)  # (N)
    return [(int(other), float(cosines[other])) for other in order[order != row][:count]]


TABLES = ("tokens", "source tokens", "positions", "source positions")
"""Tables of vectors that a model may have."""


def tables(model: Model) -> dict[str, Tensor]:
    """The embedding tables of a model: (V, D) of tokens, and (context, D) of learned positions.

    An encoder-decoder with embeddings of its own for the source has both twice.
    """
    found: dict[str, Tensor] = {}
    for prefix, embedding in (("", model.embedding), ("source ", getattr(model, "source_embedding", None))):
        if embedding is not None:
            found[f"{prefix}tokens"] = embedding.tokens.weight
            table = getattr(embedding.positions, "table", None)
            if isinstance(table, nn.Embedding):
                found[f"{prefix}positions"] = table.weight
    return found


def table_named(model: Model, name: str) -> Tensor:
    """One of `tables`.

    Raises:
        GlassError: the model has none of that name.
    """
    found = tables(model)
    if name not in found:
        raise GlassError(f"this model has no table of {name}", f"It has those of {', '.join(found)}.")
    return found[name]
