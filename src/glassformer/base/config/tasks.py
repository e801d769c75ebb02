"""The tasks: their names, the family that learns each, and the settings that each asks for or allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from glassformer.base.config.model import Family

Task = Literal["lm", "masked", "classify", "translate", "summarize"]
PAIRS: tuple[Task, ...] = ("translate", "summarize")
"""Tasks that write a target text for a source text."""
EXAMPLES: tuple[Task, ...] = (*PAIRS, "classify")
"""Tasks that learn from examples with an answer each, not from running text."""
FAMILIES: Mapping[str, Family] = {
    "lm": "decoder",
    "masked": "encoder",
    "classify": "encoder",
    "translate": "encoder-decoder",
    "summarize": "encoder-decoder",
}
"""The family that learns each task."""
TEXTS: tuple[Task, ...] = ("lm", "masked")
"""Tasks that learn from running text."""
ONLY_FOR: Mapping[tuple[str, str], tuple[Task, ...]] = {
    ("model", "encoder_layers"): PAIRS,
    ("model", "shared_embedding"): PAIRS,
    ("model", "source_vocab_size"): PAIRS,
    ("model", "classes"): ("classify",),
    ("model", "pooling"): ("classify",),
    ("model", "head_transform"): (*TEXTS, *PAIRS),
    ("tokenizer", "joint"): PAIRS,
    ("data", "windows"): TEXTS,
    ("data", "document"): TEXTS,
    ("data", "clean"): TEXTS,
    ("data", "duplicates"): TEXTS,
    ("data", "validation"): EXAMPLES,
    ("data", "too_long"): EXAMPLES,
    ("train", "batch_tokens"): EXAMPLES,
    ("train", "mask_share"): ("masked",),
}
"""Settings that mean something for some tasks only."""
_EXAMPLES: dict[str, dict[str, Any]] = {"data": {"split": "random"}}
_WRITING: dict[str, dict[str, Any]] = {**_EXAMPLES, "sample": {"temperature": 0.0, "beams": 4}}
TASK_DEFAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    task: {**own, "model": {"family": FAMILIES[task]}}
    for task, own in {
        "lm": {},
        "masked": {},
        "classify": _EXAMPLES,
        "translate": _WRITING,
        "summarize": _WRITING,
    }.items()
}
"""Settings that a task asks for, below everything that a recipe, a file or a person says."""
