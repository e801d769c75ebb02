"""Attention maps of a run on a text, recorded and pooled one layer at a time to save memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from glassformer.base.errors import GlassError
from glassformer.inspection.explain import Subject
from glassformer.inspection.plots.cells import Floats, block_for, pooled
from glassformer.inspection.recording import record
from glassformer.inspection.sites import HeadSite, Site, attentions
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import Model


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """Pooled attention weights of some heads on one text.

    Attributes:
        subject: the model and its input.
        block: pooling block size, in positions.
        maps: weights of each head, (ceil(T / block), ceil(S / block)), NaN where masked.
    """

    subject: Subject
    block: int
    maps: dict[HeadSite, Floats]

    def tokens(self, site: Site) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """Return the texts and ids of the query tokens (rows) and key tokens (columns) of a layer's maps."""
        source = list(zip(self.subject.labels, self.subject.ids, strict=True))
        if self.subject.target_ids is None or self.subject.target_labels is None or site.stack == "enc":
            return source, source
        target = list(zip(self.subject.target_labels, self.subject.target_ids, strict=True))
        return target, source if site.part == "cross" else target

    def texts(self) -> list[str]:
        """Return all token texts that may become labels."""
        return [*self.subject.labels, *(self.subject.target_labels or ())]


def read_maps(subject: Subject, sites: Sequence[Site], max_cells: int) -> AttentionMaps:
    """Record and pool the attention weights of some layers.

    Args:
        subject: the model and its input; the model is not modified.
        sites: attention layers of the model.
        max_cells: maximum number of cells per side of a map; longer texts are pooled, with the same block size for all
            maps.

    Raises:
        GlassError: all heads of these layers were removed, the ids do not fit the model, or the weights and scores of a
            single layer exceed the memory budget of a recording.
    """
    lengths = {"enc": len(subject.ids), "dec": len(subject.ids if subject.target_ids is None else subject.target_ids)}
    longest = max(max(lengths[site.stack], lengths["enc"] if site.part == "cross" else 0) for site in sites)
    block = block_for(longest, max_cells)
    tokens = torch.tensor([subject.ids])  # (1, T)
    target = None if subject.target_ids is None else torch.tensor([subject.target_ids])  # (1, T)
    maps: dict[HeadSite, Floats] = {}
    layers = attentions(subject.model)
    for site in sites:
        if not layers[site].heads:
            continue
        keep = (f"{site}.pattern", f"{site}.scores")
        recording = record(subject.model, tokens, target, keep=keep, dtype=torch.float32)
        patterns, scores = (recording[name][0].numpy() for name in keep)  # (H, T, S) each
        weights = np.where(np.isneginf(scores), np.nan, patterns)  # (H, T, S)
        numbers = head_numbers(layers[site])
        maps |= {
            HeadSite(site, n): pooled(head_weights, block) for n, head_weights in zip(numbers, weights, strict=True)
        }
    if not maps:
        raise GlassError(f"all heads of {', '.join(map(str, sites))} were removed", "Choose another layer or run.")
    return AttentionMaps(subject, block, maps)


def find_site(model: Model, name: str) -> Site:
    """Return the attention layer with the given name, such as `dec.0.self`.

    Raises:
        GlassError: the model has no such layer; the error lists the model's layers.
    """
    sites = list(attentions(model))
    for site in sites:
        if str(site) == name:
            return site
    raise GlassError(f"there is no attention layer {name!r} in this model", f"It has {', '.join(map(str, sites))}.")
