"""The request for a new run, and its settings: corpus, recipe, file, options, each over the ones before."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.base.config import EXAMPLES, TASK_FACTS, Config, DataConfig, parse_changes, settings_of
from glassformer.base.errors import GlassError
from glassformer.base.recipes import load_recipe
from glassformer.base.settings import read_toml
from glassformer.corpora import CORPORA

AUTO = "auto"
WORTH_IT = 1.0
"""Shortest run, in minutes, that is measured and forecast without being asked to."""


@dataclass(frozen=True)
class RunRequest:
    """Request for a new run.

    Attributes:
        changes: settings as text, by SECTION.FIELD; `data.source` names the data.
        recipe: a name, or "auto"; None: the default recipe of the task, if the data are a person's own.
        file: settings in TOML, over the recipe's.
        out: the run folder; None: runs/NAME-OF-DATA.
    """

    changes: Mapping[str, str]
    recipe: str | None = None
    file: Path | None = None
    out: Path | None = None

    @property
    def recipe_name(self) -> str | None:
        """Return the recipe that is named, or else the default; a file of settings has none.

        The generated corpora have their own settings.
        """
        options = parse_changes(self.changes)
        facts = TASK_FACTS.get(_last([options], "train", "task", "lm"))
        usual = None if facts is None else facts.recipe
        if self.recipe == AUTO:
            return usual or AUTO
        if self.recipe is not None or self.file is not None:
            return self.recipe
        return None if _last([options], "data", "source", DataConfig().source) in CORPORA else usual

    @property
    def config(self) -> Config:
        """Return all settings; see `chosen_settings`."""
        return chosen_settings(self.recipe_name, self.file, self.changes)

    @property
    def folder(self) -> Path:
        """Run folder: `out`, or else runs/NAME-OF-DATA."""
        source = self.config.data.source
        name = "text" if source == "-" else Path(source).name.split(".")[0] or "text"
        return self.out or Path("runs") / name

    def named_settings(self) -> set[str]:
        """Return the names of the settings that the corpus, the file or an option gives, not the recipe alone."""
        config = self.config
        corpus = CORPORA.get(config.data.source)
        own = corpus.recommended(config.train.task) if corpus is not None else {}
        file = {} if self.file is None else read_toml(self.file)
        written = {f"{section}.{field}" for section, values in file.items() for field in values}
        return {*own, *written, *self.changes}

    def leaves_sizes_open(self) -> bool:
        """Return whether sizes are to be chosen for the text, the time and the machine.

        The default recipe leaves them open only in a run of minutes that is long enough to be measured.
        """
        recipe = self.recipe_name
        if recipe is None or not load_recipe(recipe).sized:
            return False
        limits = self.config.train
        return self.recipe is not None or (limits.steps is None and (limits.minutes or 0) >= WORTH_IT)

    def is_forecast(self) -> bool:
        """Return whether the run is measured and forecast before it begins."""
        return self.leaves_sizes_open() or (self.config.train.minutes or 0) >= WORTH_IT


def named_source(data: str | None, target: str | None = None) -> dict[str, str]:
    """Return the changes of settings that DATA and TARGET of a command line stand for."""
    named = {"data.source": data, "data.target": target}
    return {key: json.dumps(name, ensure_ascii=False) for key, name in named.items() if name is not None}


def chosen_settings(recipe: str | None, file: Path | None, changes: Mapping[str, str]) -> Config:
    """Join the settings of a run: defaults, those of the corpus and the task, recipe, file, options.

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
        if task not in corpus.tasks and task in TASK_FACTS:
            raise GlassError(
                f"the corpus {source} is not made for train.task = {task}", f"It serves {', '.join(corpus.tasks)}."
            )
        own = corpus.recommended(task) if task in TASK_FACTS else {}
        layers.insert(0, _nested({"train.task": task, **own}))
    return settings_of(layers, changes, "" if file is None else str(file))


def _of_encoded(layers: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the settings with which the source of these layers was encoded, if it was."""
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
