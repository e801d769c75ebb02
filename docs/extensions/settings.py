"""Generate tables of all settings from the Pydantic models that validate them."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt

from extensions.markdown import cell
from glassformer.base.config import Config
from glassformer.base.settings import UNSET

SIGNS = {Gt: (">", "gt"), Ge: ("≥", "ge"), Lt: ("<", "lt"), Le: ("≤", "le")}
BEYOND = 1e6
"""Limits from this value on are not shown, because they only catch typing errors."""


def pages() -> dict[str, str]:
    """Return the text that docs/settings.md includes: a heading and a table for each section of settings."""
    parts = []
    for section, field in Config.model_fields.items():
        kind = field.annotation
        assert kind is not None
        rows = ["| setting | default | allowed | |", "|---|---|---|---|"]
        for name, setting in kind.model_fields.items():
            columns = [f"`{section}.{name}`", f"`{shown(setting.default)}`", cell(allowed(setting))]
            rows.append(f"| {' | '.join(columns)} | {cell(setting.description or '')} |")
        parts.append(f"## {section}\n\n{str(field.description).capitalize()}.\n\n" + "\n".join(rows))
    return {"parts/settings.md": "\n\n".join(parts) + "\n"}


def shown(default: Any) -> str:
    """Return a default value as text: its TOML form, `unset` for None, and `none` for an empty value."""
    if isinstance(default, bool):
        return str(default).lower()
    return UNSET if default is None else "none" if default in ((), "") else str(default)


def allowed(setting: Any) -> str:
    """Return the allowed values of a setting: its choices, or its type with its limits."""
    limits = [
        f"{sign} {getattr(rule, name):g}"
        for rule in rules(setting)
        for kind, (sign, name) in SIGNS.items()
        if isinstance(rule, kind) and getattr(rule, name) < BEYOND
    ]
    parts = said(setting.annotation).split(", or unset")
    return " ".join([parts[0], *limits]) + (", or unset" if len(parts) > 1 else "")


def rules(setting: Any) -> list[Any]:
    """Return the limits of a field, including those inside a union such as `Count | None`."""
    inner = [rule for part in get_args(setting.annotation) for rule in getattr(part, "__metadata__", ())]
    return [each for rule in [*setting.metadata, *inner] for each in getattr(rule, "metadata", [rule])]


def said(annotation: Any) -> str:
    """Return a type in words."""
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if origin in (Union, types.UnionType):
        return ", or ".join("unset" if part is type(None) else said(part) for part in get_args(annotation))
    if origin is tuple:
        return "texts"
    if hasattr(annotation, "__metadata__"):
        return said(get_args(annotation)[0])
    return {int: "whole number", float: "number", bool: "`true`, `false`", str: "text"}[annotation]
