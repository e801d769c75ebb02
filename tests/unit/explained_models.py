"""Tiny models of every family and setting, ready to be explained."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

from glassformer.base.config import Activation
from glassformer.inspection.explain import Subject
from tests.property.models import POSITIONS as KINDS
from tests.property.models import as_if_trained, tiny, tokens

FAMILIES = ("decoder", "encoder", "classifier", "encoder-decoder")
BIASES = {"attention_bias": True, "feedforward_bias": True, "norm_bias": True, "head_bias": True}
CHOICES: list[dict[str, Any]] = [
    *({"positions": kind, "norm_order": order} for kind, order in product(KINDS, ("pre", "post", "output"))),
    *({"activation": activation} for activation in get_args(Activation)),
    {"norm": "rmsnorm"},
    {"norm": "rmsnorm", "norm_order": "post"},
    {"norm": "none"},
    {"kv_heads": 2},
    {"kv_heads": 1},
    {"norm": "rmsnorm", "norm_order": "output"},
    {"qk_norm": "head", "positions": "rotary"},
    {"qk_norm": "whole", "kv_heads": 2},
    {"window": 3, "positions": "alibi"},
    {**BIASES, "tied": False},
    {"embedding_scale": True, "pooling": "first"},
    {"embedding_norm": True},
    {"embedding_norm": True, "positions": "none"},
]


def subject(family: str, length: int = 7, **choice: Any) -> Subject:
    """Return a tiny model of two layers and the tokens it reads, without a tokenizer."""
    own: dict[str, Any] = (
        {"layers": 2, "family": "encoder", "classes": 5} if family == "classifier" else {"layers": 2, "family": family}
    )
    model = as_if_trained(tiny(**own, **choice))
    ids = tuple(tokens(1, length)[0].tolist())
    labels = tuple(f"t{id}" for id in ids)
    places = {"decoder": (length - 1,), "encoder": (1, 3), "classifier": (), "encoder-decoder": (0, 1, 2, 3)}[family]
    target = (30, 1, 2, 3) if family == "encoder-decoder" else None
    extra = {"target": "a b c", "target_ids": target, "target_labels": ("s", "a", "b", "c")} if target else {}
    return Subject("a model", model, "a text", ids, labels, places, lambda id: f"t{id}", **extra)  # type: ignore[arg-type]
