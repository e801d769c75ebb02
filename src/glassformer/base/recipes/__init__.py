"""Recipes: named settings that ship with the package, one TOML file each in this folder."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from glassformer.base.errors import GlassError, nearest


@dataclass(frozen=True)
class Recipe:
    """A recipe: named settings, with a description.

    Attributes:
        name: name of the file, without its extension.
        summary: description in one line.
        settings: settings by section; settings that are missing keep their defaults.
        vocabulary: vocabulary size of the recipe's usual text, for `glass count` if `model.vocab_size` is unset; None:
            `tokenizer.vocab_size`.
        sized: whether the recipe leaves sizes, such as `model.width`, to be chosen for the text, the time limit and the
            machine.
        published: published parameter counts of this model, for comparison in `glass count`: `total`, `note` and
            optionally `parts`, the counts by component; empty if there are none.
    """

    name: str
    summary: str
    settings: dict[str, Any]
    vocabulary: int | None = None
    sized: bool = False
    published: dict[str, Any] = field(default_factory=dict)


def recipe_names() -> list[str]:
    """Return the names of all recipes, sorted."""
    folder = resources.files("glassformer.base.recipes")
    return sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load_recipe(name: str) -> Recipe:
    """Load a recipe by name.

    Raises:
        GlassError: there is no recipe of this name; the error suggests the nearest name, or lists all names.
    """
    if name not in recipe_names():
        raise GlassError(f"there is no recipe {name!r}", nearest(name, recipe_names()))
    text = resources.files("glassformer.base.recipes").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    sections = tomllib.loads(text)
    summary = sections.pop("summary")
    published = sections.pop("published", {})
    vocabulary = sections.pop("vocabulary", None)
    sized = sections.pop("sized", False)
    return Recipe(name, summary, sections, vocabulary, sized, published)
