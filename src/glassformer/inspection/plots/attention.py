"""Attention of a run as a figure and as numbers: one head, the heads of one layer, or all heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.inspection.plots.cells import Scale
from glassformer.inspection.plots.fonts import Fonts, find_fonts
from glassformer.inspection.plots.maps import LARGE, MOST_CELLS, Grid, MapLabels, draw_maps
from glassformer.inspection.plots.run_maps import AttentionMaps, read_maps
from glassformer.inspection.sites import HeadSite, Site, attentions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from glassformer.inspection.explain import Subject

THUMBNAIL = 64
"""Maximum number of cells, and approximate length in pixels, of a map's longer side when all heads are shown.

Maps of very short texts are smaller, because a cell has at most `maps.LARGEST_CELL` pixels.
"""
MIDDLE = 256
"""Maximum number of cells, and approximate length in pixels, of a map's longer side when one layer is shown.

Maps of very short texts are smaller, because a cell has at most `maps.LARGEST_CELL` pixels.
"""
ACROSS = 4
"""Maximum number of maps side by side when the heads of one layer are shown."""
MOST_KEYS = 3
"""Maximum number of keys in the list of the largest weights of a query."""
LEAST_LISTED = 0.005
"""Minimum weight in the list of a query's largest weights; the largest weight is always listed.

Weights are listed with two decimals, so smaller weights would appear as 0.00.
"""
DECIMALS = 6  # decimal places of weights in JSON


def record_attention_maps(subject: Subject, selection: HeadSite | Site | None = None) -> AttentionMaps:
    """Record attention weights for drawing, pooled to the resolution of the figure.

    Args:
        subject: the model and its input.
        selection: a head or a layer; None: all heads.

    Raises:
        GlassError: all these heads were removed, the ids do not fit the model, or the weights and scores of a single
            layer exceed the memory budget of a recording.
    """
    match selection:
        case HeadSite():
            attention_maps = read_maps(subject, [selection.site], MOST_CELLS)
            return AttentionMaps(subject, attention_maps.block, {selection: attention_maps.maps[selection]})
        case Site():
            return read_maps(subject, [selection], MIDDLE)
        case None:
            return read_maps(subject, list(attentions(subject.model)), THUMBNAIL)


def draw_attention(attention_maps: AttentionMaps, scale: Scale = "linear", fonts: Fonts | None = None) -> Figure:
    """Draw attention maps.

    Args:
        attention_maps: attention maps from `record_attention_maps`.
        scale: scale of the colours.
        fonts: fonts for the labels; None: select installed fonts that have the characters of the tokens.
    """
    fonts = fonts or find_fonts(attention_maps.texts())
    sites = list(dict.fromkeys(head.site for head in attention_maps.maps))
    if len(sites) > 1:
        title = f"all {counted(len(attention_maps.maps), 'heads')}: attention weights"
        return draw_maps(
            title, _overview(attention_maps, sites), block=attention_maps.block, scale=scale, size=THUMBNAIL
        )
    maps = list(attention_maps.maps.items())
    several = len(attention_maps.maps) > 1
    title = f"{sites[0] if several else maps[0][0]}: attention weights"
    grid: Grid = [
        ("", [(f"head {head.head}" if several else "", cells) for head, cells in maps[start : start + ACROSS]])
        for start in range(0, len(maps), ACROSS)
    ]
    labels = labels_of(attention_maps, sites[0], fonts)
    size = MIDDLE if several else LARGE
    return draw_maps(
        title, grid, block=attention_maps.block, labels=labels, scale=scale, size=size, families=fonts.families
    )


def labels_of(attention_maps: AttentionMaps, site: Site, fonts: Fonts) -> MapLabels:
    """Return the token labels and axis titles for the maps of a layer."""
    rows, columns = (fonts.labels(*zip(*tokens, strict=True)) for tokens in attention_maps.tokens(site))
    if site.part == "cross":
        return MapLabels(rows, columns, "target tokens (queries)", "source tokens (keys)")
    return MapLabels(rows, columns)


def largest_weights(attention_maps: AttentionMaps) -> list[str]:
    """Return a title and a line for each query token, with the keys of its `MOST_KEYS` largest weights.

    Weights below `LEAST_LISTED` are left out, except the largest of a query.

    Args:
        attention_maps: the attention map of a single head.

    Raises:
        GlassError: there are so many tokens that their weights were pooled.
    """
    ((head, cells),) = attention_maps.maps.items()
    if attention_maps.block > 1:
        subject = attention_maps.subject
        longest = max(len(subject.ids), len(subject.target_ids or ()))
        raise GlassError(f"there are too many tokens for a list: {longest:,}", "Draw a picture: --out FILE.png.")
    queries, keys = ([text for text, _ in tokens] for tokens in attention_maps.tokens(head.site))
    width = max(map(len, map(repr, queries)))
    lines = [f"{head}: the largest attention weights of each query token"]
    for number, (query, weights) in enumerate(zip(queries, cells, strict=True)):
        order = np.argsort(-np.nan_to_num(weights), kind="stable")[:MOST_KEYS]
        listed = [key for rank, key in enumerate(order) if rank == 0 or weights[key] >= LEAST_LISTED]
        largest = [f"{keys[key]!r} {key} {weights[key]:.2f}" for key in listed]
        lines.append(f"{number:4d} {query!r:{width}}  ->  {', '.join(largest)}")
    return lines


def facts(attention_maps: AttentionMaps) -> dict[str, Any]:
    """Return the weights, rounded to `DECIMALS` places, as a JSON-serializable dict; masked weights are None."""
    subject = attention_maps.subject
    target = None if subject.target_ids is None else _tokens(subject.target_labels or (), subject.target_ids)
    return {
        "text": subject.text,
        "tokens": _tokens(subject.labels, subject.ids),
        "target": subject.target,
        "target_tokens": target,
        "block": attention_maps.block,
        "heads": [
            {"name": str(head), "weights": [[_number(weight) for weight in row] for row in cells.tolist()]}
            for head, cells in attention_maps.maps.items()
        ],
    }


def _tokens(texts: tuple[str, ...], ids: tuple[int, ...]) -> list[dict[str, Any]]:
    return [{"id": id, "text": text} for id, text in zip(ids, texts, strict=True)]


def _number(weight: float) -> float | None:
    return None if np.isnan(weight) else round(weight, DECIMALS)


def _overview(attention_maps: AttentionMaps, sites: list[Site]) -> Grid:
    """Return a grid with a row for each attention layer, grouped by part, with gaps for removed heads."""
    order = sorted(sites, key=lambda site: (site.stack == "dec", site.part == "cross", site.layer))
    width = 1 + max(head.head for head in attention_maps.maps)
    return [
        (str(site), [(str(head), attention_maps.maps.get(HeadSite(site, head))) for head in range(width)])
        for site in order
    ]
