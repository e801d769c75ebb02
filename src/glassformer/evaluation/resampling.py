"""Confidence in a figure: intervals by resampling the examples, and paired tests of two runs on the same examples.

A figure of a whole test set (BLEU, macro-F1) is a function of the examples that it was computed from. So everything
here works with a *statistic*: a function that is given the numbers of the examples to use, (n,), repetitions included,
and returns the figure. The bootstrap calls it with n examples drawn from n with replacement, many times over.

Which test a metric gets, so that there is one p-value for each:

- means over examples (accuracy, exact match, ROUGE, losses): `paired_permutation`;
- figures of the whole set (BLEU, chrF++, macro-F1, calibration error): `paired_bootstrap`.

Random numbers come from a generator of their own (Philox); the global ones of NumPy and torch are never touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glassformer.base.errors import GlassError

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]
Statistic = Callable[[Indices], float]
"""The figure of the examples with these numbers, (n,)."""

REPEATS = 1000
SHUFFLES = 10_000
LEVEL = 0.95
AT_ONCE = 1 << 21  # random numbers held together: 16 MB


@dataclass(frozen=True)
class PairedTest:
    """Two runs on the same examples.

    Attributes:
        difference: figure of the first run minus that of the second, on all examples.
        interval: of the difference, by the paired bootstrap; None of one example.
        p: two-sided: how often chance alone makes a difference at least this large, were the runs equally good.
        method: "paired permutation" or "paired bootstrap".
        repeats: random samples behind p, which is therefore never below 1 / (repeats + 1).
        level: of the interval.
    """

    difference: float
    interval: tuple[float, float] | None
    p: float
    method: str
    repeats: int
    level: float = LEVEL

    def __str__(self) -> str:
        ends = "one example: no interval"
        if self.interval is not None:
            low, high = self.interval
            ends = f"{100 * self.level:g} % {low:+.4f} to {high:+.4f}"
        return f"{self.difference:+.4f} ({ends}), p = {self.p:.4f} ({self.method})"


def mean_of(values: ArrayLike) -> Statistic:
    """The statistic that is a mean over examples.

    >>> float(mean_of([0.0, 1.0, 5.0])(np.array([1, 1, 2])))
    2.3333333333333335
    """
    numbers = _numbers(values)
    return lambda examples: float(numbers[examples].mean())


def bootstrap_interval(
    statistic: Statistic, n: int, repeats: int = REPEATS, seed: int = 0, level: float = LEVEL
) -> tuple[float, float] | None:
    """The percentile bootstrap (Efron 1979; for translation scores Koehn 2004).

    It shows how much the figure varies with the choice of test examples; not with the seed of training. It is too
    narrow for a handful of examples, and of zero width where all are right: `wilson` is better for plain shares.

    Args:
        statistic: figure of examples.
        n: examples there are.
        repeats: resamples.
        seed: the same one gives the same interval.
        level: of confidence.

    Returns:
        Lower and upper end; None of one example, which says nothing of how much others would vary.

    Raises:
        GlassError: there are no examples, or `repeats` or `level` makes no sense.
    """
    _check(n, repeats, level)
    if n == 1:
        return None
    return _percentiles(np.array([statistic(drawn) for drawn in _resamples(n, repeats, seed)]), level)


def paired_bootstrap(
    first: Statistic,
    second: Statistic,
    n: int,
    repeats: int = REPEATS,
    seed: int = 0,
    level: float = LEVEL,
) -> PairedTest:
    """Are two runs different, by any figure: both get the same resamples of the examples (Koehn 2004, section 3).

    The p-value asks how often the resampled difference strays from the measured one by at least as much as that is
    from nought (Noreen 1989; Efron and Tibshirani 1993, chapter 16). It counts both directions. sacrebleu takes
    absolute values before it centres, and so reports about half of this p for clear differences.

    Args:
        first, second: the figure of each run on given examples.
        n: examples there are.
        repeats, seed, level: as for `bootstrap_interval`.

    Raises:
        GlassError: as for `bootstrap_interval`.
    """
    _check(n, repeats, level)
    everything = np.arange(n)
    difference = first(everything) - second(everything)
    drawn = np.array([first(examples) - second(examples) for examples in _resamples(n, repeats, seed)])
    strayed = np.abs(drawn - difference)
    p = _share_at_least(int(np.count_nonzero(_at_least(strayed, abs(difference)))), repeats)
    interval = None if n == 1 else _percentiles(drawn, level)
    return PairedTest(difference, interval, p, "paired bootstrap", repeats, level)


def paired_permutation(
    first: ArrayLike,
    second: ArrayLike,
    repeats: int = SHUFFLES,
    seed: int = 0,
    level: float = LEVEL,
) -> PairedTest:
    """Are two runs different in the mean of a score that each example has (approximate randomisation).

    Were the runs equally good, it would be a matter of chance which of its two scores an example has from which run.
    So both are swapped at random, and p is how often the difference is at least as large as the measured one (Noreen
    1989; Riezler and Maxwell 2005, who find it more careful than the bootstrap).

    Args:
        first, second: (n,) score of each example in each run.
        repeats: random swaps; the interval has at most 1,000 resamples.
        seed, level: as for `bootstrap_interval`.

    Raises:
        GlassError: there are no examples, or not the same number of both; `repeats` or `level` makes no sense.
    """
    ours = _numbers(first)
    theirs = _numbers(second)
    if len(ours) != len(theirs):
        raise GlassError(
            f"a paired test needs the same examples in both runs, but there are {len(ours):,} and {len(theirs):,}",
            "Measure both runs on the same file.",
        )
    _check(len(ours), repeats, level)
    differences = ours - theirs
    total = differences.sum()
    extreme = 0
    generator = _generator(seed)
    for count in _blocks(repeats, len(ours)):
        swapped = generator.integers(2, size=(count, len(ours)), dtype=np.int8) == 1
        # Those that swap change the sign of their difference.
        shuffled = total - 2 * (swapped @ differences)
        extreme += int(np.count_nonzero(_at_least(np.abs(shuffled), abs(total))))
    interval = bootstrap_interval(mean_of(differences), len(ours), min(repeats, REPEATS), seed, level)
    p = _share_at_least(extreme, repeats)
    return PairedTest(float(differences.mean()), interval, p, "paired permutation", repeats, level)


def wilson(right: float, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the interval of a share (Wilson 1927): good for few examples too, and where none or all are right.

    Args:
        right: how many of the `n`; ties may count a half.
        n: examples; of none, nothing is known: 0 to 1.
        level: of confidence.

    Raises:
        GlassError: `right` is not between 0 and `n`, or `level` makes no sense.

    >>> tuple(round(end, 3) for end in wilson(8, 10))
    (0.49, 0.943)
    """
    if not 0 <= right <= n:
        raise GlassError(f"{right:g} right of {n:,} examples is no share", "Give a number between 0 and all of them.")
    if n == 0:
        return 0.0, 1.0
    _check(n, 1, level)
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = right / n
    weight = z * z / n
    centre = (share + weight / 2) / (1 + weight)
    half = math.sqrt(weight * (share * (1 - share) + weight / 4)) / (1 + weight)
    # Rounding must not put the share itself outside.
    return min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half))


def _check(n: int, repeats: int, level: float) -> None:
    if n < 1:
        raise GlassError("there are no examples to resample", "Measure on a file that is not empty.")
    if repeats < 1:
        raise GlassError(f"repeats = {repeats} is too few", "Take 1,000, or at least 1.")
    if not 0 < level < 1:
        raise GlassError(
            f"a confidence level of {level:g} makes no sense", "Give a share between 0 and 1, such as 0.95."
        )


def _numbers(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64).reshape(-1)


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def _resamples(n: int, repeats: int, seed: int) -> Iterator[Indices]:
    """n of n examples with replacement, `repeats` times."""
    generator = _generator(seed)
    for count in _blocks(repeats, n):
        yield from generator.integers(n, size=(count, n))


def _blocks(repeats: int, n: int) -> Iterator[int]:
    """Yield how many repeats to do together, so that memory does not grow with their number."""
    most = max(1, AT_ONCE // n)
    for start in range(0, repeats, most):
        yield min(most, repeats - start)


def _percentiles(values: Floats, level: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return low, high


def _at_least(values: Floats, limit: float) -> NDArray[np.bool_]:
    """Return whether each reaches the limit; sums of the same numbers in another order differ by rounding."""
    return values >= limit * (1 - 1e-9) - 1e-12


def _share_at_least(extreme: int, repeats: int) -> float:
    """Count the measured one among the random ones: so a test at level 5 % is wrong at most 5 % of the time."""
    return (extreme + 1) / (repeats + 1)
