"""Explanations of the steps of a walk, at five levels."""

from __future__ import annotations

import tomllib
from importlib import resources

from glassformer.base.wording import LEVELS, Level


def wordings() -> dict[str, dict[Level, str]]:
    """Return the explanations as a dict: key of a section -> level -> paragraph."""
    text = resources.files("glassformer.inspection.explain").joinpath("wording.toml").read_text(encoding="utf-8")
    return {
        key: {level: " ".join(texts[level].split()) for level in LEVELS} for key, texts in tomllib.loads(text).items()
    }
