"""Embedding map: first two principal components of the vectors of an embedding table, and neighbours of one vector.

The response::

    {"table": "tokens", "tables": ["tokens", "positions"], "count": 1000, "width": 64, "first": 0,
     "names": [" the"], "special": [ids], "x": [0.1, …], "y": [-0.2, …], "shares": [0.31, 0.12, …],
     "chosen": {"id": 17, "name": " the", "norm": 1.2, "x": 0.1, "y": -0.2} | null,
     "neighbours": [{"id": 3, "name": " a", "cosine": 0.8}]}

`shares` are the fractions of the variance that the first ten components explain (fewer if the table has fewer than ten
rows or columns). Names and coordinates are for at most `PAGE` vectors, starting with index `first`; request the view
again for more.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import Name, PageView, ViewQuestion, script
from glassformer.base.wording import visible_text
from glassformer.inspection.embeddings import Components, components, neighbours, table_named, tables
from glassformer.tasks.naming import token_named
from glassformer.text.tokenizers import Tokenizer

PAGE = 8_192
"""Maximum number of vectors in a response."""
AXES = 10
"""Maximum number of components in `shares`."""
NEIGHBOURS = 20
"""Maximum number of nearest neighbours."""


class EmbeddingsQuestion(ViewQuestion):
    """Request for the map of an embedding table.

    Attributes:
        table: name of the table; the response lists the names in `tables`.
        token: text or id of the token whose neighbours are returned; for a position table, a position; None: no
            neighbours.
        first: index of the first vector to return.
    """

    table: Literal["tokens", "source tokens", "positions", "source positions"] = "tokens"
    token: Name | None = None
    first: Annotated[int, Field(ge=0, le=10_000_000)] = 0


def answer(opened: ServedModel, question: EmbeddingsQuestion) -> dict[str, Any]:
    """Return one page of vectors in their first two principal components, and the neighbours of the chosen vector."""
    vectors = table_named(opened.model.model, question.table)
    tokenizer = _tokenizer(opened, question.table)
    key = "embeddings", question.table
    pca, points = opened.cached(key, lambda: _project(vectors), lambda projection: projection[1].nbytes)
    last = min(len(vectors), question.first + PAGE)
    chosen_row = None if question.token is None else _row(tokenizer, question.token)

    def name(row: int) -> str:
        return str(row) if tokenizer is None else visible_text(tokenizer.token_text(row))

    nearest = [] if chosen_row is None else neighbours(vectors, chosen_row, NEIGHBOURS)
    chosen_entry = (
        None
        if chosen_row is None
        else {
            "id": chosen_row,
            "name": name(chosen_row),
            "norm": float(vectors[chosen_row].detach().double().norm()),
            "x": float(points[chosen_row, 0]),
            "y": float(points[chosen_row, 1]),
        }
    )
    return {
        "table": question.table,
        "tables": list(tables(opened.model.model)),
        "count": len(vectors),
        "width": vectors.shape[1],
        "first": question.first,
        "names": [name(row) for row in range(question.first, last)],
        "special": [] if tokenizer is None else sorted(tokenizer.special),
        "x": points[question.first : last, 0].tolist(),
        "y": points[question.first : last, 1].tolist(),
        "shares": pca.explained_variance_ratio[:AXES].tolist(),
        "chosen": chosen_entry,
        "neighbours": [{"id": row, "name": name(row), "cosine": cosine} for row, cosine in nearest],
    }


def _project(vectors: Tensor) -> tuple[Components, Tensor]:
    """Return the principal components, and the coordinates of all vectors (N, 2)."""
    pca = components(vectors)
    return pca, pca.transform(vectors)[:, :2]


def _tokenizer(opened: ServedModel, table: str) -> Tokenizer | None:
    """Return the tokenizer that names the rows of a table; None for position tables."""
    if not table.endswith("tokens"):
        return None
    model = opened.model
    return model.source_tokenizer if table.startswith("source") else model.tokenizer


def _row(tokenizer: Tokenizer | None, name: str) -> int:
    if tokenizer is not None:
        return token_named(tokenizer, name)
    return int(name) if name.isascii() and name.isdigit() and len(name) < 10 else -1  # an index that no table has


def python(opened: ServedModel, question: EmbeddingsQuestion) -> str:
    """Return a script that prints the shares, the coordinates, and the neighbours."""
    lines = [
        "from glassformer.inspection.embeddings import components, neighbours, table_named",
        "",
        f"vectors = table_named(model.model, {question.table!r})",
        "found = components(vectors)",
        f"print(found.explained_variance_ratio[:{AXES}].tolist())",
        f"print(found.transform(vectors)[{question.first}:{question.first + PAGE}, :2].tolist())",
    ]
    if question.token is not None:
        row = _row(_tokenizer(opened, question.table), question.token)
        lines.append(f"print(neighbours(vectors, {row}, {NEIGHBOURS}))")
    return script(opened, *lines)


VIEW = PageView(EmbeddingsQuestion, answer, python)
