"""Computation of one attention weight: query-key dot product, scaling, bias, mask and softmax over the row.

The response::

    {"head": "dec.1.self.2", "pass": "observed", "query": 5, "key": 3, "query_label": " dog", "key_label": " old",
     "q": […], "k": […],              query and key, after normalization and rotation, K numbers each
     "products": […],                 q_i * k_i
     "dot": 3.2, "width": 16,         sum of the products; K
     "scaled": 0.8, "bias": 0.0,      dot / √K; position bias
     "score": 0.8, "masked": false,   the model's score, scaled + bias up to rounding; null where masked
     "row": null | {"scores": […], "weights": […], "labels": […]},   for all S keys, null where masked; null if S is
                                      above `MOST_KEYS`
     "log_sum": 2.9,                  ln Σ e^score over the unmasked keys
     "weight": 0.122}                 the model's weight, e^(score - log_sum) up to rounding; 0 where masked

`q`, `k`, `scores` and `weights` are tensors of the model; `products`, `dot`, `scaled` and `log_sum` are computed from
them in float64, to show each step of the computation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from pydantic import Field

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import Name, PageView, TextQuestion
from glassformer.app.server.views.attention.attention_pass import attention_pass_of
from glassformer.app.server.views.attention.cells import window
from glassformer.app.server.views.attention.scripts import recording_script

MOST_KEYS = 8_192
"""Maximum number of keys for which `row` is returned."""


class ScoreQuestion(TextQuestion):
    """Request for one cell of the attention map of a head.

    Attributes:
        head: name of the head, such as dec.1.self.2.
        query, key: positions of the query and the key, from 0.
    """

    head: Name
    query: int = Field(ge=0, le=1_000_000)
    key: int = Field(ge=0, le=1_000_000)


def answer(opened: ServedModel, question: ScoreQuestion) -> dict[str, Any]:
    """Return the query, the key and every step from their dot product to the attention weight."""
    attention_pass = attention_pass_of(opened, question.text, question.target)
    head, layer, index = attention_pass.head(question.head)
    T, S = layer.shape
    i = question.query
    j = question.key
    row = window((i, i + 1), T, "queries")
    window((j, j + 1), S, "keys")
    q = layer.q[index, i].double().cpu().numpy()  # (K,)
    keys = layer.k[layer.key_heads[index]].double().cpu().numpy()  # (S, K)
    scores = layer.scores(row)[index, 0].double().numpy()  # (S,) of the model
    allowed = ~np.isneginf(scores)  # (S,)
    position_bias = layer.bias(row)  # (1, H, 1, S)
    bias = (
        np.zeros(S)
        if position_bias is None
        else np.where(allowed, position_bias[0, index, 0].double().cpu().numpy(), 0.0)
    )  # (S,)
    largest = scores[allowed].max()
    log_sum = float(largest + np.log(np.exp(scores[allowed] - largest).sum()))
    weights = np.where(allowed, layer.pattern(row, [index])[0, 0].double().numpy(), np.nan)  # (S,) of the model
    is_allowed = bool(allowed[j])
    query_labels, key_labels = attention_pass.labels(head.site)
    return {
        "head": str(head),
        "pass": attention_pass.kind,
        "query": i,
        "key": j,
        "query_label": query_labels[i],
        "key_label": key_labels[j],
        "q": q.tolist(),
        "k": keys[j].tolist(),
        "products": (q * keys[j]).tolist(),
        "dot": float(q @ keys[j]),
        "width": len(q),
        "scaled": float(q @ keys[j]) / math.sqrt(len(q)),
        "bias": float(bias[j]),
        "score": float(scores[j]) if is_allowed else None,
        "masked": not is_allowed,
        "row": None
        if S > MOST_KEYS
        else {
            "scores": np.where(allowed, scores, np.nan).tolist(),
            "weights": weights.tolist(),
            "labels": key_labels,
        },
        "log_sum": log_sum,
        "weight": float(weights[j]) if is_allowed else 0.0,
    }


def python(opened: ServedModel, question: ScoreQuestion) -> str:
    """Return a script that prints the query, the key, and the scores and weights of the row."""
    _, layer, index = attention_pass_of(opened, question.text, question.target).head(question.head)
    site = question.head.rpartition(".")[0]
    i = question.query
    j = question.key
    return recording_script(
        opened,
        question,
        [f"{site}.{kind}" for kind in ("q", "k", "scores", "pattern")],
        f'q = found["{site}.q"][0, {index}, {i}]',
        f'k = found["{site}.k"][0, {layer.key_heads[index]}, {j}]  # key head of this query head',
        "print((q * k).tolist(), float(q @ k), float(q @ k) / len(q) ** 0.5)",
        f'print(found["{question.head}.scores"][0, {i}].tolist())  # -inf where masked',
        f'print(found["{question.head}.pattern"][0, {i}].tolist())',
    )


VIEW = PageView(ScoreQuestion, answer, python)
