"""Command-line flags for the settings, built from the fields of the settings models."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any, get_args

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.base.settings import BaseSettings, parse_value, setting_text

SHORT = {
    "task": "train.task",
    "steps": "train.steps",
    "minutes": "train.minutes",
    "until-loss": "train.until_loss",
    "seed": "train.seed",
    "device": "train.device",
    "precision": "train.precision",
    "shard": "train.shard",
    "mix": "data.mix",
}
"""Name of each short flag of `glass train` -> the setting that the flag sets."""


def add_setting_flags(parser: argparse.ArgumentParser, sections: Iterable[str]) -> None:
    """Add `--SECTION.FIELD VALUE` for every field of the sections, and `--set SECTION.FIELD=VALUE`."""
    sections = list(sections)
    help_text = f"change a setting of {', '.join(sections)}; may be repeated"
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE", help=help_text)
    for section in sections:
        field = Config.model_fields[section]
        group = parser.add_argument_group(f"{section}: {field.description}")
        add_section_flags(group, section, _section(section), prefix=f"{section}.")


def add_section_flags(
    group: Any, section: str, kind: type[BaseSettings], prefix: str = "", leave_out: Collection[str] = ()
) -> None:
    """Add a flag for each field of one section of the settings.

    Args:
        group: parser or argument group that receives the flags.
        section: name of the section.
        kind: settings class of the section.
        prefix: prefix of the flags; without one, the flag is `--FIELD` and the default is the run's own setting.
        leave_out: fields without a flag.
    """
    for name, field in kind.model_fields.items():
        if name in leave_out:
            continue
        choices = [choice for choice in get_args(field.annotation) if isinstance(choice, str)]
        allowed = f": {', '.join(choices)}" if choices else ""
        default = f" (default: {setting_text(field.default)})" if prefix else ""
        flag = f"--{prefix}{name if prefix else name.replace('_', '-')}"
        text = f"{field.description}{allowed}{default}".replace("%", "%%")
        group.add_argument(flag, dest=f"{section}.{name}", metavar="VALUE", help=text)


def add_short_flags(parser: argparse.ArgumentParser) -> None:
    """Add the short flags of `SHORT`."""
    for name, key in SHORT.items():
        section, _, field = key.partition(".")
        setting = _section(section).model_fields[field]
        text = f"{setting.description} (sets {key})"
        if setting.annotation is bool:
            parser.add_argument(f"--{name}", dest=f"short.{name}", action="store_const", const="true", help=text)
        else:
            parser.add_argument(f"--{name}", dest=f"short.{name}", metavar="VALUE", help=text)


def changes_from(arguments: argparse.Namespace, others: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings given by flags: name of the setting (`SECTION.FIELD`) -> value as text.

    Short flags override `--SECTION.FIELD` flags, and these override `--set`. A note on standard error names a setting
    that is given with two values.

    Args:
        arguments: the parsed arguments.
        others: settings given by other arguments, such as DATA, which override the flags.

    Raises:
        GlassError: a `--set` has no `=`.
    """
    given: list[tuple[str, str]] = []
    for item in getattr(arguments, "set", []):
        key, equals, value = item.partition("=")
        if not equals:
            raise GlassError(f"--set {item} has no =", "Use --set SECTION.FIELD=VALUE, such as --set model.layers=4")
        given.append((key.strip(), value.strip()))
    flags = {key: value for key, value in vars(arguments).items() if "." in key and value is not None}
    given += [(key, value) for key, value in flags.items() if not key.startswith("short.")]
    given += [(SHORT[key[6:]], value) for key, value in flags.items() if key.startswith("short.")]
    given += (others or {}).items()
    changes: dict[str, str] = {}
    for key, text in given:
        before = setting_text(parse_value(changes.get(key, text)))
        value = setting_text(parse_value(text))
        if before != value:
            note = f"{key} was given as {before:.100} and as {value:.100}: {value:.100} is used"
            print(note.replace("\n", " "), file=sys.stderr)
        changes[key] = text
    return changes


def _section(name: str) -> type[BaseSettings]:
    kind = Config.model_fields[name].annotation
    assert isinstance(kind, type)
    assert issubclass(kind, BaseSettings)
    return kind
