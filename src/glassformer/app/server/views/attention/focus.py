"""Attention rows of one query token in all heads.

The response is binary. Its header::

    {"pass": "observed", "place": 5, "stack": "dec", "label": " dog", "block": 1, "top": 8,
     "labels": {"dec.self": ["The", …], "dec.cross": […]},       of the keys, if block is 1
     "heads": [{"head": "dec.0.self.0", "part": "dec.self", "at": 0, "cells": 6, "keys": 6,
                "top": [{"key": 4, "weight": 0.81}, …], "rest": 0.02}, …]}

The data are float32. The row of a head starts at index `at` and has `cells` weights for `keys` positions, NaN where
masked; for a very long text or very many heads, each weight is the largest of `block` positions. `top` lists the keys
with the largest weights by their positions in the text, and `rest` is the sum of the other weights; all weights of a
row sum to 1 up to rounding.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from pydantic import Field

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import Binary, PageView, TextQuestion
from glassformer.app.server.views.attention.attention_pass import AttentionPass, LayerPass, attention_pass_of
from glassformer.app.server.views.attention.scripts import recording_script
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.inspection.plots import Floats, block_for, pooled
from glassformer.inspection.sites import HeadSite, Site

MAX_WEIGHTS = 180_000
"""Approximate maximum number of weights in a response."""
MOST_TOP = 16


class FocusQuestion(TextQuestion):
    """Request for the attention rows of one query token.

    Attributes:
        place: position of the query token, from 0.
        stack: stack of the query token: "enc" reads the source, or the text of an encoder; "dec" reads the target, or
            the text of a decoder. None: the only stack, or the decoder.
        top: maximum number of keys to list for each head; keys with weight 0 are not listed.
    """

    place: int = Field(ge=0, le=1_000_000)
    stack: Literal["enc", "dec"] | None = None
    top: int = Field(8, ge=1, le=MOST_TOP)


def answer(opened: ServedModel, question: FocusQuestion) -> Binary:
    """Return the attention row of one token in every head, with the keys of largest weight."""
    attention_pass = attention_pass_of(opened, question.text, question.target)
    layers = _layers(attention_pass, question)
    tokens = attention_pass.labels(next(iter(layers)))[0]
    if question.place >= len(tokens):
        is_target = attention_pass.subject.target_ids is not None and next(iter(layers)).stack == "dec"
        name = "target" if is_target else "text"
        raise GlassError(
            f"there is no token at position {question.place}: the {name} has {counted(len(tokens), 'tokens')}",
            f"Give a position from 0 to {len(tokens) - 1}.",
        )
    weight_count = sum(layer.shape[1] * len(layer.heads) for layer in layers.values())
    block = block_for(weight_count, MAX_WEIGHTS)
    heads: list[dict[str, Any]] = []
    rows: list[Floats] = []
    offset = 0
    for site, layer in layers.items():
        query_rows = slice(question.place, question.place + 1)
        patterns = (
            layer.pattern(query_rows).masked_fill(~layer.allowed(query_rows).cpu(), math.nan)[:, 0].numpy()
        )  # (H, S)
        for head, row in zip(layer.heads, patterns, strict=True):
            cells = row if block == 1 else pooled(row[None], block)[0]  # (C,)
            heads.append(
                {
                    "head": str(HeadSite(site, head)),
                    "part": f"{site.stack}.{site.part}",
                    "at": offset,
                    "cells": len(cells),
                    "keys": len(row),
                    **_top(row, question.top),
                }
            )
            rows.append(cells)
            offset += len(cells)
    header = {
        "pass": attention_pass.kind,
        "place": question.place,
        "stack": next(iter(layers)).stack,
        "label": tokens[question.place],
        "block": block,
        "top": question.top,
        "heads": heads,
        "labels": {f"{site.stack}.{site.part}": attention_pass.labels(site)[1] for site in layers}
        if block == 1
        else None,
    }
    return Binary(header, np.concatenate(rows).astype("<f4").tobytes())


def _layers(attention_pass: AttentionPass, question: FocusQuestion) -> dict[Site, LayerPass]:
    """Return the attention layers of the requested stack."""
    stacks = list(dict.fromkeys(site.stack for site in attention_pass.layers))
    stack = question.stack or stacks[-1]
    if stack not in stacks:
        raise GlassError(f"this run has no stack {stack!r} with heads", f"Choose one of {', '.join(stacks)}.")
    return {site: layer for site, layer in attention_pass.layers.items() if site.stack == stack}


def _top(row: Floats, count: int) -> dict[str, Any]:
    """Return the keys with the largest weights, largest first, and the sum of the other weights."""
    weights = np.nan_to_num(row).astype(np.float64)  # (S,)
    best = [int(key) for key in np.argsort(-weights, kind="stable")[:count] if weights[key] > 0]
    top = [{"key": key, "weight": float(weights[key])} for key in best]
    return {"top": top, "rest": float(np.delete(weights, best).sum())}


def python(opened: ServedModel, question: FocusQuestion) -> str:
    """Return a script that prints the row of each head."""
    attention_pass = attention_pass_of(opened, question.text, question.target)
    sites = [f"{site}.pattern" for site in _layers(attention_pass, question)]
    return recording_script(
        opened,
        question,
        sites,
        f"for name in {sites}:",
        "    weights = found[name]",
        f"    print(name, weights[0, :, {question.place}].tolist())  # a row for each head",
    )


VIEW = PageView(FocusQuestion, answer, python)
