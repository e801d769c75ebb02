"""One figure of a run, with its interval, and a way to compare two runs by it.

A figure is a mean over examples (accuracy, exact match, ROUGE), or one of the whole set (BLEU, chrF++, macro-F1). Means
are compared by an exact idea, that the two runs' results of an example could be exchanged; whole-set figures by
resampling the set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glassformer.evaluation.resampling import (
    PairedTest,
    Statistic,
    bootstrap_interval,
    mean_of,
    paired_bootstrap,
    paired_permutation,
    wilson,
)


@dataclass(frozen=True, eq=False)
class Measure:
    """A figure over examples.

    Attributes:
        key: its name in `--json`.
        name: its name for people.
        value: over all examples.
        interval: of 95 %; None of one example, but for shares.
        statistic: the same figure of any examples.
        values: each example's, where the figure is their mean; None of a whole-set figure.
        note: how it was computed.
    """

    key: str
    name: str
    value: float
    interval: tuple[float, float] | None
    statistic: Statistic
    values: NDArray[np.float64] | None = None
    note: str = ""

    def line(self) -> str:
        """Format the measure as one line."""
        interval = "one example: no interval"
        if self.interval is not None:
            interval = f"{self.interval[0]:>9.4f} to {self.interval[1]:.4f}"
        return f"{self.name:<16}{self.value:>9.4f}   {interval:<22} {self.note}".rstrip()


def whole_set(key: str, name: str, statistic: Statistic, n: int, note: str = "") -> Measure:
    """A figure of n examples together, with its bootstrap interval."""
    return Measure(key, name, statistic(np.arange(n)), bootstrap_interval(statistic, n), statistic, note=note)


def share(key: str, name: str, values: ArrayLike, note: str = "") -> Measure:
    """The share of examples with a yes, of answers that can only be yes (1) or no (0), with Wilson's interval."""
    numbers = np.asarray(values, dtype=np.float64)
    interval = wilson(float(numbers.sum()), len(numbers))
    return Measure(key, name, float(numbers.mean()), interval, mean_of(numbers), numbers, note)


def mean(key: str, name: str, values: ArrayLike, note: str = "") -> Measure:
    """A mean over examples of any numbers, with its bootstrap interval; `share` is for yes and no."""
    numbers = np.asarray(values, dtype=np.float64)
    statistic = mean_of(numbers)
    interval = bootstrap_interval(statistic, len(numbers))
    return Measure(key, name, float(numbers.mean()), interval, statistic, numbers, note)


def facts_of(measures: Sequence[Measure]) -> dict[str, Any]:
    """Return measures as JSON: value and interval of each, and the signature of those that have one."""
    facts: dict[str, Any] = {}
    for measure in measures:
        facts[measure.key] = measure.value
        facts[f"{measure.key}_ci95"] = None if measure.interval is None else list(measure.interval)
        if measure.note:
            facts[f"{measure.key}_signature"] = measure.note
    return facts


def compared(first: Sequence[Measure], second: Sequence[Measure], n: int) -> dict[str, PairedTest]:
    """A paired test of each figure, over the same n examples: first minus second."""
    tests: dict[str, PairedTest] = {}
    for one, other in zip(first, second, strict=True):
        if one.values is not None and other.values is not None:
            tests[one.key] = paired_permutation(one.values, other.values)
        else:
            tests[one.key] = paired_bootstrap(one.statistic, other.statistic, n)
    return tests
