"""Which settings a run gets: from the corpus, the recipe, a file and flags, each over the ones before."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from glassformer.app.cli.settings import add_setting_flags, add_short_flags, changes_from, settings_of
from glassformer.base.config import EXAMPLES, FAMILIES, Config, DataConfig, parse_changes
from glassformer.base.errors import GlassError
from glassformer.base.recipes import load_recipe, recipe_names
from glassformer.base.settings import read_toml
from glassformer.corpora import CORPORA

AUTO = "auto"
USUAL = {
    "lm": "auto",
    "masked": "auto-masked",
    "classify": "auto-classify",
    "translate": "auto-translate",
    "summarize": "auto-summarize",
}
"""The recipes of those who name none, by task; `--recipe auto` is the one of the task."""


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything that says what a new run will be."""
    parser.add_argument("data", nargs="?", metavar="DATA", help="what to learn from")
    parser.add_argument("target", nargs="?", metavar="TARGET", help="of two parallel files the second (data.target)")
    parser.add_argument("--out", type=Path, metavar="RUN", help="the run folder (default: runs/NAME-OF-DATA)")
    parser.add_argument("--recipe", metavar="NAME", help=f"named settings: {', '.join(recipe_names())}")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings from a TOML file, over the recipe's")
    add_short_flags(parser)
    add_setting_flags(parser, Config.model_fields)


def chosen_run(arguments: argparse.Namespace) -> tuple[Config, Path]:
    """The settings of a new run, and its folder."""
    changes = changes_from(arguments) | named_source(arguments.data, arguments.target)
    config = chosen_settings(recipe_of(arguments), arguments.config, changes)
    source = config.data.source
    name = "text" if source == "-" else Path(source).name.split(".")[0] or "text"
    return config, arguments.out or Path("runs") / name


def recipe_of(arguments: argparse.Namespace) -> str | None:
    """Return the recipe that is named, or else the usual one for a person's own data; a --config stands by itself.

    The generated corpora have their own settings.
    """
    said = parse_changes(changes_from(arguments) | named_source(arguments.data))
    usual = USUAL.get(_last([said], "train", "task", "lm"))
    if arguments.recipe == AUTO:
        return usual or AUTO
    if arguments.recipe is not None or arguments.config is not None:
        return arguments.recipe
    return None if _last([said], "data", "source", DataConfig().source) in CORPORA else usual


def said_settings(arguments: argparse.Namespace) -> set[str]:
    """The names of the settings that the corpus, a file or flags give; those of the recipe alone are not among them."""
    config, _ = chosen_run(arguments)
    task = config.train.task
    corpus = CORPORA.get(config.data.source)
    own = corpus.recommended(task) if corpus is not None else {}
    file = {} if arguments.config is None else read_toml(arguments.config)
    written = {f"{section}.{field}" for section, values in file.items() for field in values}
    return {*own, *written, *changes_from(arguments)}


def named_source(data: str | None, target: str | None = None) -> dict[str, str]:
    """DATA and TARGET of a command line as changes of settings."""
    named = {"data.source": data, "data.target": target}
    return {key: json.dumps(name, ensure_ascii=False) for key, name in named.items() if name is not None}


def chosen_settings(recipe: str | None, file: Path | None, changes: dict[str, str]) -> Config:
    """Defaults, then what suits the corpus and the task, then recipe, file and flags.

    A source that is encoded already brings its settings of text and tokens, over those of the recipe.

    Raises:
        GlassError: a setting is not allowed, or the corpus does not serve the task.
    """
    options = parse_changes(changes)
    of_recipe: list[Mapping[str, Any]] = [load_recipe(recipe).settings] if recipe else []
    of_file: list[Mapping[str, Any]] = [read_toml(file)] if file else []
    of_source = _of_encoded([*of_recipe, *of_file, options])
    layers = [*of_recipe, *of_source, *of_file]
    source = _last([*layers, options], "data", "source", DataConfig().source)
    if source in CORPORA:
        corpus = CORPORA[source]
        task = _last([*layers, options], "train", "task", corpus.tasks[0])
        if task not in corpus.tasks and task in FAMILIES:
            raise GlassError(
                f"the corpus {source} is not made for train.task = {task}", f"It serves {', '.join(corpus.tasks)}."
            )
        own = corpus.recommended(task) if task in FAMILIES else {}
        layers.insert(0, _nested({"train.task": task, **own}))
    return settings_of(layers, changes, "" if file is None else str(file))


def _of_encoded(layers: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The settings with which the source that these name was encoded, if it was."""
    from glassformer.text.encoded import settings_of_encoded

    source = _last(layers, "data", "source", DataConfig().source)
    task = _last(layers, "train", "task", "lm")
    if task in EXAMPLES:
        return []
    return [found] if isinstance(source, str) and (found := settings_of_encoded(source)) else []


def _last(layers: Iterable[Mapping[str, Any]], section: str, field: str, otherwise: Any) -> Any:
    """Return a setting's value in the last layer that has it."""
    for layer in layers:
        values = layer.get(section)
        if isinstance(values, Mapping) and field in values:
            otherwise = values[field]
    return otherwise


def _nested(flat: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """`{"data.windows": "documents"}` -> `{"data": {"windows": "documents"}}`."""
    nested: dict[str, dict[str, Any]] = {}
    for key, value in flat.items():
        section, _, field = key.partition(".")
        nested.setdefault(section, {})[field] = value
    return nested
