"""`config.json` and our settings: which field is which setting. Each kind of field is read in both directions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError, closest

REQUIRED = object()
"""Stands for a default that does not exist: `config.json` must say it."""
RESOLVED: Mapping[str, Callable[[ModelConfig], Any]] = {
    "kv_heads": lambda config: config.G,
    "head_width": lambda config: config.K,
    "hidden": lambda config: config.F,
    "norm_eps": lambda config: config.eps,
    "encoder_layers": lambda config: config.encoder_layers or config.layers,
}
"""Settings that mean something also where they are unset."""


def value_of(config: ModelConfig, setting: str) -> Any:
    """A setting's value, resolved."""
    return RESOLVED[setting](config) if setting in RESOLVED else getattr(config, setting)


@dataclass(frozen=True)
class Refusal:
    """A setting that a class cannot express, and the nearest value that it can."""

    setting: str
    value: Any
    nearest: Any

    def remedy(self) -> str:
        """As it is given to `glass train`."""
        shown = str(self.nearest).lower() if isinstance(self.nearest, bool) else self.nearest
        return f"model.{self.setting}={'unset' if shown is None else shown}"


@dataclass
class Theirs:
    """A `config.json`, and which of its fields were asked for."""

    values: Mapping[str, Any]
    place: str
    asked: set[str] = field(default_factory=set)

    def get(self, name: str, default: Any = REQUIRED) -> Any:
        """A field's value; the class's own default where it is missing."""
        self.asked.add(name)
        if name in self.values:
            return self.values[name]
        if default is REQUIRED:
            close = closest(name, self.values)
            remedy = "Add it, as the model was made with it." if close is None else f"It says {close}: correct it."
            raise GlassError(f"{self.place} does not say {name}", remedy)
        return default

    def number(self, name: str, kind: type, default: Any = REQUIRED) -> Any:
        """A field that is a number, a truth or, where the default is None, nothing."""
        value = self.get(name, default)
        wanted = (int, float) if kind is float else kind
        truth = isinstance(value, bool) != (kind is bool)
        finite = not isinstance(value, float) or math.isfinite(value)
        if (value is None and default is None) or (isinstance(value, wanted) and not truth and finite):
            return value
        words = {int: "a whole number", float: "a number", bool: "true or false"}[kind]
        raise GlassError(f"{self.place} has {name} = {value!r}", f"It must be {words}.")

    def same(self, name: str, value: Any) -> None:
        """Refuse a field that older files say besides, and that must then have this value."""
        found = self.get(name, None)
        if found is not None and found != value:
            raise self.refuse(name, found, f"By the other fields it would be {value}.")

    def refuse(self, name: str, value: Any, allowed: str) -> GlassError:
        """The error for a value that our models cannot express."""
        return GlassError(f"{self.place} has {name} = {value!r}, which glassformer cannot express exactly", allowed)


class Field(Protocol):
    """One fact about a class: read from their `config.json`, and written to it."""

    def read(self, theirs: Theirs) -> dict[str, Any]:
        """The settings that their fields stand for, or a `GlassError`."""

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Return the `config.json` fields for our settings; call it only if `refusals` is empty."""

    def refusals(self, config: ModelConfig) -> list[Refusal]:
        """Return a refusal for each of our settings that the class cannot express."""


@dataclass(frozen=True)
class NumberField:
    """A number or a truth that both sides have. Several names of theirs must have the same value."""

    theirs: str | tuple[str, ...]
    ours: str
    kind: type = int
    default: Any = REQUIRED
    otherwise: Callable[[Theirs], Any] | None = None  # what null, or leaving it out, stands for
    less: int = 0  # theirs is larger by so many

    def read(self, theirs: Theirs) -> dict[str, Any]:
        """Return the setting; its names in `config.json` must have the same value."""
        names = (self.theirs,) if isinstance(self.theirs, str) else self.theirs
        default = None if self.otherwise is not None else self.default
        values = [theirs.number(name, self.kind, default) for name in names]
        if any(value != values[0] for value in values):
            pairs = " and ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
            raise GlassError(f"{theirs.place} has {pairs}", f"glassformer has one model.{self.ours} for both.")
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
class WordField:
    """A word of theirs for a word of ours. Of several words for one of ours the first is written."""

    theirs: str
    ours: str
    words: Mapping[str, Any]
    default: Any = REQUIRED

    def read(self, theirs: Theirs) -> dict[str, Any]:
        """Return the setting for their word, or raise a `GlassError` for an unknown word."""
        value = theirs.get(self.theirs, self.default)
        if not isinstance(value, str) or value not in self.words:
            raise theirs.refuse(self.theirs, value, f"It can express {', '.join(self.words)}.")
        return {self.ours: self.words[value]}

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Return the first of their words for the setting."""
        value = getattr(config, self.ours)
        return {self.theirs: next(theirs for theirs, ours in self.words.items() if ours == value)}

    def refusals(self, config: ModelConfig) -> list[Refusal]:
        """A word that they do not have."""
        value = getattr(config, self.ours)
        return [] if value in self.words.values() else [Refusal(self.ours, value, next(iter(self.words.values())))]


@dataclass(frozen=True)
class Always:
    """A setting of ours that is part of what their class is. Of several values the first one is read."""

    ours: str
    values: tuple[Any, ...]

    def read(self, theirs: Theirs) -> dict[str, Any]:
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
class Must:
    """A field of theirs whose other values our models cannot express. The first one is written."""

    theirs: str
    values: tuple[Any, ...]
    default: Any = REQUIRED
    said: bool = True  # False: it is not written, as today's versions have it no more

    def read(self, theirs: Theirs) -> dict[str, Any]:
        """Check the field's value, and return no settings."""
        value = theirs.get(self.theirs, self.default)
        if value not in self.values:
            raise theirs.refuse(self.theirs, value, f"It can express {', '.join(map(str, self.values))}.")
        return {}

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Return the field with its first allowed value; no field if `said` is False."""
        return {self.theirs: self.values[0]} if self.said else {}

    def refusals(self, config: ModelConfig) -> list[Refusal]:
        return []
