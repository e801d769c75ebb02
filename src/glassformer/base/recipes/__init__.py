"""Recipes: named settings that ship with the package, each tested. A recipe is a TOML file beside this one."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from glassformer.base.errors import GlassError, nearest


@dataclass(frozen=True)
class Recipe:
    """Settings with a name.

    Attributes:
        name: of the file.
        summary: one line.
        settings: sections of settings; what is missing keeps its default.
        vocabulary: tokens of the text that the recipe is known for, where the text decides; for `glass count`.
        sized: whether the sizes are left open, to be chosen for the text, the time and the machine.
        published: figures that others printed for this model, for `glass count` to compare: a total,
            `parts` by component, and `note`.
    """

    name: str
    summary: str
    settings: dict[str, Any]
    vocabulary: int | None = None
    sized: bool = False
    published: dict[str, Any] = field(default_factory=dict)


def recipe_names() -> list[str]:
    """The names of all recipes, sorted."""
    folder = resources.files("glassformer.base.recipes")
    return sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load_recipe(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        GlassError: there is none; the nearest name is given.
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
