"""Base class of all settings: immutable, validated, read from TOML; errors suggest the nearest valid name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from glassformer.base.errors import GlassError, nearest, nearest_file

S = TypeVar("S", bound="BaseSettings")


UNSET = "unset"
LONGEST = 100  # maximum number of characters of an invalid value in an error
REMEDIES = {
    "greater_than": "Give a number above {bound}.",
    "greater_than_equal": "Give {bound} or more.",
    "less_than": "Give a number below {bound}.",
    "less_than_equal": "Give {bound} or less.",
    "finite_number": "Give a finite number.",
    "int": "Give a whole number.",
    "float": "Give a number.",
    "bool": "Give true or false.",
    "string_pattern_mismatch": "Give one of these: {description}.",
    "string": "Give a string: {description}.",
    "tuple": 'Give a list of strings, such as ["one", "two"].',
    "model": "Write it as a section of settings: [{name}]",
}
"""Type of a pydantic error, or its part before the first underscore -> remedy."""


class BaseSettings(BaseModel):
    """Base class of all sections of settings: immutable; unknown keys, NaN and infinite numbers are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _convert_unset(cls, values: Any) -> Any:
        """Convert the word `unset` to None in optional fields, because TOML has no null."""
        if not isinstance(values, Mapping):
            return values
        optional = {name for name, field in cls.model_fields.items() if type(None) in get_args(field.annotation)}
        return {key: None if key in optional and value == UNSET else value for key, value in values.items()}

    def replace(self, **changes: Any) -> Self:
        """Return a copy with changed fields; an invalid value raises a `GlassError`."""
        return validated(type(self), {**self.model_dump(), **changes}, where="")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        GlassError: the file does not exist, cannot be read, or is not valid UTF-8 or TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise GlassError(f"{path} does not exist", nearest_file(path, "Give the path of a TOML file.")) from None
    except OSError as error:
        raise GlassError(f"{path} cannot be read: {error.strerror}", "Give the path of a TOML file.") from None
    except UnicodeDecodeError as error:
        raise GlassError(f"{path} is not UTF-8 at byte {error.start}", "Save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise GlassError(f"{path} is not valid TOML: {error}", "Correct that line.") from None
    except RecursionError:
        raise GlassError(f"{path} is not valid TOML: lists are nested too deeply", "Write no nested lists.") from None
    except ValueError as error:  # an integer with thousands of digits
        raise GlassError(f"{path} is not valid TOML: {error}", "Correct that number.") from None


def setting_text(value: Any) -> str:
    """Return the value of a setting for messages: `unset`, true or false as in TOML, other values as `str`.

    >>> setting_text(None), setting_text(False), setting_text("bf16")
    ('unset', 'false', 'bf16')
    """
    if value is None:
        return UNSET
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_value(text: str) -> Any:
    """Parse a value of `--set` as TOML if possible (number, boolean, list, quoted text), otherwise as plain text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def impossible(problem: str, remedy: str) -> ValueError:
    """Return an error for validators to raise for incompatible settings; `validated` converts it to a `GlassError`."""
    return ValueError(f"{' '.join(problem.split())}\n{remedy}")


def validated(kind: type[S], values: Mapping[str, Any], where: str) -> S:
    """Return settings of class `kind` with these values.

    Raises:
        GlassError: a name or a value is invalid; the error names `where`, the source of the values, and suggests names
            or allowed values.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise _as_glass_error(kind, error, where) from None


def _as_glass_error(kind: type[BaseSettings], error: ValidationError, where: str) -> GlassError:
    first_error = error.errors()[0]
    path = [str(part) for part in first_error["loc"]]
    name = ".".join(path)
    source = f" in {where}" if where else ""
    if first_error["type"] == "extra_forbidden":
        owner: Any = kind
        for part in path[:-1]:
            owner = owner.model_fields[part].annotation
        return GlassError(f"unknown setting {name!r}{source}", nearest(path[-1], owner.model_fields))
    if first_error["type"] == "value_error":
        problem, _, remedy = str(first_error["ctx"]["error"]).partition("\n")
        return GlassError(f"{problem}{source}", remedy or "See the documentation of this setting.")
    if first_error["type"] == "literal_error":
        allowed = str(first_error["ctx"]["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        return GlassError(
            f"{name} = {_shorten_repr(first_error['input'])}{source} is not allowed",
            nearest(str(first_error["input"]), allowed),
        )
    return GlassError(
        f"{name} = {_shorten_repr(first_error['input'])}{source} is not allowed", _remedy(kind, first_error)
    )


def _shorten_repr(value: Any) -> str:
    """Return the `repr` of a value, shortened to `LONGEST` characters."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _remedy(kind: type[BaseSettings], error: ErrorDetails) -> str:
    """Return a sentence on the allowed values, or pydantic's message for errors without a remedy."""
    sentence = REMEDIES.get(error["type"]) or REMEDIES.get(error["type"].partition("_")[0]) or f"{error['msg']}."
    bound = next(iter(error.get("ctx", {}).values()), "")
    if isinstance(bound, float) and bound.is_integer():
        bound = int(bound)
    field: Any = None
    for part in error["loc"]:
        owner = kind if field is None else field.annotation
        if not (isinstance(part, str) and isinstance(owner, type) and issubclass(owner, BaseSettings)):
            break
        field = owner.model_fields[part]
    return sentence.format(bound=bound, name=error["loc"][-1], description=field.description if field else "")
