"""Known mistakes, and alternative correct solutions."""

import math

import numpy as np

from glassformer_course.cases import Mistake


def _fall(over, peak, floor):
    return floor + (1 + math.cos(math.pi * over)) / 2 * (peak - floor)


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
        "With step / warmup nothing is learned at step 0, and the peak comes one step late. Steps are counted from 0: "
        "it is (step + 1) / warmup.",
        {"rate": _starts_at_zero},
    ),
    Mistake(
        "decay one step late",
        "With step - warmup the peak comes twice and the last step stays above the floor. The decay's share that is "
        "over at a step is (step - warmup + 1) / (steps - warmup).",
        {"rate": _peak_twice},
    ),
    Mistake(
        "cosine counted from step 0",
        "The wave is already part of the way down when warm-up ends, so the rate jumps. Count the decay from the end "
        "of the warm-up: both step and steps less warmup.",
        {"rate": _from_step_zero},
    ),
    Mistake(
        "floor added on top",
        "floor + wave · peak begins above the peak. The wave runs between the two: floor + wave · (peak - floor).",
        {"rate": _floor_on_top},
    ),
    Mistake(
        "cosine from 1 to -1",
        "The cosine itself goes below 0, and so does the rate. Half of 1 + cos goes from 1 to 0.",
        {"rate": _whole_cosine},
    ),
    Mistake(
        "a straight line down",
        "That is the linear schedule. Put the share that is over through (1 + cos(π p)) / 2.",
        {"rate": _straight_line},
    ),
    Mistake(
        "rises again beyond the end",
        "A wave that goes on climbs back to the peak, as happens when training is prolonged. Beyond the last step "
        "give the floor.",
        {"rate": _rises_again},
    ),
]
ALSO_RIGHT = [{"rate": _by_interpolation}, {"rate": _by_sines}]
