"""Metrics with confidence intervals, and paired tests of two runs.

A metric is a mean over examples (accuracy, exact match, ROUGE) or is computed on the whole set (BLEU, chrF++,
macro-F1). Means are compared by a permutation test, whole-set metrics by the paired bootstrap.
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
class Metric:
    """A metric over examples, with its confidence interval.

    Attributes:
        key: name in `--json`.
        name: name in text reports.
        value: metric on all examples.
        interval: 95 % confidence interval; None if there is only one example and the metric is not a proportion.
        statistic: function that computes the metric on a selection of the examples.
        values: value of each example if the metric is the mean over examples; None for a whole-set metric.
        note: how the metric was computed.
    """

    key: str
    name: str
    value: float
    interval: tuple[float, float] | None
    statistic: Statistic
    values: NDArray[np.float64] | None = None
    note: str = ""

    def line(self) -> str:
        """Format the metric as one line."""
        interval = "one example: no interval"
        if self.interval is not None:
            interval = f"{self.interval[0]:>9.4f} to {self.interval[1]:.4f}"
        return f"{self.name:<16}{self.value:>9.4f}   {interval:<22} {self.note}".rstrip()


def whole_set(key: str, name: str, statistic: Statistic, n: int, note: str = "") -> Metric:
    """Return a metric computed on all n examples together, with its bootstrap interval."""
    return Metric(key, name, statistic(np.arange(n)), bootstrap_interval(statistic, n), statistic, note=note)


def proportion(key: str, name: str, values: ArrayLike, note: str = "") -> Metric:
    """Return the proportion of ones among values that are 0 or 1, with Wilson's interval."""
    numbers = np.asarray(values, dtype=np.float64)
    interval = wilson(float(numbers.sum()), len(numbers))
    return Metric(key, name, float(numbers.mean()), interval, mean_of(numbers), numbers, note)


def mean(key: str, name: str, values: ArrayLike, note: str = "") -> Metric:
    """Return the mean of numbers with its bootstrap interval; use `proportion` for values that are 0 or 1."""
    numbers = np.asarray(values, dtype=np.float64)
    statistic = mean_of(numbers)
    interval = bootstrap_interval(statistic, len(numbers))
    return Metric(key, name, float(numbers.mean()), interval, statistic, numbers, note)


def loss_words(loss: float, ci95: float | None, unit: str) -> str:
    """Return a loss with the half-width of its confidence interval in words.

    >>> loss_words(1.5, 0.1, "nats per token"), loss_words(1.5, None, "nats per token")
    ('loss 1.5000 ± 0.1000 nats per token (95 %)', 'loss 1.5000 nats per token (one row: no interval)')
    """
    if ci95 is None:
        return f"loss {loss:.4f} {unit} (one row: no interval)"
    return f"loss {loss:.4f} ± {ci95:.4f} {unit} (95 %)"


def facts_of(metrics: Sequence[Metric]) -> dict[str, Any]:
    """Return metrics as JSON values: the value, the interval and, if there is one, the note of each."""
    facts: dict[str, Any] = {}
    for metric in metrics:
        facts[metric.key] = metric.value
        facts[f"{metric.key}_ci95"] = None if metric.interval is None else list(metric.interval)
        if metric.note:
            facts[f"{metric.key}_signature"] = metric.note
    return facts


def paired_tests(first: Sequence[Metric], second: Sequence[Metric], n: int) -> dict[str, PairedTest]:
    """Test the difference of two runs in each metric on the same n examples; differences are first minus second."""
    tests: dict[str, PairedTest] = {}
    for one, other in zip(first, second, strict=True):
        if one.values is not None and other.values is not None:
            tests[one.key] = paired_permutation(one.values, other.values)
        else:
            tests[one.key] = paired_bootstrap(one.statistic, other.statistic, n)
    return tests
