"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake


def _running(weights, factor):
    average = np.array(weights[0], dtype=np.float64)
    for t, weight in enumerate(weights[1:], start=2):
        s = factor(t)
        average = (1 - s) * average + s * weight
    return average


def _swapped_ema(weights, decay):
    return _running(weights, lambda t: min(decay, (1 + t) / (10 + t)))


def _constant(weights, decay):
    return _running(weights, lambda t: 1 - decay)


def _from_zero(weights, decay):
    average = np.zeros(np.shape(weights[0]))
    for t, weight in enumerate(weights, start=1):
        d = min(decay, (1 + t) / (10 + t))
        average = d * average + (1 - d) * weight
    return average


def _counted_from_zero(weights, decay):
    return _running(weights, lambda t: 1 - min(decay, t / (9 + t)))


def _larger_decay(weights, decay):
    return _running(weights, lambda t: 1 - max(decay, (1 + t) / (10 + t)))


def _plain_mean(weights, n):
    return np.mean(np.asarray(weights, dtype=np.float64), axis=0)


def _swapped_late(weights, n):
    average = np.array(weights[0], dtype=np.float64)
    for t, weight in enumerate(weights[1:], start=2):
        s = (n + 1) / (t + n)
        average = s * average + (1 - s) * weight
    return average


def _late_from_zero(weights, n):
    return _running(weights, lambda t: (n + 1) / (t - 1 + n))


def _without_one(weights, n):
    return _running(weights, lambda t: n / (t + n))


def _ema_in_place(weights, decay):
    average = np.array(weights[0], dtype=np.float64)
    for t, weight in enumerate(weights[1:], start=2):
        average += (1 - min(decay, (1 + t) / (10 + t))) * (weight - average)
    return average


def _late_by_products(weights, n):
    stack = np.asarray(weights, dtype=np.float64)
    factor = np.array([1.0, *((n + 1) / (t + n) for t in range(2, len(stack) + 1))])
    remaining_factor = np.append(np.cumprod((1 - factor)[::-1])[::-1][1:], 1.0)
    return np.tensordot(factor * remaining_factor, stack, axes=1)


MISTAKES = [
    Mistake(
        "decay and 1 - decay are swapped",
        "The decay d is the factor of the old average; the newest weights get the factor 1 - d.",
        {"ema": _swapped_ema},
    ),
    Mistake(
        "the decay does not grow",
        "With a constant decay of 0.99, the untrained first weights stay in the average for hundreds of steps. Begin "
        "with a small decay: the smaller of decay and (1 + t) / (10 + t).",
        {"ema": _constant},
    ),
    Mistake(
        "the average begins with zeros",
        "The average after step 1 is the weights of step 1. Starting with zeros pulls the average towards 0.",
        {"ema": _from_zero},
    ),
    Mistake(
        "steps are counted from 0",
        "The first step is t = 1, so the first average is computed at t = 2.",
        {"ema": _counted_from_zero, "late": _late_from_zero},
    ),
    Mistake(
        "the larger of the two decays",
        "The growing decay is an upper limit at the start of training: take the smaller of the two.",
        {"ema": _larger_decay},
    ),
    Mistake(
        "the arithmetic mean",
        "All steps have the same weight here, including the first. That is n = 0; with a larger n, late steps weigh "
        "more.",
        {"late": _plain_mean},
    ),
    Mistake(
        "old and new are swapped",
        "s is the factor of the newest weights; the old average gets 1 - s.",
        {"late": _swapped_late},
    ),
    Mistake(
        "n instead of n + 1",
        "With s = n / (t + n), the weights of the steps are not proportional to t to the n, and with n = 0 the average "
        "never changes.",
        {"late": _without_one},
    ),
]
ALSO_RIGHT = [{"ema": _ema_in_place, "late": _late_by_products}]
