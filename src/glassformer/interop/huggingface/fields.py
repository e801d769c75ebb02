"""Fields of `config.json`, and their conversion to our settings and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError, closest

REQUIRED = object()
"""Sentinel for the default of a field that `config.json` must have."""
RESOLVED: Mapping[str, Callable[[ModelConfig], Any]] = {
    "kv_heads": lambda config: config.G,
    "head_width": lambda config: config.K,
    "hidden": lambda config: config.F,
    "norm_eps": lambda config: config.eps,
    "encoder_layers": lambda config: config.encoder_layers or config.layers,
}
"""Setting -> function that returns its value, even if the setting is unset."""


def value_of(config: ModelConfig, setting: str) -> Any:
    """Return a setting's value, computed if it is unset."""
    return RESOLVED[setting](config) if setting in RESOLVED else getattr(config, setting)


@dataclass(frozen=True)
class Refusal:
    """A setting whose value a Hugging Face class cannot express, and the nearest value that it can express."""

    setting: str
    value: Any
    nearest: Any

    def remedy(self) -> str:
        """Return the nearest value as an argument of `glass train --set`."""
        text = str(self.nearest).lower() if isinstance(self.nearest, bool) else self.nearest
        return f"model.{self.setting}={'unset' if text is None else text}"


@dataclass
class ConfigReader:
    """Fields of a `config.json`, and the names of the fields that were read.

    Attributes:
        values: the fields.
        path: path of the file, for error messages.
        read_names: names of the fields that were read.
    """

    values: Mapping[str, Any]
    path: str
    read_names: set[str] = field(default_factory=set)

    def get(self, name: str, default: Any = REQUIRED) -> Any:
        """Return a field's value, or the default if it is missing; a missing field without a default is an error."""
        self.read_names.add(name)
        if name in self.values:
            return self.values[name]
        if default is REQUIRED:
            similar_name = closest(name, self.values)
            added = "Add it with the value used in training."
            remedy = added if similar_name is None else f"It has {similar_name}: correct the name."
            raise GlassError(f"{self.path} has no field {name}", remedy)
        return default

    def number(self, name: str, kind: type, default: Any = REQUIRED) -> Any:
        """Return a field's value: a number or a boolean, or null if the default is None; other values are an error."""
        value = self.get(name, default)
        allowed_types = (int, float) if kind is float else kind
        wrong = isinstance(value, bool) != (kind is bool)
        finite = not isinstance(value, float) or math.isfinite(value)
        if (value is None and default is None) or (isinstance(value, allowed_types) and not wrong and finite):
            return value
        description = {int: "a whole number", float: "a number", bool: "true or false"}[kind]
        raise GlassError(f"{self.path} has {name} = {value!r}", f"Set it to {description}.")

    def same(self, name: str, value: Any) -> None:
        """Check that an optional field of older files is missing, null or equal to `value`."""
        actual = self.get(name, None)
        if actual is not None and actual != value:
            raise self.refuse(name, actual, f"The other fields imply {value}.")

    def refuse(self, name: str, value: Any, allowed: str) -> GlassError:
        """Return the error for a value that our models cannot express."""
        return GlassError(f"{self.path} has {name} = {value!r}, which glassformer cannot express exactly", allowed)


class Field(Protocol):
    """A property of a Hugging Face class, read from and written to `config.json`."""

    def read(self, theirs: ConfigReader) -> dict[str, Any]:
        """Return our settings for the fields, or raise a `GlassError`."""

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Return the `config.json` fields for our settings; call it only if `refusals` is empty."""

    def refusals(self, config: ModelConfig) -> list[Refusal]:
        """Return a refusal for each of our settings that the class cannot express."""


@dataclass(frozen=True)
class NumberField:
    """A field with a number or boolean, which corresponds to one of our settings.

    Attributes:
        theirs: name of the field, or names of several fields, which must have the same value.
        ours: name of the setting.
        kind: type of the value.
        default: value of a missing field.
        otherwise: function that computes the value if the field is null or missing; None: use `default`.
        less: value of the field minus the value of the setting.
    """

    theirs: str | tuple[str, ...]
    ours: str
    kind: type = int
    default: Any = REQUIRED
    otherwise: Callable[[ConfigReader], Any] | None = None
    less: int = 0

    def read(self, theirs: ConfigReader) -> dict[str, Any]:
        """Return the setting; its fields in `config.json` must have the same value."""
        names = (self.theirs,) if isinstance(self.theirs, str) else self.theirs
        default = None if self.otherwise is not None else self.default
        values = [theirs.number(name, self.kind, default) for name in names]
        if any(value != values[0] for value in values):
            pairs = " and ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
            raise GlassError(
                f"{theirs.path} has {pairs}",
                f"Give these fields the same value: glassformer has one setting for them, model.{self.ours}.",
            )
        value = self.otherwise(theirs) if values[0] is None and self.otherwise is not None else values[0]
        return {self.ours: value - self.less if self.less else value}

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Return the setting's value under each of its names in `config.json`."""
        names = (self.theirs,) if isinstance(self.theirs, str) else self.theirs
        value = value_of(config, self.ours)
        return dict.fromkeys(names, value + self.less if self.less else value)

    def refusals(self, config: ModelConfig) -> list[Refusal]:
        return []


@dataclass(frozen=True)
class ChoiceField:
    """A field that names an option; `choices` maps Hugging Face's names to ours. Export uses the first match."""

    theirs: str
    ours: str
    choices: Mapping[str, Any]
    default: Any = REQUIRED

    def read(self, theirs: ConfigReader) -> dict[str, Any]:
        """Return the setting for the field's value, or raise a `GlassError` for an unknown value."""
        value = theirs.get(self.theirs, self.default)
        if not isinstance(value, str) or value not in self.choices:
            raise theirs.refuse(self.theirs, value, f"Supported values: {', '.join(self.choices)}.")
        return {self.ours: self.choices[value]}

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Return the field with the first of Hugging Face's names for the setting."""
        value = getattr(config, self.ours)
        return {self.theirs: next(theirs for theirs, ours in self.choices.items() if ours == value)}

    def refusals(self, config: ModelConfig) -> list[Refusal]:
        """Return a refusal if the class has no name for the setting."""
        value = getattr(config, self.ours)
        return [] if value in self.choices.values() else [Refusal(self.ours, value, next(iter(self.choices.values())))]


@dataclass(frozen=True)
class FixedSetting:
    """One of our settings that a Hugging Face class fixes; if several values are allowed, import uses the first."""

    ours: str
    values: tuple[Any, ...]

    def read(self, theirs: ConfigReader) -> dict[str, Any]:
        """Return the setting that the class implies."""
        return {self.ours: self.values[0]}

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Return no fields: the class implies the setting."""
        return {}

    def refusals(self, config: ModelConfig) -> list[Refusal]:
        """Return a refusal if the setting has another value."""
        value = value_of(config, self.ours)
        return [] if value in self.values else [Refusal(self.ours, value, self.values[0])]


@dataclass(frozen=True)
class RestrictedField:
    """A field of `config.json` for which our models support only some values.

    Attributes:
        theirs: name of the field.
        values: the allowed values; export writes the first.
        default: value of a missing field.
        written: whether export writes the field; False for fields that current versions of the class compute or lack.
    """

    theirs: str
    values: tuple[Any, ...]
    default: Any = REQUIRED
    written: bool = True

    def read(self, theirs: ConfigReader) -> dict[str, Any]:
        """Check the field's value, and return no settings."""
        value = theirs.get(self.theirs, self.default)
        if value not in self.values:
            raise theirs.refuse(self.theirs, value, f"Supported values: {', '.join(map(str, self.values))}.")
        return {}

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Return the field with its first allowed value; no field if `written` is False."""
        return {self.theirs: self.values[0]} if self.written else {}

    def refusals(self, config: ModelConfig) -> list[Refusal]:
        return []
