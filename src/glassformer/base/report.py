"""Reports: one result, as facts for programs and as text for people; `emit` prints either."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class Report(Protocol):
    """A result that a command prints."""

    def facts(self) -> dict[str, Any]:
        """Return the fields of the JSON object."""

    def text(self) -> str:
        """Return the lines for people, without a line end after the last."""


@dataclass(frozen=True)
class SimpleReport:
    """A report from fields and lines that are at hand.

    Attributes:
        fields: of the JSON object.
        lines: for people; an iterator is used up by one call of `text`.
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
        as_json: print its facts, as one JSON object in a line; NaN and infinity, which JSON lacks, become null.
    """
    print(_as_json(report.facts()) if as_json else report.text(), flush=True)


def _as_json(facts: dict[str, Any]) -> str:
    try:
        return json.dumps(facts, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(finite(facts), ensure_ascii=False, allow_nan=False)


def finite(value: Any) -> Any:
    """Return a value for JSON, with None in place of every number that is not finite."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
