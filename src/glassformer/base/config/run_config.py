"""`Config`, all settings of a run: conversion from and to TOML, single changes, and task defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import tomli_w
from pydantic import Field, model_validator

from glassformer.base.config.freezing import frozen_names
from glassformer.base.config.model import ModelConfig
from glassformer.base.config.tasks import ONLY_FOR, PAIRS, TASK_FACTS
from glassformer.base.config.text import DataConfig, TokenizerConfig
from glassformer.base.config.training import SampleConfig, TrainConfig
from glassformer.base.errors import GlassError, nearest
from glassformer.base.settings import UNSET, BaseSettings, impossible, parse_value, read_toml, setting_text, validated


class Config(BaseSettings):
    """Settings of a run, in sections."""

    model: ModelConfig = Field(default_factory=ModelConfig, description="the architecture of the transformer")
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig, description="the tokenizer")
    data: DataConfig = Field(default_factory=DataConfig, description="the text, its splits and its division into rows")
    train: TrainConfig = Field(default_factory=TrainConfig, description="training")
    sample: SampleConfig = Field(default_factory=SampleConfig, description="text generation")

    @model_validator(mode="before")
    @classmethod
    def _fill_task_defaults(cls, values: Any) -> Any:
        """Fill in the task's defaults for settings that are not given."""
        if not isinstance(values, Mapping):
            return values
        train = values.get("train", {})
        task = train.get("task", "lm") if isinstance(train, Mapping) else getattr(train, "task", "lm")
        task_defaults = TASK_FACTS[task].settings if isinstance(task, str) and task in TASK_FACTS else {}
        filled = {
            name: {**section, **values.get(name, {})}
            for name, section in task_defaults.items()
            if isinstance(values.get(name, {}), Mapping)
        }
        return {**values, **filled}

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        task = self.train.task
        model = self.model
        family = TASK_FACTS[task].family
        if model.family != family:
            raise impossible(
                f"model.family = {model.family} cannot be trained on train.task = {task}",
                f"Set model.family = {family}, or leave it out.",
            )
        if task in PAIRS and model.shared_embedding and not self.tokenizer.joint:
            raise impossible(
                "model.shared_embedding = true, but with tokenizer.joint = false there are two vocabularies",
                "Set model.shared_embedding = false.",
            )
        frozen_names(self.train.freeze, model)
        if task == "masked" and self.data.windows == "prefixes":
            raise impossible(
                "data.windows = prefixes has no meaning for train.task = masked",
                "Set data.windows = documents, or train.task = lm.",
            )
        if task == "masked" and self.sample.prompt and "[MASK]" not in self.sample.prompt:
            raise impossible(
                f"sample.prompt = {self.sample.prompt[:40]!r} has no [MASK] to fill in",
                "Write [MASK] in place of a missing token.",
            )
        for (section, field), tasks in ONLY_FOR.items():
            value = getattr(getattr(self, section), field)
            if task not in tasks and value != type(getattr(self, section)).model_fields[field].default:
                raise impossible(
                    f"{section}.{field} = {setting_text(value)} has no meaning for train.task = {task}",
                    f"Leave {section}.{field} out: it applies only to {', '.join(tasks)}.",
                )
        return self

    def __repr__(self) -> str:
        """Return all settings as TOML."""
        return self.to_toml()

    __str__ = __repr__

    @property
    def two_vocabularies(self) -> bool:
        """Whether source and target have separate vocabularies."""
        return self.train.task in PAIRS and not self.tokenizer.joint

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "the settings") -> Config:
        """Validate nested `values`; an unknown key or an invalid value raises a `GlassError` that names `where`."""
        return validated(cls, values, where)

    @classmethod
    def read(cls, path: Path) -> Config:
        """Read the settings of a run from a TOML file; invalid settings raise a `GlassError` that names the file."""
        return cls.from_dict(read_toml(path), where=str(path))

    def to_toml(self) -> str:
        """Return all settings as TOML, from which `read` makes an equal `Config`."""
        sections = self.model_dump(mode="json")
        return tomli_w.dumps(
            {name: {k: UNSET if v is None else v for k, v in section.items()} for name, section in sections.items()}
        )

    def as_texts(self) -> dict[str, str]:
        """Return the values of all settings as text, by `SECTION.FIELD`."""
        sections = self.model_dump(mode="json")
        return {f"{section}.{name}": setting_text(v) for section, each in sections.items() for name, v in each.items()}

    def with_changes(self, changes: Mapping[str, str]) -> Config:
        """Return a copy with changes in the form of `--set`: `SECTION.FIELD` -> text (`unset`: no value)."""
        values: dict[str, Any] = self.model_dump()
        for section, fields in parse_changes(changes).items():
            overlay(values, section, fields)
        return validated(Config, values, "")


def settings_of(
    layers: Iterable[Mapping[str, Mapping[str, Any]]], changes: Mapping[str, str], where: str = ""
) -> Config:
    """Return the default settings, updated by each of `layers` in order, then by single changes.

    Args:
        layers: tables of settings by section.
        changes: `SECTION.FIELD` -> value as text.
        where: source of the layers, for error messages.
    """
    merged: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for section, values in layer.items():
            if not isinstance(values, Mapping) and section in Config.model_fields:
                raise GlassError(
                    f"{section!r} in {where or 'the settings'} must be a section, got {type(values).__name__}",
                    f"Write it as a section of settings: [{section}]",
                )
            if not isinstance(values, Mapping):
                raise GlassError(
                    f"{section!r} in {where or 'the settings'} is outside all sections",
                    f"Move it into one of the sections [{'], ['.join(Config.model_fields)}].",
                )
            overlay(merged, section, values)
    for section, values in parse_changes(changes).items():
        overlay(merged, section, values)
    return Config.from_dict(merged, where)


def overlay(sections: dict[str, dict[str, Any]], section: str, values: Mapping[str, Any]) -> None:
    """Update a section in place.

    If only one of `train.steps` and `train.minutes` is given, unset the other; `train.batch` unsets
    `train.batch_tokens`, with which it would have no effect.
    """
    current = sections.setdefault(section, {})
    if section == "train":
        if "batch" in values and "batch_tokens" not in values:
            current["batch_tokens"] = UNSET
        for limit, other in (("minutes", "steps"), ("steps", "minutes")):
            if values.get(limit, UNSET) not in (UNSET, None) and other not in values:
                current[other] = UNSET
    current.update(values)


def parse_changes(changes: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Convert a mapping from `SECTION.FIELD` to text into one table per section.

    Raises:
        GlassError: a setting is unknown or has no section (the error suggests names), or its text is not valid Unicode.
    """
    defaults = Config().model_dump()
    tables: dict[str, dict[str, Any]] = {}
    for key, text in changes.items():
        section, dot, field = key.partition(".")
        if not dot:
            full_names = [f"{name}.{key}" for name in defaults if key in defaults[name]]
            remedy = f"Write {' or '.join(full_names)}." if full_names else "Write SECTION.FIELD, such as model.layers."
            raise GlassError(f"the setting {key!r} names no section", remedy)
        if section not in defaults:
            raise GlassError(f"the setting {key!r} names an unknown section {section!r}", nearest(section, defaults))
        if field not in defaults[section]:
            names = [f"{section}.{name}" for name in defaults[section]]
            raise GlassError(f"there is no setting {key!r}", nearest(key, names))
        tables.setdefault(section, {})[field] = _parse_setting(key, text, Config.model_fields[section].annotation)
    return tables


def _parse_setting(key: str, text: str, section: Any) -> Any:
    """Parse a value from the command line; for a text setting, even a number stays text (`data.column = 2`)."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise GlassError(
            f"{key} = {text!r} is not valid Unicode", "Remove the invalid character, or rename the file that has it."
        )
    value = parse_value(text)
    annotation = section.model_fields[key.partition(".")[2]].annotation
    is_text = annotation in (str, str | None)
    return text if is_text and not isinstance(value, str) else value
