"""Convert an estimator's parameters to the settings of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from glassformer.base.config import Config, Task
from glassformer.base.errors import GlassError

GIVEN = "(texts given to fit)"
"""Value of `data.source` for an estimator, whose texts are not read from a file."""
OF_DATA = ("seed", "too_long", "validation_limit", "windows")
"""The settings of `data` that the parameter `settings` may contain; `validation_fraction` is a parameter, and the other
settings are about files."""
EVALUATIONS = 10
"""Maximum number of evaluations in a fit: they are evenly spaced, except that the last step is always evaluated."""


def config_from(task: Task, values: Mapping[str, Any], seed: int, settings: Mapping[str, Any] | None) -> Config:
    """Return all settings of a fit.

    Args:
        task: task of the estimator.
        values: settings from the estimator's parameters, as `SECTION.FIELD` -> value.
        seed: seed of the initial weights, the order of the texts, dropout, the held-out texts and sampling.
        settings: the user's settings, which override `values` and `seed`.

    Raises:
        GlassError: a value is not allowed, or a setting does not apply to estimators.
    """
    user_settings = dict(settings or {})
    for name in user_settings:
        _refuse_misplaced(name)
    seeds = {f"{section}.seed": seed for section in ("data", "train", "tokenizer", "sample")}
    fixed = {"train.task": task, "data.source": GIVEN, "data.split": "random"}
    sections: dict[str, dict[str, Any]] = {}
    for name, value in {**seeds, **values, **user_settings, **fixed}.items():
        section, _, field = name.partition(".")
        sections.setdefault(section, {})[field] = value.item() if isinstance(value, np.generic) else value
    return Config.from_dict(sections, where="this estimator")


def _refuse_misplaced(name: str) -> None:
    section, dot, field = name.partition(".") if isinstance(name, str) else ("", "", "")
    if not dot:
        raise GlassError(f"settings has the key {name!r}", 'Write "SECTION.FIELD", such as "model.activation".')
    if name == "train.task" or (section == "data" and field not in OF_DATA):
        raise GlassError(
            f"the setting {name} does not apply: the class determines the task, and the texts are passed to fit()",
            f"Leave it out of settings, which may set only {', '.join(OF_DATA)} of data.",
        )


def with_steps(config: Config, settings: Mapping[str, Any] | None, epoch: float, epochs: float | None) -> Config:
    """Return the settings with the number of steps in `epochs` epochs, and evenly spaced evaluations.

    Args:
        config: the settings.
        settings: settings that the user gave, which do not change.
        epoch: number of steps per epoch.
        epochs: number of epochs; None: keep the number of steps.

    Raises:
        GlassError: `epochs` is not a number above 0 and below 10**9.
    """
    user_settings = settings or {}
    train = config.train
    changes: dict[str, Any] = {}
    steps = train.steps
    if epochs is not None and "train.steps" not in user_settings:
        if isinstance(epochs, bool) or not isinstance(epochs, Real) or not 0 < epochs < 10**9:
            raise GlassError(
                f"epochs = {epochs!r} is not allowed", "Give a number above 0 and below 10**9, or set steps."
            )
        changes["steps"] = steps = max(1, math.ceil(epochs * epoch))
    if "train.evaluate_every" not in user_settings and steps:
        changes["evaluate_every"] = math.ceil(steps / EVALUATIONS)
    if "train.save_every" not in user_settings:
        changes["save_every"] = 10**12  # a fit is never resumed
    return config.replace(train={**train.model_dump(), **changes})
