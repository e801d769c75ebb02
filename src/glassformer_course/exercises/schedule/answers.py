"""Known mistakes, and alternative correct solutions."""

import math

import numpy as np

from glassformer_course.cases import Mistake


def _fall(progress, peak, floor):
    return floor + (1 + math.cos(math.pi * progress)) / 2 * (peak - floor)


def _starts_at_zero(step, steps, warmup, peak, floor):
    if step >= steps:
        return floor
    if step < warmup:
        return peak * step / warmup
    return _fall((step - warmup + 1) / (steps - warmup), peak, floor)


def _peak_twice(step, steps, warmup, peak, floor):
    if step >= steps:
        return floor
    if step < warmup:
        return peak * (step + 1) / warmup
    return _fall((step - warmup) / (steps - warmup), peak, floor)


def _from_step_zero(step, steps, warmup, peak, floor):
    if step >= steps:
        return floor
    if step < warmup:
        return peak * (step + 1) / warmup
    return _fall((step + 1) / steps, peak, floor)


def _floor_on_top(step, steps, warmup, peak, floor):
    if step >= steps:
        return floor
    if step < warmup:
        return peak * (step + 1) / warmup
    return _fall((step - warmup + 1) / (steps - warmup), peak, 0.0) + floor


def _whole_cosine(step, steps, warmup, peak, floor):
    if step >= steps:
        return floor
    if step < warmup:
        return peak * (step + 1) / warmup
    return floor + (peak - floor) * math.cos(math.pi * (step - warmup + 1) / (steps - warmup))


def _straight_line(step, steps, warmup, peak, floor):
    if step >= steps:
        return floor
    if step < warmup:
        return peak * (step + 1) / warmup
    return floor + (peak - floor) * (1 - (step - warmup + 1) / (steps - warmup))


def _rises_again(step, steps, warmup, peak, floor):
    if step < warmup:
        return peak * (step + 1) / warmup
    return _fall((step - warmup + 1) / max(1, steps - warmup), peak, floor)


def _by_interpolation(step, steps, warmup, peak, floor):
    climb = [peak * (each + 1) / warmup for each in range(warmup)]
    angles = np.linspace(0, np.pi, steps - warmup + 1)[1:]
    curve = [*climb, *((peak + floor) / 2 + (peak - floor) / 2 * np.cos(angles)), floor]
    return float(curve[min(step, steps)])


def _by_sines(step, steps, warmup, peak, floor):
    if step >= steps:
        return floor
    if step + 1 <= warmup:
        return (step + 1) / warmup * peak
    left = (steps - 1 - step) / (steps - warmup)
    return floor + (peak - floor) * math.sin(math.pi / 2 * left) ** 2


MISTAKES = [
    Mistake(
        "the first step has rate 0",
        "With step / warmup nothing is learned at step 0, and the peak comes one step late. Steps are counted from 0, "
        "so use (step + 1) / warmup.",
        {"rate": _starts_at_zero},
    ),
    Mistake(
        "decay one step late",
        "With step - warmup the peak comes twice and the last step stays above the floor. The fraction of the decay "
        "that is done is (step - warmup + 1) / (steps - warmup).",
        {"rate": _peak_twice},
    ),
    Mistake(
        "cosine counted from step 0",
        "The cosine has already fallen when warm-up ends, so the rate jumps. Count the decay from the end of the "
        "warm-up: subtract warmup from both step and steps.",
        {"rate": _from_step_zero},
    ),
    Mistake(
        "floor added on top",
        "floor + (1 + cos(π p)) / 2 · peak begins above the peak. Multiply by peak - floor instead: the rate then "
        "goes from peak to floor.",
        {"rate": _floor_on_top},
    ),
    Mistake(
        "cosine from 1 to -1",
        "The cosine itself goes from 1 to -1, so the rate falls below the floor. (1 + cos) / 2 goes from 1 to 0.",
        {"rate": _whole_cosine},
    ),
    Mistake(
        "linear decay",
        "This is the linear schedule. Apply (1 + cos(π p)) / 2 to the fraction p of the decay that is done.",
        {"rate": _straight_line},
    ),
    Mistake(
        "rises again after the end",
        "If the cosine continues, the rate rises back to the peak when a training run is extended. After the last "
        "step, return the floor.",
        {"rate": _rises_again},
    ),
]
ALSO_RIGHT = [{"rate": _by_interpolation}, {"rate": _by_sines}]
