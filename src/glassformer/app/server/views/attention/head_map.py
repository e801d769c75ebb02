"""Attention map of one head, or a window of the map, pooled to the resolution of the picture.

The response is binary. Its header::

    {"head": "dec.1.self.2", "pass": "observed", "scale": "linear", "agg": "max", "form": "uint8",
     "shape": [R, C],             shape of the data
     "block": 4,                  side of the block of weights that was pooled into one cell, in tokens
     "queries": [0, 256],         query positions of the window
     "keys": [0, 256],            key positions of the window
     "size": [256, 256],          numbers of queries and keys of the whole map
     "hidden": 255, "full": 254,  for uint8: the byte of a masked cell, and of the weight 1
     "row_sums": [1.0, …],        R sums over all keys of the whole map, averaged over the rows of a block
     "largest": 0.98,             largest weight in the window
     "labels": null | {"queries": ["The", …], "keys": […]}}   of the window, if block is 1

If `form` is "uint8", the data are R x C bytes, and `scale` gives the function of a weight w that they show: w
("linear"), √w ("sqrt"), or 1 + log10(w) / 4 ("log"; 0 for weights up to 0.0001). If `form` is "float32", the data are
the R x C weights themselves, NaN where masked.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import Binary, Name, PageView, TextQuestion
from glassformer.app.server.views.attention.attention_pass import AttentionPass, LayerPass, attention_pass_of
from glassformer.app.server.views.attention.cells import FULL, HIDDEN, Aggregate, Form, Span, as_bytes, cells_of, window
from glassformer.app.server.views.attention.scripts import recording_script
from glassformer.inspection.plots import Scale, block_for

MOST = 512
"""Maximum number of cells on the longer side of the map."""
MOST_NUMBERS = 480
"""Maximum number of cells on the longer side for float32, so that the response is not too large."""


class HeadMapQuestion(TextQuestion):
    """Request for the attention map of one head, or a window of the map.

    Attributes:
        head: name of the head, such as dec.1.self.2.
        queries, keys: [start, stop] of the window; None: all.
        px: maximum number of cells on the longer side; for float32 at most 480.
        agg: pooling of a block: its largest weight, or the sum over its keys, averaged over its queries.
        form: format of the cells.
        scale: scale of the cells for uint8.
    """

    head: Name
    queries: Span = None
    keys: Span = None
    px: int = Field(MOST, ge=1, le=MOST)
    agg: Aggregate = "max"
    form: Form = "uint8"
    scale: Scale = "linear"


def answer(opened: ServedModel, question: HeadMapQuestion) -> Binary:
    """Return the pooled attention map of one head, with the row sums and the largest weight."""
    attention_pass = attention_pass_of(opened, question.text, question.target)
    head, layer, index = attention_pass.head(question.head)
    rows, keys, block = _window(layer, question)
    cells = cells_of(layer, rows, keys, block, question.agg, lambda chunk: layer.pattern(chunk, [index])[0])
    header = {
        "head": str(head),
        "pass": attention_pass.kind,
        "scale": question.scale,
        "agg": question.agg,
        "form": question.form,
        "shape": list(cells.cells.shape),
        "block": block,
        "queries": [rows.start, rows.stop],
        "keys": [keys.start, keys.stop],
        "size": list(layer.shape),
        "hidden": HIDDEN,
        "full": FULL,
        "row_sums": cells.row_sums.tolist(),
        "largest": cells.largest,
        "labels": labels(attention_pass, question.head, rows, keys) if block == 1 else None,
    }
    return Binary(header, as_bytes([cells.cells], question.form, question.scale))


def labels(attention_pass: AttentionPass, name: str, rows: slice, keys: slice) -> dict[str, Any]:
    """Return the query tokens and key tokens of a window."""
    query_labels, key_labels = attention_pass.labels(attention_pass.head(name)[0].site)
    return {"queries": query_labels[rows], "keys": key_labels[keys]}


def _window(layer: LayerPass, question: HeadMapQuestion) -> tuple[slice, slice, int]:
    """Return the range of queries and the range of keys of the window, and the side of a block."""
    T, S = layer.shape
    rows = window(question.queries, T, "queries")
    keys = window(question.keys, S, "keys")
    max_cells = min(question.px, MOST_NUMBERS) if question.form == "float32" else question.px
    return rows, keys, block_for(max(rows.stop - rows.start, keys.stop - keys.start), max_cells)


def python(opened: ServedModel, question: HeadMapQuestion) -> str:
    """Return a script that prints the cells of the window as numbers, for either `form`."""
    layer = attention_pass_of(opened, question.text, question.target).head(question.head)[1]
    rows, keys, block = _window(layer, question)
    site = question.head.rpartition(".")[0]
    window_text = f"[{rows.start}:{rows.stop}, {keys.start}:{keys.stop}]"
    lines = [
        f'weights = found["{question.head}.pattern"][0].numpy(){window_text}',
        f'masked = np.isneginf(found["{question.head}.scores"][0].numpy()){window_text}',
    ]
    if question.agg == "max":
        lines.append(f"cells = pooled(np.where(masked, np.nan, weights), {block})")
        imports = ["import numpy as np", "from glassformer.inspection.plots import pooled"]
    else:
        imports = ["import numpy as np"]
        lines += [
            f"starts, ends = (np.arange(0, length, {block}) for length in weights.shape)",
            "sizes = np.diff([*starts, len(weights)])",
            "cells = np.add.reduceat(np.add.reduceat(weights, ends, axis=1), starts, axis=0) / sizes[:, None]",
        ]
    kinds = f"{site}.pattern", f"{site}.scores"
    return recording_script(opened, question, kinds, *lines, "print(cells.tolist())", more=imports)


VIEW = PageView(HeadMapQuestion, answer, python)
