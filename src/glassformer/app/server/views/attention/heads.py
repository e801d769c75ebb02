"""Small attention maps of all heads, or of the heads of some layers.

The response is binary. Its header::

    {"pass": "observed", "block": 16, "form": "uint8", "scale": "linear", "hidden": 255, "full": 254,
     "heads": [{"head": "dec.0.self.0", "at": 0, "shape": [64, 64], "size": [1024, 1024],
                "largest": 0.99, "entropy": 2.31}, …]}

Each map begins at byte `at` of the data, row by row, and is pooled by the largest weight of each block, as in
`glass look`; all maps of a response have the same `block`. `entropy` is the entropy of the weights of a row in nats,
averaged over the rows. The page requests a few `sites` at a time if there are many layers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from pydantic import Field

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import Binary, Name, PageView, TextQuestion, script
from glassformer.app.server.views.attention.attention_pass import AttentionPass, LayerPass, attention_pass_of
from glassformer.app.server.views.attention.cells import FULL, HIDDEN, as_bytes, hidden, pooled
from glassformer.base.errors import GlassError
from glassformer.inspection.plots import Floats, Scale, block_for, find_site
from glassformer.inspection.sites import HeadSite, Site

MOST = 64
"""Maximum number of cells on the longer side of a map."""
MAX_BYTES = 900_000
"""Maximum size of all maps in bytes; with very many heads, the maps are smaller."""


class HeadsQuestion(TextQuestion):
    """Request for the small maps of all heads, or of the heads of some layers.

    Attributes:
        sites: names of layers, such as dec.0.self; None: all.
        px: maximum number of cells on the longer side.
        scale: scale of the bytes.
    """

    sites: list[Name] | None = Field(None, min_length=1, max_length=500)
    px: int = Field(MOST, ge=4, le=MOST)
    scale: Scale = "linear"


def answer(opened: ServedModel, question: HeadsQuestion) -> Binary:
    """Return small pooled attention maps of the heads, with the mean row entropy of each."""
    attention_pass = attention_pass_of(opened, question.text, question.target)
    layers = _chosen_layers(attention_pass, question)
    block = block_for(max(max(layer.shape) for layer in layers.values()), _max_cells(layers, question.px))
    heads: list[dict[str, Any]] = []
    data = b""
    for site, layer in layers.items():
        chunks = [_pooled_chunk(layer, chunk, block) for chunk in layer.chunks(slice(0, layer.shape[0]), block)]
        cells = np.concatenate([each[0] for each in chunks], axis=1)  # (H, R, C)
        entropies = np.sum([each[1] for each in chunks], axis=0) / layer.shape[0]  # (H,)
        for head, head_cells, nats in zip(layer.heads, cells, entropies, strict=True):
            heads.append(
                {
                    "head": str(HeadSite(site, head)),
                    "at": len(data),
                    "shape": list(head_cells.shape),
                    "size": list(layer.shape),
                    "largest": float(np.nanmax(head_cells)),
                    "entropy": float(nats),
                }
            )
            data += as_bytes([head_cells], "uint8", question.scale)
    header = {
        "pass": attention_pass.kind,
        "block": block,
        "form": "uint8",
        "scale": question.scale,
        "hidden": HIDDEN,
        "full": FULL,
        "heads": heads,
    }
    return Binary(header, data)


def _pooled_chunk(layer: LayerPass, rows: slice, block: int) -> tuple[Floats, Floats]:
    """Return some rows of all heads, pooled (H, R, C), NaN where masked, and the sums of their entropies (H,)."""
    pattern = layer.pattern(rows)  # (H, rows, S)
    masked = hidden(layer, rows, slice(0, layer.shape[1]), block)  # (R, C)
    cells = np.where(masked, np.nan, pooled(pattern, block).numpy())  # (H, R, C)
    return cells, torch.special.entr(pattern).sum(dim=(1, 2), dtype=torch.float64).numpy()  # -Σ w ln w


def _chosen_layers(attention_pass: AttentionPass, question: HeadsQuestion) -> dict[Site, LayerPass]:
    """Return the requested layers that have heads.

    Raises:
        GlassError: there is no such layer, or none of the layers has heads.
    """
    if question.sites is None:
        return attention_pass.layers
    sites = [find_site(attention_pass.subject.model, name) for name in dict.fromkeys(question.sites)]
    layers = {site: attention_pass.layers[site] for site in sites if site in attention_pass.layers}
    if not layers:
        raise GlassError(f"all heads of {', '.join(map(str, sites))} were removed", "Choose another layer or run.")
    return layers


def _max_cells(layers: dict[Site, LayerPass], px: int) -> int:
    """Return the maximum number of cells on the longer side for which all maps fit into one response."""
    return max(1, min(px, math.isqrt(MAX_BYTES // sum(len(layer.heads) for layer in layers.values()))))


def python(opened: ServedModel, question: HeadsQuestion) -> str:
    """Return a script that prints the cells of all maps, with the name of each head."""
    attention_pass = attention_pass_of(opened, question.text, question.target)
    layers = _chosen_layers(attention_pass, question)
    return script(
        opened,
        f"subject = unshortened_subject_of(model, {question.text!r}, {question.target!r})",
        f"sites = [find_site(subject.model, name) for name in {[str(site) for site in layers]}]",
        f"for head, cells in read_maps(subject, sites, {_max_cells(layers, question.px)}).maps.items():",
        "    print(head, cells.tolist())",
        imports=[
            "from glassformer.inspection.explain import unshortened_subject_of",
            "from glassformer.inspection.plots.run_maps import find_site, read_maps",
        ],
    )


VIEW = PageView(HeadsQuestion, answer, python)
