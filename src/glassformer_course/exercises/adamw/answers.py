"""Known mistakes, and alternative correct solutions."""

import math

import numpy as np

from glassformer_course.cases import Mistake

BETA1 = 0.9
BETA2 = 0.999
EPSILON = 1e-8


def _averages(g, m, v):
    return BETA1 * m + (1 - BETA1) * g, BETA2 * v + (1 - BETA2) * g**2


def _direction(m, v, t):
    return m / (1 - BETA1**t) / (np.sqrt(v / (1 - BETA2**t)) + EPSILON)


def _l2(w, g, m, v, t, rate, decay):
    m, v = _averages(g + decay * w, m, v)
    return w - rate * _direction(m, v, t), m, v


def _no_correction(w, g, m, v, t, rate, decay):
    m, v = _averages(g, m, v)
    return w - rate * decay * w - rate * m / (np.sqrt(v) + EPSILON), m, v


def _epsilon_inside(w, g, m, v, t, rate, decay):
    m, v = _averages(g, m, v)
    move = m / (1 - BETA1**t) / np.sqrt(v / (1 - BETA2**t) + EPSILON)
    return w - rate * decay * w - rate * move, m, v


def _no_root(w, g, m, v, t, rate, decay):
    m, v = _averages(g, m, v)
    move = m / (1 - BETA1**t) / (v / (1 - BETA2**t) + EPSILON)
    return w - rate * decay * w - rate * move, m, v


def _decay_without_rate(w, g, m, v, t, rate, decay):
    m, v = _averages(g, m, v)
    return w - decay * w - rate * _direction(m, v, t), m, v


def _corrected_kept(w, g, m, v, t, rate, decay):
    m, v = _averages(g, m, v)
    m = m / (1 - BETA1**t)
    v = v / (1 - BETA2**t)
    return w - rate * decay * w - rate * m / (np.sqrt(v) + EPSILON), m, v


def _in_place(w, g, m, v, t, rate, decay):
    m *= BETA1
    m += (1 - BETA1) * g
    v *= BETA2
    v += (1 - BETA2) * g**2
    w -= rate * (decay * w + _direction(m, v, t))
    return w, m, v


def _decay_first(w, g, m, v, t, rate, decay):
    m = m + (1 - BETA1) * (g - m)
    v = v + (1 - BETA2) * (g * g - v)
    size = np.sqrt(v) / math.sqrt(1 - BETA2**t) + EPSILON
    return w * (1 - rate * decay) - rate / (1 - BETA1**t) * m / size, m, v


def _number_by_number(w, g, m, v, t, rate, decay):
    new = []
    for each, slope, first, second in zip(w.ravel(), g.ravel(), m.ravel(), v.ravel(), strict=True):
        first = first * BETA1 + slope * (1 - BETA1)
        second = second * BETA2 + slope**2 * (1 - BETA2)
        move = first / (1 - BETA1**t) / ((second / (1 - BETA2**t)) ** 0.5 + EPSILON)
        new.append((each - rate * (decay * each + move), first, second))
    columns = np.array(new).T
    return tuple(column.reshape(w.shape) for column in columns)


MISTAKES = [
    Mistake(
        "decay inside the gradient (L2)",
        "Added to g, the decay is divided by √v̂ like the gradient, so weights with large gradients hardly decay: "
        "this is Adam with L2 regularization. In AdamW the decay is separate: - rate · decay · w.",
        {"adamw": _l2},
    ),
    Mistake(
        "no bias correction",
        "m and v start at 0 and are too small at first, v by a factor of 1,000: the first step is about 3 times too "
        "large. Divide m by 1 - β1ᵗ and v by 1 - β2ᵗ.",
        {"adamw": _no_correction},
    ),
    Mistake(
        "ε inside the root",
        "√(v̂ + ε) is not √v̂ + ε: with ε = 1e-8 inside, gradients below 0.0001 get much smaller steps. Add ε after "
        "the root.",
        {"adamw": _epsilon_inside},
    ),
    Mistake(
        "no square root of v",
        "v̂ is an average of squares, so the typical size of the gradient is its root. Divide by √v̂ + ε.",
        {"adamw": _no_root},
    ),
    Mistake(
        "decay without the rate",
        "The decay is multiplied by the rate, like the step: w - rate · decay · w. Otherwise, a decay of 0.1 shrinks "
        "all weights by a tenth at every step.",
        {"adamw": _decay_without_rate},
    ),
    Mistake(
        "corrected averages returned",
        "m̂ and v̂ are for this step only. Return m and v without the correction, or it is applied again at every step.",
        {"adamw": _corrected_kept},
    ),
    Mistake(
        "arrays changed in place",
        "The caller's arrays were changed. Real optimizers usually do that, but this task asks for new arrays: "
        "m = β1 · m + …, not m *= β1.",
        {"adamw": _in_place},
    ),
]
ALSO_RIGHT = [{"adamw": _decay_first}, {"adamw": _number_by_number}]
