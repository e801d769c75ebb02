"""Request for a new run; merges settings from parent, corpus, recipe, file and options, lowest priority first."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.base.config import EXAMPLES, TASK_FACTS, Config, DataConfig, parse_changes, settings_of
from glassformer.base.errors import GlassError
from glassformer.base.recipes import load_recipe
from glassformer.base.settings import read_toml
from glassformer.corpora import CORPORA

if TYPE_CHECKING:
    from glassformer.runs.parent import Parent

AUTO = "auto"
FINE_TUNE = "fine-tune"
"""Default recipe of a run that starts from another run."""
MIN_FORECAST_MINUTES = 1.0
"""Minimum `train.minutes` of a run that is measured and forecast by default."""


@dataclass(frozen=True)
class RunRequest:
    """Request for a new run.

    Attributes:
        changes: SECTION.FIELD -> value as text; `data.source` names the data.
        recipe: name of a recipe, or "auto" (see `recipe_name`); None: the default recipe.
        file: TOML file with settings, which override the recipe's.
        out: the run folder; None: runs/NAME-OF-DATA.
        begin_from: folder of the run whose tokenizer and weights to start from; None: start from random weights.
    """

    changes: Mapping[str, str]
    recipe: str | None = None
    file: Path | None = None
    out: Path | None = None
    begin_from: Path | None = None

    @functools.cached_property
    def parent(self) -> Parent | None:
        """Return the run to start from; None if there is none.

        Raises:
            GlassError: the folder has no run, or the run is damaged or being trained.
        """
        if self.begin_from is None:
            return None
        from glassformer.runs.parent import Parent

        return Parent.open(self.begin_from)

    @property
    def recipe_name(self) -> str | None:
        """Return the name of the requested recipe, or else of the default recipe; None if there is none.

        With a parent run, the default recipe is `FINE_TUNE`. Without a parent, it is the recipe of the task, which
        "auto" requests explicitly; a generated corpus has its own settings, and no default recipe. With a settings
        file, there is no default recipe.
        """
        options = parse_changes(self.changes)
        facts = TASK_FACTS.get(_last_value([options], "train", "task", "lm"))
        task_recipe = None if facts is None else facts.recipe
        if self.begin_from is not None:
            return self.recipe or (FINE_TUNE if self.file is None else None)
        if self.recipe == AUTO:
            return task_recipe or AUTO
        if self.recipe is not None or self.file is not None:
            return self.recipe
        return None if _last_value([options], "data", "source", DataConfig().source) in CORPORA else task_recipe

    @property
    def config(self) -> Config:
        """Return all settings; see `merge_settings`."""
        return merge_settings(self.recipe_name, self.file, self.changes, self.parent)

    @property
    def folder(self) -> Path:
        """Return the run folder: `out`, or else runs/NAME-OF-DATA."""
        source = self.config.data.source
        name = "text" if source == "-" else Path(source).name.split(".")[0] or "text"
        return self.out or Path("runs") / name

    def named_settings(self) -> set[str]:
        """Return the names of the settings given by the corpus, the file or an option."""
        config = self.config
        corpus = CORPORA.get(config.data.source)
        recommended = corpus.recommended(config.train.task) if corpus is not None else {}
        file_settings = {} if self.file is None else read_toml(self.file)
        file_names = {f"{section}.{field}" for section, values in file_settings.items() for field in values}
        return {*recommended, *file_names, *self.changes}

    def leaves_sizes_open(self) -> bool:
        """Return whether sizes must be chosen for the text, the time limit and the machine.

        The result is False with a parent run, without a recipe, or if `Recipe.sized` is false. Otherwise it is True for
        a requested recipe; for the default recipe, it is True if `train.steps` is unset and `train.minutes` is at least
        `MIN_FORECAST_MINUTES`, which is long enough to measure the speed.
        """
        recipe = self.recipe_name
        if recipe is None or self.begin_from is not None or not load_recipe(recipe).sized:
            return False
        limits = self.config.train
        return self.recipe is not None or (limits.steps is None and (limits.minutes or 0) >= MIN_FORECAST_MINUTES)

    def is_forecast(self) -> bool:
        """Return whether to measure training steps before the run starts, and to forecast time, memory and loss.

        The result is True if sizes must be chosen, or if `train.minutes` is at least `MIN_FORECAST_MINUTES`.
        """
        return self.leaves_sizes_open() or (self.config.train.minutes or 0) >= MIN_FORECAST_MINUTES


def source_settings(data: str | None, target: str | None = None) -> dict[str, str]:
    """Return the settings `data.source` and `data.target` as JSON text, except those that are None."""
    sources = {"data.source": data, "data.target": target}
    return {key: json.dumps(name, ensure_ascii=False) for key, name in sources.items() if name is not None}


def merge_settings(
    recipe: str | None, file: Path | None, changes: Mapping[str, str], parent: Parent | None = None
) -> Config:
    """Merge the settings of a run: defaults, parent, corpus, recipe, file and options, lowest priority first.

    If the source is already encoded, the settings with which it was encoded override those of the recipe. With a
    parent, only the `data` settings of the corpus are used.

    Raises:
        GlassError: a setting is not allowed, the file cannot be read, `data.source` is empty, there is a parent but no
            `data.source` (or `data.mix` but no parent), the corpus does not support the task, or the task, model or
            tokenizer does not fit the parent.
    """
    options = parse_changes(changes)
    recipe_layers: list[Mapping[str, Any]] = [load_recipe(recipe).settings] if recipe else []
    file_layers: list[Mapping[str, Any]] = [read_toml(file)] if file else []
    encoded_layers = _encoded_settings([*recipe_layers, *file_layers, options])
    layers = [*recipe_layers, *encoded_layers, *file_layers]
    source = _last_value([*layers, options], "data", "source", "" if parent is not None else DataConfig().source)
    if not source and parent is None:
        raise GlassError("DATA is empty", "Name the training data: glass train DATA")
    if not source:
        raise GlassError("--from was given without DATA", "Name the training data: glass train DATA --from RUN")
    if source in CORPORA:
        corpus = CORPORA[source]
        default_task = corpus.tasks[0] if parent is None else parent.task
        task = _last_value([*layers, options], "train", "task", default_task)
        if task not in corpus.tasks and task in TASK_FACTS:
            raise GlassError(
                f"the corpus {source} does not support train.task = {task}",
                f"Choose one of its tasks: {', '.join(corpus.tasks)}.",
            )
        recommended = corpus.recommended(task) if task in TASK_FACTS else {}
        if parent is not None:
            recommended = {name: value for name, value in recommended.items() if name.startswith("data.")}
        layers.insert(0, _nested({"train.task": task, **recommended}))
    if parent is not None:
        layers.insert(0, parent.settings(_last_value([*layers, options], "train", "task", parent.task)))
    config = settings_of(layers, changes, "" if file is None else str(file))
    if parent is not None:
        parent.refuse_changes(config, encoded=bool(encoded_layers))
    elif config.data.mix:
        raise GlassError(
            f"data.mix = {config.data.mix:g} without --from",
            "Give --from RUN, the run whose text to mix in, or leave data.mix out.",
        )
    return config


def _encoded_settings(layers: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return a list of the settings with which the source was encoded.

    The list is empty if the source is not encoded, or if the task is trained on examples.
    """
    from glassformer.text.encoded import settings_of_encoded

    source = _last_value(layers, "data", "source", DataConfig().source)
    task = _last_value(layers, "train", "task", "lm")
    if task in EXAMPLES:
        return []
    return [settings] if isinstance(source, str) and (settings := settings_of_encoded(source)) else []


def _last_value(layers: Iterable[Mapping[str, Any]], section: str, field: str, default: Any) -> Any:
    """Return a setting's value from the last of `layers` that has this setting, or `default`."""
    for layer in layers:
        values = layer.get(section)
        if isinstance(values, Mapping) and field in values:
            default = values[field]
    return default


def _nested(flat: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Nest settings by section: `{"data.windows": "documents"}` -> `{"data": {"windows": "documents"}}`."""
    nested: dict[str, dict[str, Any]] = {}
    for key, value in flat.items():
        section, _, field = key.partition(".")
        nested.setdefault(section, {})[field] = value
    return nested
