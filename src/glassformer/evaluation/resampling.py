"""Confidence intervals by resampling the examples, and paired tests of two runs on the same examples.

A *statistic* is a function that takes the indices (n,) of examples, possibly with repetitions, and returns a metric on
these examples. It also covers metrics of a whole test set, such as BLEU and macro-F1. The bootstrap calls a statistic
many times with the indices of n out of n examples, drawn with replacement.

Each metric has exactly one test, so that there is only one p-value:

- means over examples (accuracy, exact match, ROUGE, losses): `paired_permutation`;
- whole-set metrics (BLEU, chrF++, macro-F1, calibration error): `paired_bootstrap`.

Random numbers come from a separate generator (Philox); the global generators of NumPy and torch are not used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glassformer.base.errors import GlassError
from glassformer.base.wording import counted

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]
Statistic = Callable[[Indices], float]
"""Function that takes the indices (n,) of examples and returns a metric on these examples."""

REPEATS = 1000
SHUFFLES = 10_000
LEVEL = 0.95
AT_ONCE = 1 << 21  # random numbers generated at a time: up to 16 MB


@dataclass(frozen=True)
class PairedTest:
    """The result of a paired test of two runs on the same examples.

    Attributes:
        difference: metric of the first run minus metric of the second run, on all examples.
        interval: confidence interval of the difference, by the paired bootstrap; None if there is only one example.
        p: two-sided p-value: the probability of an absolute difference at least this large if the runs were equally
            good.
        method: "paired permutation" or "paired bootstrap".
        repeats: number of random samples used for p, which is never below 1 / (repeats + 1).
        level: confidence level of the interval.
    """

    difference: float
    interval: tuple[float, float] | None
    p: float
    method: str
    repeats: int
    level: float = LEVEL

    def __str__(self) -> str:
        interval_text = "one example: no interval"
        if self.interval is not None:
            low, high = self.interval
            interval_text = f"{100 * self.level:g} % {low:+.4f} to {high:+.4f}"
        return f"{self.difference:+.4f} ({interval_text}), p = {self.p:.4f} ({self.method})"


def mean_of(values: ArrayLike) -> Statistic:
    """Return the statistic that computes the mean of these values over the selected examples.

    >>> float(mean_of([0.0, 1.0, 5.0])(np.array([1, 1, 2])))
    2.3333333333333335
    """
    numbers = _float_array(values)
    return lambda examples: float(numbers[examples].mean())


def bootstrap_interval(
    statistic: Statistic, n: int, repeats: int = REPEATS, seed: int = 0, level: float = LEVEL
) -> tuple[float, float] | None:
    """Compute a percentile bootstrap interval (Efron 1979; Koehn 2004 for translation scores).

    The interval shows how much the metric varies with the choice of test examples, not with the training seed. It is
    too narrow for very few examples, and has zero width if all examples are correct; use `wilson` for proportions.

    Args:
        statistic: metric as a function of example indices.
        n: number of examples.
        repeats: number of resamples.
        seed: random seed; the same seed gives the same interval.
        level: confidence level.

    Returns:
        Lower and upper bound; None if there is only one example, which cannot show any variation.

    Raises:
        GlassError: there are no examples, or `repeats` or `level` is out of range.
    """
    _check_arguments(n, repeats, level)
    if n == 1:
        return None
    return _percentiles(np.array([statistic(indices) for indices in _resamples(n, repeats, seed)]), level)


def paired_bootstrap(
    first: Statistic,
    second: Statistic,
    n: int,
    repeats: int = REPEATS,
    seed: int = 0,
    level: float = LEVEL,
) -> PairedTest:
    """Test whether two runs differ in a metric, on the same resamples of the examples (Koehn 2004, section 3).

    The p-value is (k + 1) / (repeats + 1), where k is the number of resampled differences whose distance from the
    measured difference is at least the distance of the measured difference from 0 (Noreen 1989; Efron and Tibshirani
    1993, chapter 16). The test is two-sided. sacrebleu takes absolute values before centring, so for clear differences
    it reports about half of this p-value.

    Args:
        first, second: metric of each run as a function of example indices.
        n: number of examples.
        repeats, seed, level: as in `bootstrap_interval`.

    Raises:
        GlassError: as in `bootstrap_interval`.
    """
    _check_arguments(n, repeats, level)
    all_indices = np.arange(n)
    difference = first(all_indices) - second(all_indices)
    resampled = np.array([first(examples) - second(examples) for examples in _resamples(n, repeats, seed)])
    distances = np.abs(resampled - difference)
    p = _p_value(int(np.count_nonzero(_at_least(distances, abs(difference)))), repeats)
    interval = None if n == 1 else _percentiles(resampled, level)
    return PairedTest(difference, interval, p, "paired bootstrap", repeats, level)


def paired_permutation(
    first: ArrayLike,
    second: ArrayLike,
    repeats: int = SHUFFLES,
    seed: int = 0,
    level: float = LEVEL,
) -> PairedTest:
    """Test whether two runs differ in the mean of a per-example score (approximate randomization).

    If the runs were equally good, the two scores of an example could be exchanged. The test therefore swaps the two
    scores of random examples; p is (k + 1) / (repeats + 1), where k is the number of repeats with an absolute
    difference at least as large as the measured one (Noreen 1989; Riezler and Maxwell 2005, who find this test more
    conservative than the bootstrap).

    Args:
        first, second: (n,) score of each example in each run.
        repeats: number of random assignments; the interval uses at most 1,000 resamples.
        seed, level: as in `bootstrap_interval`.

    Raises:
        GlassError: there are no examples, the numbers of scores differ, or `repeats` or `level` is out of range.
    """
    first_scores = _float_array(first)
    second_scores = _float_array(second)
    if len(first_scores) != len(second_scores):
        raise GlassError(
            "a paired test needs the same examples in both runs, "
            f"but there are {len(first_scores):,} and {len(second_scores):,}",
            "Evaluate both runs on the same file.",
        )
    _check_arguments(len(first_scores), repeats, level)
    differences = first_scores - second_scores
    total = differences.sum()
    extreme_count = 0
    generator = _generator(seed)
    for count in _batch_sizes(repeats, len(first_scores)):
        swapped = generator.integers(2, size=(count, len(first_scores)), dtype=np.int8) == 1
        # Swapping the two scores of an example changes the sign of its difference.
        shuffled = total - 2 * (swapped @ differences)
        extreme_count += int(np.count_nonzero(_at_least(np.abs(shuffled), abs(total))))
    interval = bootstrap_interval(mean_of(differences), len(first_scores), min(repeats, REPEATS), seed, level)
    p = _p_value(extreme_count, repeats)
    return PairedTest(float(differences.mean()), interval, p, "paired permutation", repeats, level)


def wilson(right: float, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the score interval of a proportion (Wilson 1927), also valid for few examples or a proportion of 0 or 1.

    Args:
        right: number of correct examples; a tie may count as 0.5.
        n: number of examples; if 0, the interval is 0 to 1.
        level: confidence level.

    Raises:
        GlassError: `right` is not between 0 and `n`, or `level` is out of range.

    >>> tuple(round(end, 3) for end in wilson(8, 10))
    (0.49, 0.943)
    """
    if not 0 <= right <= n:
        raise GlassError(
            f"right = {right:g} of {counted(n, 'examples')} is out of range", f"Give a number from 0 to {n:,}."
        )
    if n == 0:
        return 0.0, 1.0
    _check_arguments(n, 1, level)
    z = NormalDist().inv_cdf((1 + level) / 2)
    proportion = right / n
    weight = z * z / n
    centre = (proportion + weight / 2) / (1 + weight)
    half_width = math.sqrt(weight * (proportion * (1 - proportion) + weight / 4)) / (1 + weight)
    # Rounding must not put the proportion itself outside of the interval.
    return min(proportion, max(0.0, centre - half_width)), max(proportion, min(1.0, centre + half_width))


def _check_arguments(n: int, repeats: int, level: float) -> None:
    if n < 1:
        raise GlassError("there are no examples to resample", "Evaluate on a file that is not empty.")
    if repeats < 1:
        raise GlassError(f"repeats = {repeats} is less than 1", "Give at least 1; 1,000 is usual.")
    if not 0 < level < 1:
        raise GlassError(
            f"a confidence level of {level:g} is out of range", "Give a number between 0 and 1, such as 0.95."
        )


def _float_array(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64).reshape(-1)


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def _resamples(n: int, repeats: int, seed: int) -> Iterator[Indices]:
    """Yield `repeats` resamples: the indices of n out of n examples, drawn with replacement."""
    generator = _generator(seed)
    for count in _batch_sizes(repeats, n):
        yield from generator.integers(n, size=(count, n))


def _batch_sizes(repeats: int, n: int) -> Iterator[int]:
    """Yield the number of repeats in each batch, so that memory does not grow with the number of repeats."""
    batch_size = max(1, AT_ONCE // n)
    for start in range(0, repeats, batch_size):
        yield min(batch_size, repeats - start)


def _percentiles(values: Floats, level: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return low, high


def _at_least(values: Floats, limit: float) -> NDArray[np.bool_]:
    """Return whether each value is at least the limit, up to rounding errors, which depend on the order of sums."""
    return values >= limit * (1 - 1e-9) - 1e-12


def _p_value(extreme: int, repeats: int) -> float:
    """Return the p-value.

    The measured value counts as one of the samples, so that p < 0.05 occurs in at most 5 % of cases if the runs are
    equally good.
    """
    return (extreme + 1) / (repeats + 1)
