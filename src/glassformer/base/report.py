"""Reports: the results of commands, which `emit` prints as text or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class Report(Protocol):
    """Interface of a result that a command prints."""

    def facts(self) -> dict[str, Any]:
        """Return the report as a JSON object."""

    def text(self) -> str:
        """Return the report as lines of text, without a newline at the end."""


@dataclass(frozen=True)
class SimpleReport:
    """A report made of given fields and lines.

    Attributes:
        fields: fields of the JSON object.
        lines: lines of text; an iterator is exhausted by one call of `text`.
    """

    fields: Mapping[str, Any]
    lines: Iterable[str]

    def facts(self) -> dict[str, Any]:
        return dict(self.fields)

    def text(self) -> str:
        return "\n".join(self.lines)


def emit(report: Report, as_json: bool) -> None:
    """Print a report on standard output.

    Args:
        report: the result of a command.
        as_json: whether to print `facts` as a JSON object on one line, with null for NaN and infinity, instead of text.
    """
    print(_as_json(report.facts()) if as_json else report.text(), flush=True)


def _as_json(facts: dict[str, Any]) -> str:
    try:
        return json.dumps(facts, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(finite(facts), ensure_ascii=False, allow_nan=False)


def finite(value: Any) -> Any:
    """Return a copy of a JSON value with None in place of NaN and infinity."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
