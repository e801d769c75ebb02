"""Known mistakes, and alternative correct solutions."""

import math

import numpy as np

from glassformer_course.cases import Mistake


def _unbiased(x, gain, bias, epsilon):
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = (centered**2).sum(axis=-1, keepdims=True) / (np.float64(x.shape[-1]) - 1)  # D = 1: 0 / 0 is NaN
    return gain * centered / np.sqrt(variance + epsilon) + bias


def _outside(x, gain, bias, epsilon):
    return gain * (x - x.mean(axis=-1, keepdims=True)) / (x.std(axis=-1, keepdims=True) + epsilon) + bias


def _outside_rms(x, gain, epsilon):
    return gain * x / (np.sqrt((x**2).mean(axis=-1, keepdims=True)) + epsilon)


def _whole_array(x, gain, bias, epsilon):
    return gain * (x - x.mean()) / np.sqrt(x.var() + epsilon) + bias


def _whole_array_rms(x, gain, epsilon):
    return gain * x / np.sqrt((x**2).mean() + epsilon)


def _difference_of_squares(x, gain, bias, epsilon):
    mean = x.mean(axis=-1, keepdims=True)
    variance = (x**2).mean(axis=-1, keepdims=True) - mean**2
    return gain * (x - mean) / np.sqrt(variance + epsilon) + bias


def _rms_of_centred(x, gain, epsilon):
    centered = x - x.mean(axis=-1, keepdims=True)
    return gain * centered / np.sqrt((centered**2).mean(axis=-1, keepdims=True) + epsilon)


def _rms_by_length(x, gain, epsilon):
    return gain * x / np.sqrt((x**2).sum(axis=-1, keepdims=True) + epsilon)


def _gain_on_bias_too(x, gain, bias, epsilon):
    centered = x - x.mean(axis=-1, keepdims=True)
    return gain * (centered / np.sqrt(x.var(axis=-1, keepdims=True) + epsilon) + bias)


def _layer_norm_with_loops(x, gain, bias, epsilon):
    result = np.zeros(x.shape)
    for position in np.ndindex(x.shape[:-1]):
        row = [float(value) for value in x[position]]
        mean = math.fsum(row) / len(row)
        size = math.sqrt(math.fsum((value - mean) ** 2 for value in row) / len(row) + epsilon)
        result[position] = [g * (value - mean) / size + b for value, g, b in zip(row, gain, bias, strict=True)]
    return result


def _rms_norm_with_loops(x, gain, epsilon):
    result = np.zeros(x.shape)
    for position in np.ndindex(x.shape[:-1]):
        size = math.sqrt(math.fsum(float(value) ** 2 for value in x[position]) / x.shape[-1] + epsilon)
        result[position] = [g * value / size for value, g in zip(x[position], gain, strict=True)]
    return result


def _layer_norm_by_library(x, gain, bias, epsilon):
    scale = (np.var(x, axis=-1, keepdims=True) + epsilon) ** -0.5
    return (x - np.mean(x, axis=-1, keepdims=True)) * scale * gain + bias


def _rms_norm_by_einsum(x, gain, epsilon):
    square = np.einsum("...d,...d->...", x, x) / x.shape[-1]
    return x * gain / np.sqrt(square + epsilon)[..., None]


MISTAKES = [
    Mistake(
        "variance divided by D - 1",
        "This is the sample variance (ddof=1, the default of torch.var). Norms divide by D: x.var(axis=-1) in NumPy.",
        {"layer_norm": _unbiased},
    ),
    Mistake(
        "ε outside the root",
        "√σ² + ε is not √(σ² + ε), and vectors with little variance become too large. Add ε before taking the root.",
        {"layer_norm": _outside, "rms_norm": _outside_rms},
    ),
    Mistake(
        "one norm over the whole array",
        "All vectors share one mean and one size here, so tokens and rows of a batch influence each other. Reduce only "
        "over axis=-1, with keepdims=True.",
        {"layer_norm": _whole_array, "rms_norm": _whole_array_rms},
    ),
    Mistake(
        "variance as a difference of squares",
        "The mean of x² minus the square of the mean loses all digits if the mean is much larger than the standard "
        "deviation. Subtract the mean first, then square.",
        {"layer_norm": _difference_of_squares},
    ),
    Mistake(
        "gain multiplies the bias too",
        "The bias is added last: gain · x̂ + bias, not gain · (x̂ + bias).",
        {"layer_norm": _gain_on_bias_too},
    ),
    Mistake(
        "RMSNorm subtracts the mean",
        "This is LayerNorm without bias. RMSNorm divides x itself by the root of its mean square and does not "
        "subtract the mean.",
        {"rms_norm": _rms_of_centred},
    ),
    Mistake(
        "sum of squares, not their mean",
        "A vector divided by its length has length 1, so its numbers shrink as D grows. RMSNorm divides by the root "
        "of the mean square, so the length is √D.",
        {"rms_norm": _rms_by_length},
    ),
]
ALSO_RIGHT = [
    {"layer_norm": _layer_norm_with_loops, "rms_norm": _rms_norm_with_loops},
    {"layer_norm": _layer_norm_by_library, "rms_norm": _rms_norm_by_einsum},
]
