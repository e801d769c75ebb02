"""Reference functions and test cases for `ema` and `late`, as weighted sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from glassformer.numpy_reference.arrays import Array
from glassformer_course.cases import Case, call
from glassformer_course.drawing import Panel, Picture


def ema(weights: Sequence[Array], decay: float) -> Array:
    """Return the exponential moving average, computed as one weighted sum over all steps."""
    return _weighted(weights, lambda t: 1 - min(decay, (1 + t) / (10 + t)))


def late(weights: Sequence[Array], n: float) -> Array:
    """Return the average that favors late steps, computed as one weighted sum over all steps."""
    return _weighted(weights, lambda t: (n + 1) / (t + n))


def step_weights(steps: int, factor: Callable[[int], float]) -> list[float]:
    """Return the weight of each step in the average after `steps` steps.

    `factor(t)` is the weight of step t > 1 in the average right after that step; for step 1, this weight is 1.
    """
    result: list[float] = []
    for t in range(1, steps + 1):
        newest = 1.0 if t == 1 else factor(t)
        result = [each * (1 - newest) for each in result] + [newest]
    return result


def _weighted(weights: Sequence[Array], factor: Callable[[int], float]) -> Array:
    total = np.zeros(np.shape(weights[0]))
    for each, weight in zip(step_weights(len(weights), factor), weights, strict=True):
        total = total + each * np.asarray(weight, dtype=np.float64)
    return total


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases with one, two or many steps, a decay that is never reached, equal weights and integers."""
    yield call("ema", [np.array([2.0, 4.0])], 0.9, note="where there is one step: the average is its weights")
    yield call(
        "ema",
        [np.array([0.0]), np.array([1.0])],
        0.9,
        note="where there are two steps: the decay of step 2 is 3/12, so the average is 0.75",
    )
    for steps, shape in [(3, (2, 3)), (40, (5,)), (200, (2, 2, 2))]:
        weights = list(rng.normal(size=(steps, *shape)))
        yield call("ema", weights, 0.9, note=f"where the weights of {steps} steps are random")
        yield call("ema", weights, 0.9999, note=f"where the decay stays below its limit for {steps} steps")
    yield call("ema", list(rng.normal(size=(30, 4))), 0.0, note="where the decay is 0: the result is the last weights")
    yield call("ema", [np.full(3, 7.0)] * 20, 0.99, note="where the weights never change")
    yield call("late", [np.array([2.0, 4.0])], 8, note="where there is one step")
    yield call("late", [np.array([0.0]), np.array([3.0])], 1, note="where n is 1 and there are two steps: 3 · 2/3")
    for steps, shape in [(3, (2, 3)), (40, (5,)), (200, (2, 2, 2))]:
        weights = list(rng.normal(size=(steps, *shape)))
        yield call("late", weights, 8, note=f"where the weights of {steps} steps are random")
    yield call("late", list(rng.normal(size=(30, 4))), 0, note="where n is 0: the mean of all steps")
    yield call("late", [np.full(3, 7.0)] * 20, 3, note="where the weights never change")
    integers = [np.array([1, 2]), np.array([4, 8]), np.array([3, 5])]
    yield call("ema", integers, 0.5, note="where the weights are integers")
    yield call("late", integers, 2, note="where the weights are integers")


def picture() -> Picture:
    """Draw the weight of each of 40 steps in three averages."""
    steps = 40
    names = ["ema 0.9", "late, n = 8", "late, n = 0"]
    curves = np.array(
        [
            step_weights(steps, lambda t: 1 - min(0.9, (1 + t) / (10 + t))),
            step_weights(steps, lambda t: 9 / (t + 8)),
            step_weights(steps, lambda t: 1 / t),
        ]
    )
    return Picture(
        [Panel("weight of steps 1 to 40", curves, names)],
        caption="With n = 0, all steps have the same weight, including those of the untrained model. The other two "
        "averages give those steps little weight; with n = 8, the average covers a fixed fraction of the run, however "
        "long it is.",
    )
