"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake


def _no_maximum(x):
    exponentials = np.exp(x)
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _first_axis(x):
    exponentials = np.exp(x - x.max(axis=0, keepdims=True))
    return exponentials / exponentials.sum(axis=0, keepdims=True)


def _whole_array(x):
    exponentials = np.exp(x - x.max())
    return exponentials / exponentials.sum()


def _axis_lost(x):
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1)


def _always_float64(x):
    exponentials = np.exp(np.float64(x) - np.float64(x).max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _in_place(x):
    x -= x.max(axis=-1, keepdims=True)
    np.exp(x, out=x)
    x /= x.sum(axis=-1, keepdims=True)
    return x


def _with_loops(x):
    rows = x.reshape(-1, x.shape[-1])
    result = []
    for row in rows:
        largest = max(row)
        exponentials = [np.exp(number - largest) for number in row]
        total = sum(exponentials)
        result.append([exponential / total for exponential in exponentials])
    return np.array(result, dtype=x.dtype).reshape(x.shape)


def _by_logarithms(x):
    largest = np.max(x, axis=-1, keepdims=True)
    return np.exp(x - largest - np.log(np.sum(np.exp(x - largest), axis=-1, keepdims=True)))


MISTAKES = [
    Mistake(
        "no maximum subtracted",
        "exp of a large number is infinite, and infinity / infinity is NaN. Subtract each row's maximum first: the "
        "result is the same, because numerator and denominator are divided by the same number.",
        {"softmax": _no_maximum},
    ),
    Mistake(
        "softmax over the wrong axis",
        "The columns sum to 1 here, not the rows. The axis of the maximum and of the sum is the last one: axis=-1.",
        {"softmax": _first_axis},
    ),
    Mistake(
        "one softmax over the whole array",
        "All rows share one sum here. Each row needs its own: sum over axis=-1 and keep that axis (keepdims=True).",
        {"softmax": _whole_array},
    ),
    Mistake(
        "the summed axis is lost",
        "Row maxima or sums have one axis less, so broadcasting fails, or, in a square array, uses the values of other "
        "rows. Keep the axis in both: keepdims=True.",
        {"softmax": _axis_lost},
    ),
    Mistake(
        "always float64",
        "The input is float32 and the result float64. np.array of a list gives float64: pass dtype=x.dtype.",
        {"softmax": _always_float64},
    ),
    Mistake(
        "computed in place",
        "x itself was changed, but the caller still needs it. Create new arrays: x - m, not x -= m.",
        {"softmax": _in_place},
    ),
]
ALSO_RIGHT = [{"softmax": _with_loops}, {"softmax": _by_logarithms}]
