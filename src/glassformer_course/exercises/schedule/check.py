"""Reference function and test cases for `rate`."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from glassformer_course.cases import Case, call
from glassformer_course.drawing import Panel, Picture


def rate(step: int, steps: int, warmup: int, peak: float, floor: float) -> float:
    """Return the learning rate of one step; after warm-up, it is a weighted mean of peak and floor."""
    if step < min(warmup, steps):
        return peak / warmup * (step + 1)
    decay_step = min(step, steps - 1) - (warmup - 1)
    falling = steps - warmup
    fraction = (1 + math.cos(math.pi * decay_step / falling)) / 2 if falling and step < steps else 0.0
    return fraction * peak + (1 - fraction) * floor


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases with whole schedules, with and without warm-up and floor, then with single steps."""
    yield _curve(8, 4, 1.0, 0.0, "4 of 8 steps warm up to 1")
    yield _curve(8, 4, 1.0, 0.1, "the floor is 0.1")
    yield _curve(7, 0, 2.0, 0.5, "there is no warm-up")
    yield _curve(9, 1, 3e-4, 3e-5, "the warm-up is one step, which has the peak")
    for _ in range(6):
        steps = int(rng.integers(5, 40))
        peak = float(rng.uniform(0.1, 1))
        yield _curve(
            steps, int(rng.integers(1, steps)), peak, peak * float(rng.uniform(0, 0.5)), "all values are random"
        )
    yield _curve(5, 5, 1.0, 0.1, "all steps warm up and none decays")
    yield _curve(5, 4, 1.0, 0.1, "only the last step decays")
    yield _curve(1, 0, 1.0, 0.1, "there is a single step")
    yield _curve(6, 2, 0.3, 0.3, "floor and peak are equal")
    yield call("rate", 8, 8, 4, 1.0, 0.1, note="where the step is the first after the end")
    yield call("rate", 30, 8, 4, 1.0, 0.1, note="where the step is long after the end")
    yield call("rate", 5, 5, 5, 1.0, 0.1, note="where the step is after the end and there is no decay")
    yield call("rate", 50_000, 100_000, 2_000, 6e-4, 6e-5, note="where half of a long training run is done")


def _curve(steps: int, warmup: int, peak: float, floor: float, note: str) -> Case:
    return Case(
        lambda functions: [functions.rate(step, steps, warmup, peak, floor) for step in range(steps)],
        note=f"where {note}; the index in the list is the step",
        description=f"[rate(step, {steps}, {warmup}, {peak:.4g}, {floor:.4g}) for step in range({steps})]",
    )


def picture() -> Picture:
    """Draw three schedules of ten steps."""
    settings = {"no warm-up": (0, 0.0), "warm-up 3": (3, 0.0), "warm-up 3, floor 0.2": (3, 0.2)}
    curves = [[rate(step, 10, warmup, 1.0, floor) for step in range(10)] for warmup, floor in settings.values()]
    return Picture(
        [
            Panel(
                "learning rate at each of 10 steps, with a peak of 1",
                curves,
                list(settings),
                [str(s) for s in range(10)],
            )
        ],
        caption="The rate rises linearly and falls along half a cosine wave: slowly at first, fast in the middle, "
        "slowly at the end. The last step has the floor.",
    )
