"""Attention masks that a model applies to a given input."""

from __future__ import annotations

import torch
from torch import Tensor

from glassformer.inspection.explain.subject import Subject
from glassformer.inspection.recording import record
from glassformer.inspection.sites import attentions


def attention_masks(subject: Subject, first: int | None = None) -> dict[str, Tensor]:
    """Return the masks of a model by name (`enc.self`, `dec.self`, `dec.cross`), (T, S) bool, True at visible keys.

    Each mask is read from the scores of the first layer of its kind that has heads, because all layers of a stack share
    a mask. A mask is missing if no layer of its kind has heads.

    Args:
        subject: the model and its input.
        first: number of leading positions to return for queries and keys; None: all.
    """
    sites: dict[str, str] = {}
    for site, layer in attentions(subject.model).items():
        if layer.heads:
            sites.setdefault(f"{site.stack}.{site.part}", str(site))
    if not sites:
        return {}
    target = None if subject.target_ids is None else torch.tensor([subject.target_ids])
    keep = [f"{site}.scores" for site in sites.values()]
    recording = record(subject.model, torch.tensor([subject.ids]), target, keep=keep, rows=slice(first))
    return {kind: recording[f"{site}.scores"][0, 0, :, :first] != -torch.inf for kind, site in sites.items()}
