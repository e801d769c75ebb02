"""Reports: one result, as facts for programs and as text for people."""

from __future__ import annotations

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
