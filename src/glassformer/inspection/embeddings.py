"""Maps of embedding vectors: principal components, and nearest neighbours by cosine similarity."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.base.errors import GlassError
from glassformer.inspection.attribution.case import check_number
from glassformer.model.transformer import Model


@dataclass(frozen=True, eq=False)
class Components:
    """Principal components of vectors (Pearson 1901).

    Attributes:
        mean: (D) float64, the mean vector.
        axes: (k, D) float64, orthonormal; in each axis, the entry with the largest absolute value is positive.
        explained_variance_ratio: (k) float64, the fraction of the variance along each axis.
    """

    mean: Tensor
    axes: Tensor
    explained_variance_ratio: Tensor

    def transform(self, vectors: Tensor) -> Tensor:
        """Return the coordinates (N, k) of vectors (N, D)."""
        return (vectors.detach().cpu().double() - self.mean) @ self.axes.T


def components(vectors: Tensor, count: int | None = None) -> Components:
    """Compute the first principal components of vectors.

    Args:
        vectors: the vectors, (N, D).
        count: maximum number of components, limited to min(N, D); None: min(N, D).
    """
    x = vectors.detach().cpu().double()  # (N, D)
    mean = x.mean(dim=0)  # (D)
    x = x - mean
    eigenvalues, axes = torch.linalg.eigh(x.T @ x)  # (D), (D, D) columns, the smallest first
    n_components = min(*x.shape) if count is None else min(count, *x.shape)
    eigenvalues = eigenvalues.flip(0).clamp(min=0)  # (D), the largest first
    axes = axes.flip(1).T  # (D, D) rows, in the same order
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))  # (D, 1)
    total = eigenvalues.sum().clamp(min=torch.finfo(torch.float64).tiny)
    return Components(mean, (axes * largest.sign())[:n_components], (eigenvalues / total)[:n_components])


def neighbours(vectors: Tensor, row: int, count: int) -> list[tuple[int, float]]:
    """Return the indices of the other rows nearest to a row, with their cosine similarities, the nearest first.

    Args:
        vectors: the vectors, (N, D).
        row: index of the row whose neighbours to find.
        count: maximum number of neighbours.

    Raises:
        GlassError: `row` is out of range.
    """
    check_number("vector", row, len(vectors))
    x = vectors.detach().cpu().double()  # (N, D)
    norms = x.norm(dim=1).clamp(min=torch.finfo(torch.float64).tiny)  # (N)
    cosines = (x @ x[row]) / (norms * norms[row])  # (N)
    order = torch.argsort(cosines, descending=True, stable=True)  # (N)
    return [(int(other), float(cosines[other])) for other in order[order != row][:count]]


TABLES = ("tokens", "source tokens", "positions", "source positions")
"""Names of the embedding tables that a model may have."""


def tables(model: Model) -> dict[str, Tensor]:
    """Return the embedding tables of a model by name: tokens (V, D), and learned positions (context, D).

    An encoder-decoder with a separate source embedding has these tables for both source and target.
    """
    named_tables: dict[str, Tensor] = {}
    for prefix, embedding in (("", model.embedding), ("source ", getattr(model, "source_embedding", None))):
        if embedding is not None:
            named_tables[f"{prefix}tokens"] = embedding.tokens.weight
            table = getattr(embedding.positions, "table", None)
            if isinstance(table, nn.Embedding):
                named_tables[f"{prefix}positions"] = table.weight
    return named_tables


def table_named(model: Model, name: str) -> Tensor:
    """Return the embedding table that has the given name, such as "tokens".

    Raises:
        GlassError: the model has no such table.
    """
    named_tables = tables(model)
    if name not in named_tables:
        raise GlassError(f"this model has no table of {name}", f"Choose one of: {', '.join(named_tables)}.")
    return named_tables[name]
