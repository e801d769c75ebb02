"""Studies: predefined grids, each for one common question about transformers. A study is a TOML file in `studies/`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from glassformer.base.errors import GlassError, nearest

COST = "cost"
"""Name of the study that trains no runs, but measures time and memory; see `cost`."""
COST_QUESTION = "How do time and memory grow with the length, the width and the number of layers?"


@dataclass(frozen=True)
class Study:
    """A predefined grid.

    Attributes:
        name: file name without the suffix.
        question: question that the study answers.
        hint: advice on interpreting the results.
        settings: settings of all cells, as `SECTION.FIELD` -> string.
        vary: the values of each varied setting, as strings.
    """

    name: str
    question: str
    hint: str
    settings: Mapping[str, str]
    vary: Mapping[str, tuple[str, ...]]


def study_names() -> list[str]:
    """Return the sorted names of all studies except `cost`."""
    folder = resources.files("glassformer.experiments").joinpath("studies")
    return sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load_study(name: str) -> Study:
    """Load the study with this name.

    Raises:
        GlassError: there is no such study; the remedy names the study with the nearest name, or lists all names.
    """
    if name not in study_names():
        raise GlassError(f"unknown study {name!r}", nearest(name, [*study_names(), COST]))
    text = resources.files("glassformer.experiments").joinpath("studies", f"{name}.toml").read_text(encoding="utf-8")
    fields = tomllib.loads(text)
    settings = {key: _text(value) for key, value in fields["settings"].items()}
    vary = {key: tuple(map(_text, values)) for key, values in fields["vary"].items()}
    return Study(name, fields["question"], fields["hint"], settings, vary)


def _text(value: object) -> str:
    """Return a TOML value as a string for `--set`."""
    return value if isinstance(value, str) else json.dumps(value)
