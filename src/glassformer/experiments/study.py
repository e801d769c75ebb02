"""Studies: grids with a name, each a question that people ask of transformers. A study is a TOML file in `studies/`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from glassformer.base.errors import GlassError, nearest

COST = "cost"
"""The study that measures arithmetic instead of training; see `cost`."""
COST_QUESTION = "How do time and memory grow with the length, the width and the layers?"


@dataclass(frozen=True)
class Study:
    """A grid with a name.

    Attributes:
        name: of the file.
        question: that it answers, and `hint`: how to read the answer.
        settings: of all cells, as `SECTION.FIELD` -> text.
        vary: setting -> its values as text.
    """

    name: str
    question: str
    hint: str
    settings: Mapping[str, str]
    vary: Mapping[str, tuple[str, ...]]


def study_names() -> list[str]:
    """The names of all studies but `cost`, sorted."""
    folder = resources.files("glassformer.experiments").joinpath("studies")
    return sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load_study(name: str) -> Study:
    """The study of that name.

    Raises:
        GlassError: there is none; the nearest name is given.
    """
    if name not in study_names():
        raise GlassError(f"there is no study {name!r}", nearest(name, [*study_names(), COST]))
    text = resources.files("glassformer.experiments").joinpath("studies", f"{name}.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)
    settings = {key: _text(value) for key, value in found["settings"].items()}
    vary = {key: tuple(map(_text, values)) for key, values in found["vary"].items()}
    return Study(name, found["question"], found["hint"], settings, vary)


def _text(value: object) -> str:
    """A value as `--set` would have it."""
    return value if isinstance(value, str) else json.dumps(value)
