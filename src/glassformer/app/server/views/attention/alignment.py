"""Alignment of target and source tokens: cross-attention weights of one head, or the mean over the heads of a layer.

The response is binary. Its header::

    {"site": "dec.1.cross", "pass": "observed", "head": null | 2,
     "form": "float32", "shape": [R, C], "block": 1, "size": [T, S],
     "hidden": 255, "full": 254, "scale": "linear", "labels": {"target": […], "source": […]},
     "target": "das …", "written": true,      text of the target, and whether it is the model's greedy output
     "entropy": […],                          entropy of each target row in nats, T numbers
     "coverage": […],                         sum of the weights of each source token over all rows, S numbers
     "covered": 0.9, "enough": 0.5,           `covered`: fraction of source tokens with a coverage of at least `enough`
     "row_sums": […], "largest": 0.98,
     "hypotheses": [{"text": …, "score": -0.31, "tokens": 7, "ended": "end"}, …]}

The data are R x C cells, pooled by the largest weight of each block, in the format of `head_map`. Each row has the
attention from one target token, at the step that predicts the next token. `hypotheses` are the results of beam search,
best first; request the view again with one of their texts as `target` to get its alignment. Special tokens count like
other tokens, also in the coverage.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field
from torch import Tensor

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import Binary, Name, PageView, TextQuestion
from glassformer.app.server.views.attention.attention_pass import AttentionPass, LayerPass, attention_pass_of
from glassformer.app.server.views.attention.cells import FULL, HIDDEN, Form, as_bytes, cells_of
from glassformer.app.server.views.attention.scripts import recording_script
from glassformer.base.errors import GlassError
from glassformer.inspection.heads.cross import COVERED
from glassformer.inspection.heads.numbers import entropy
from glassformer.inspection.plots import Floats, Scale, block_for
from glassformer.tasks import Translator

MOST = 384
"""Maximum number of cells on the longer side of the map."""
MOST_BEAMS = 8
"""Maximum number of beams."""
MOST_TOKENS = 4_096
"""Maximum number of tokens of the source, and of the target."""


class AlignmentQuestion(TextQuestion):
    """Request for the cross-attention map of one head, or the mean map of a layer.

    Attributes:
        site: name of a cross-attention layer, such as dec.1.cross; None: the last one.
        head: number of a head; None: the mean over all heads of the layer.
        px: maximum number of cells on the longer side.
        form, scale: format and scale of the cells, as in the view `attention`.
        beams: number of beams for `hypotheses`; 0: no beam search.
    """

    site: Name | None = None
    head: int | None = Field(None, ge=0, le=10_000)
    px: int = Field(MOST, ge=1, le=MOST)
    form: Form = "float32"
    scale: Scale = "linear"
    beams: int = Field(4, ge=0, le=MOST_BEAMS)


def answer(opened: ServedModel, question: AlignmentQuestion) -> Binary:
    """Return the pooled cross-attention map, with the entropy of each row and the coverage of each source token."""
    attention_pass = attention_pass_of(opened, question.text, question.target)
    site, layer = _layer(attention_pass, question.site)
    heads = None if question.head is None else [_index(layer, site, question.head)]
    T, S = layer.shape
    if max(T, S) > MOST_TOKENS:
        raise GlassError(
            f"an alignment of {T:,} by {S:,} tokens is too long to show",
            f"Give a text and a target of at most {MOST_TOKENS:,} tokens each.",
        )
    entropies: list[Floats] = []
    coverage = np.zeros(S)

    def weights(chunk: slice) -> Tensor:
        pattern = layer.pattern(chunk, heads).double().mean(dim=0)  # (rows, S)
        entropies.append(entropy(pattern.numpy()))
        np.add(coverage, pattern.numpy().sum(axis=0), out=coverage)
        return pattern

    block = block_for(max(T, S), question.px)
    cells = cells_of(layer, slice(0, T), slice(0, S), block, "max", weights)
    target, source = attention_pass.labels(attention_pass.head(f"{site}.{layer.heads[0]}")[0].site)
    header = {
        "site": site,
        "pass": attention_pass.kind,
        "head": question.head,
        "form": question.form,
        "shape": list(cells.cells.shape),
        "block": block,
        "size": [T, S],
        "hidden": HIDDEN,
        "full": FULL,
        "scale": question.scale,
        "labels": {"target": target, "source": source},
        "target": attention_pass.subject.target,
        "written": question.target is None,
        "entropy": np.concatenate(entropies).tolist(),
        "coverage": coverage.tolist(),
        "covered": float((coverage >= COVERED).mean()),
        "enough": COVERED,
        "row_sums": cells.row_sums.tolist(),
        "largest": cells.largest,
        "hypotheses": _hypotheses(opened, question.text, question.beams),
    }
    return Binary(header, as_bytes([cells.cells], question.form, question.scale))


def _layer(attention_pass: AttentionPass, name: str | None) -> tuple[str, LayerPass]:
    """Return the name and the pass of the requested cross-attention layer, or of the last one.

    Raises:
        GlassError: the run has no cross-attention, or no cross-attention layer with that name has heads.
    """
    cross_layers = {str(site): layer for site, layer in attention_pass.layers.items() if site.part == "cross"}
    if not cross_layers:
        raise GlassError("this run has no cross-attention", "Choose a run that translates or summarizes.")
    name = name or list(cross_layers)[-1]
    if name not in cross_layers:
        raise GlassError(
            f"there is no cross-attention layer {name!r} with heads", f"Choose one of {', '.join(cross_layers)}."
        )
    return name, cross_layers[name]


def _index(layer: LayerPass, site: str, head: int) -> int:
    """Return the index of a head among the heads of its layer.

    Raises:
        GlassError: the layer has no such head.
    """
    if head not in layer.heads:
        raise GlassError(f"there is no head {head} in {site}", f"Choose one of {', '.join(map(str, layer.heads))}.")
    return layer.heads.index(head)


def _hypotheses(opened: ServedModel, text: str, beams: int) -> list[dict[str, Any]]:
    """Return the results of beam search with this number of beams, best first; none for 0 beams."""
    if not beams:
        return []

    def search() -> list[dict[str, Any]]:
        model = opened.model
        assert isinstance(model, Translator)
        settings = model.config.sample.replace(beams=beams, temperature=0.0, repetition_penalty=1.0)
        return [
            {"text": each.text, "score": each.score, "tokens": each.tokens, "ended": each.ended}
            for each in model.n_best([text], settings)[0]
        ]

    return opened.cached(("hypotheses", text, beams), search, lambda hypotheses: 1_000 * len(hypotheses))


def python(opened: ServedModel, question: AlignmentQuestion) -> str:
    """Return a script that prints the weights, their entropy and coverage, and the hypotheses."""
    site, layer = _layer(attention_pass_of(opened, question.text, question.target), question.site)
    selection = ".mean(0)" if question.head is None else f"[{_index(layer, site, question.head)}]"
    lines = [
        f'weights = found["{site}.pattern"][0].double().numpy(){selection}  # (T, S)',
        "print(weights.tolist())",
        "print(entropy(weights).tolist())",
        "print(weights.sum(axis=0).tolist())  # coverage",
    ]
    if question.beams:
        lines += [
            f"settings = model.config.sample.replace(beams={question.beams}, temperature=0.0, repetition_penalty=1.0)",
            f"for sample in model.n_best([{question.text!r}], settings)[0]:",
            "    print(sample.score, sample.text)",
        ]
    imports = ["from glassformer.inspection.heads.numbers import entropy"]
    return recording_script(opened, question, [f"{site}.pattern"], *lines, more=imports)


VIEW = PageView(AlignmentQuestion, answer, python)
