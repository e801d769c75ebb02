"""Evidence from a healthy and a faulty model: curves, attention maps, samples and numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Point = tuple[float, float]
HEALTHY = "healthy"
FAULTY = "faulty"


@dataclass(frozen=True)
class Chart:
    """Curves that share their axes.

    Attributes:
        title: title of the chart.
        x, y: labels of the axes.
        curves: name -> points, in order of x.
        level: name and height of a horizontal line, such as the true entropy of the text, or None.
    """

    title: str
    x: str
    y: str
    curves: Mapping[str, Sequence[Point]]
    level: tuple[str, float] | None = None


@dataclass(frozen=True)
class Map:
    """Attention weights of one head: row t has the weights with which token t attends to each token.

    Attributes:
        title: title of the map.
        rows, columns: texts of the query tokens and of the key tokens.
        weights: one list per row.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    weights: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Number:
    """One measurement, with the values of the healthy and the faulty model.

    Attributes:
        name: name used in explanations.
        what: description of the measurement.
        healthy, faulty: values of the two models.
    """

    name: str
    what: str
    healthy: float
    faulty: float


@dataclass(frozen=True)
class Evidence:
    """Evidence of a case, as shown to the learner.

    Attributes:
        charts, maps, numbers: in the order in which they are shown.
        samples: heading -> lines of sampled text.
    """

    charts: Sequence[Chart] = ()
    maps: Sequence[Map] = ()
    samples: Mapping[str, Sequence[str]] = field(default_factory=dict)
    numbers: Sequence[Number] = ()

    def number(self, name: str) -> Number:
        """Return the measurement with this name."""
        return next(each for each in self.numbers if each.name == name)

    def number_texts(self) -> dict[str, str]:
        """Return every number as text under its name in explanations, such as `loss_healthy` and `loss_faulty`."""
        texts: dict[str, str] = {}
        for each in self.numbers:
            texts |= {
                f"{each.name}_healthy": format_number(each.healthy),
                f"{each.name}_faulty": format_number(each.faulty),
            }
        return texts

    def facts(self) -> dict[str, Any]:
        """Return the evidence as a dictionary for JSON."""
        return asdict(self)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Evidence:
        """Build the evidence from the dictionary that `facts` returned.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: the dictionary has the wrong structure or an invalid
                number.
        """
        return cls(
            charts=[_chart(each) for each in facts["charts"]],
            maps=[_map(each) for each in facts["maps"]],
            samples={str(name): [str(line) for line in lines] for name, lines in facts["samples"].items()},
            numbers=[
                Number(str(each["name"]), str(each["what"]), _number(each["healthy"]), _number(each["faulty"]))
                for each in facts["numbers"]
            ],
        )


def format_number(value: float) -> str:
    """Return a number as text: four significant digits (two below 0.0001), or an integer from 1000 on.

    >>> format_number(3.14159), format_number(1234567.0), format_number(0.0), format_number(0.000123)
    ('3.142', '1,234,567', '0', '0.000123')
    """
    if not math.isfinite(value):
        return str(value)
    if value == round(value):
        return f"{value:,.0f}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 1e-4 else f"{value:.1e}"


def averaged(points: Sequence[Point], width: int = 10) -> list[Point]:
    """Return the means of groups of `width` consecutive points, to smooth the noise of single batches."""
    groups = [points[start : start + width] for start in range(0, len(points), width)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups if group]


def mean(values: Iterable[float]) -> float:
    """Return the mean; 0 for no values."""
    items = list(values)
    return sum(items) / max(1, len(items))


def _chart(facts: Mapping[str, Any]) -> Chart:
    curves = {str(name): [(_number(x), _number(y)) for x, y in points] for name, points in facts["curves"].items()}
    level = None if facts["level"] is None else (str(facts["level"][0]), _number(facts["level"][1]))
    return Chart(str(facts["title"]), str(facts["x"]), str(facts["y"]), curves, level)


def _map(facts: Mapping[str, Any]) -> Map:
    rows = [str(token) for token in facts["rows"]]
    columns = [str(token) for token in facts["columns"]]
    weights = [[_number(weight) for weight in row] for row in facts["weights"]]
    if [len(row) for row in weights] != [len(columns)] * len(rows):
        raise ValueError("weights do not form a table of rows by columns")
    return Map(str(facts["title"]), rows, columns, weights)


def _number(value: Any) -> float:
    if not abs(value) < 1e100:  # also rejects NaN and infinity, which charts cannot show
        raise ValueError(f"{value} is not a valid measurement")
    return float(value)
