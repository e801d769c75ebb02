"""Reference function and test cases for `adamw`."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from glassformer.numpy_reference.arrays import Array
from glassformer_course.cases import Case, Function, call
from glassformer_course.drawing import Panel, Picture

BETA1 = 0.9
BETA2 = 0.999
EPSILON = 1e-8


def adamw(w: Array, g: Array, m: Array, v: Array, t: int, rate: float, decay: float) -> tuple[Array, Array, Array]:
    """Compute one AdamW step element by element."""
    results = np.empty((3, *w.shape))
    for position in np.ndindex(w.shape):
        first = BETA1 * float(m[position]) + (1 - BETA1) * float(g[position])
        second = BETA2 * float(v[position]) + (1 - BETA2) * float(g[position]) ** 2
        move = first / (1 - BETA1**t) / (math.sqrt(second / (1 - BETA2**t)) + EPSILON)
        results[(slice(None), *position)] = float(w[position]) * (1 - rate * decay) - rate * move, first, second
    return results[0], results[1], results[2]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases with single steps, then with several steps in a row, with and without decay."""
    zero = np.zeros(1)
    yield call(
        "adamw",
        np.ones(1),
        np.array([0.5]),
        zero,
        zero,
        1,
        0.1,
        0.0,
        note="where w is 1 and the first step is 0.1",
    )
    yield call("adamw", np.ones(1), np.array([0.5]), zero, zero, 1, 0.1, 0.5, note="where w = 1 also decays by 5%")
    for shape in [(5,), (2, 3), (3, 1, 2), (1, 7)]:
        w, g, m = rng.normal(size=(3, *shape))
        yield call("adamw", w, g, m, m**2 + 1, 7, 0.03, 0.1, note="where t is 7")
    w, g, m = rng.normal(size=(3, 4))
    yield call("adamw", w, g, m, m**2, 5_000, 0.01, 0.1, note="where t is 5,000")
    yield call("adamw", w, g * 1e-5, w * 0, w * 0, 1, 0.01, 0.0, note="where gradients are about 0.00001, so ε matters")
    yield call("adamw", w, g * 0, w * 0, w * 0, 1, 0.1, 0.3, note="where the gradient is 0 and only decay acts")
    yield call("adamw", w, g, m, m**2, 3, 0.0, 0.1, note="where the rate is 0")
    yield call("adamw", w, g * 1e6, w * 0, w * 0, 1, 0.01, 0.1, note="where gradients are about 1,000,000")
    yield _walk(rng.normal(size=(8, 3)), 0.1, 0.0, "no decay")
    yield _walk(rng.normal(size=(8, 2, 3)), 0.1, 0.2, "decay")
    yield _walk(rng.normal(size=(30, 2)) + 1, 0.01, 0.1, "gradients that mostly have the same sign")
    yield _walk(np.tile([1.0, 0.01], (12, 1)), 0.1, 0.0, "one gradient a hundred times the other: equal steps")
    yield _walk(rng.normal(size=(12, 3)) * (rng.random((12, 1)) < 0.3), 0.1, 0.1, "gradients that are mostly 0")


def walked(step: Function, gradients: Array, rate: float, decay: float) -> list[Array]:
    """Return the weights after each step; all initial weights are 1."""
    w = np.ones(gradients.shape[1:])
    m = np.zeros(gradients.shape[1:])
    v = np.zeros(gradients.shape[1:])
    trajectory = []
    for t, g in enumerate(gradients, start=1):
        w, m, v = step(w, g, m, v, t, rate, decay)
        trajectory.append(w)
    return trajectory


def _walk(gradients: Array, rate: float, decay: float, note: str) -> Case:
    return Case(
        lambda functions: walked(functions.adamw, gradients, rate, decay),
        note=f"where there are {len(gradients)} steps in a row, with {note}",
        description=f"w after each of {len(gradients)} steps, starting at 1, with rate {rate} and decay {decay}",
    )


def picture() -> Picture:
    """Draw the first steps for gradients of very different sizes."""
    sizes = [10.0, 0.1, 0.001]
    weights = np.array(walked(adamw, np.tile(sizes, (6, 1)), 0.1, 0.0))
    plain = 1 - 0.1 * np.outer(np.arange(1, 7), sizes)
    names = [f"g = {size:g}" for size in sizes]
    steps = [str(step) for step in range(1, 7)]
    return Picture(
        [Panel("w after each step, w - rate · g", plain.T, names, steps), Panel("with Adam", weights.T, names, steps)],
        caption="The rate is 0.1 and w starts at 1. The steps of gradient descent are proportional to the gradient; "
        "those of Adam are 0.1 for each weight, as long as its gradient stays the same.",
    )
