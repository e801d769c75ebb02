"""Known mistakes, and alternative correct solutions."""

import cmath

import numpy as np

from glassformer_course.cases import Mistake


def _side_by_side(angles, first=np.sin, second=np.cos):
    return np.stack([first(angles), second(angles)], axis=-1).reshape(len(angles), -1)


def _angles(positions, width, base=10_000.0):
    return positions[:, None] * base ** (-np.arange(0, width, 2) / width)


def _halves(positions, width):
    angles = _angles(positions, width)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _cosine_first(positions, width):
    return _side_by_side(_angles(positions, width), np.cos, np.sin)


def _half_exponent(positions, width):
    return _side_by_side(positions[:, None] * 10_000.0 ** (-np.arange(width // 2) / width))


def _own_frequencies(positions, width):
    angles = positions[:, None] * 10_000.0 ** (-np.arange(width) / width)
    return np.where(np.arange(width) % 2 == 0, np.sin(angles), np.cos(angles))


def _double_exponent(positions, width):
    return _side_by_side(positions[:, None] * 10_000.0 ** (-2 * np.arange(0, width, 2) / width))


def _multiplied(positions, width):
    return _side_by_side(positions[:, None] * 10_000.0 ** (np.arange(0, width, 2) / width))


def _from_one(positions, width):
    return _side_by_side(_angles(positions + 1, width))


def _row_numbers(positions, width):
    return _side_by_side(_angles(np.arange(len(positions)), width))


def _base_1000(positions, width):
    return _side_by_side(_angles(positions, width, base=1000.0))


def _by_logarithms(positions, width):
    channels = np.arange(width)
    angles = np.outer(positions, np.exp(-np.log(10_000.0) * (channels - channels % 2) / width))
    return np.sin(angles + channels % 2 * np.pi / 2)


def _complex(positions, width):
    """Rotate a complex number for each pair; its imaginary part is the sine."""
    result = np.zeros((len(positions), width))
    for row, position in enumerate(positions.tolist()):
        for pair in range(width // 2):
            turned = cmath.exp(1j * position / 10_000 ** (2 * pair / width))
            result[row, 2 * pair : 2 * pair + 2] = turned.imag, turned.real
    return result


MISTAKES = [
    Mistake(
        "all sines first, then all cosines",
        "Some libraries use this layout, but weights trained with one layout do not work with the other. Here, sine "
        "and cosine of a frequency are adjacent: result[:, 0::2] and result[:, 1::2].",
        {"sinusoids": _halves},
    ),
    Mistake(
        "the cosine first",
        "Sine and cosine are swapped. The even channels are sines: position 0 has 0, 1, 0, 1.",
        {"sinusoids": _cosine_first},
    ),
    Mistake(
        "the exponent is i / D instead of 2i / D",
        "i counts pairs from 0 to D/2 - 1, so 2i / D goes up to almost 1. With i / D, even the slowest wave has a "
        "frequency of about 1/100.",
        {"sinusoids": _half_exponent},
    ),
    Mistake(
        "every channel has its own frequency",
        "Channels 2i and 2i + 1 share one frequency: both exponents are 2i / D. Only then does a shift of the position "
        "rotate each pair.",
        {"sinusoids": _own_frequencies},
    ),
    Mistake(
        "the exponent is doubled",
        "np.arange(0, D, 2) is 2i already. Do not double it once more.",
        {"sinusoids": _double_exponent},
    ),
    Mistake(
        "multiplied instead of divided",
        "Frequencies must fall from 1 to about 1/10,000: divide the position by 10000^(2i/D).",
        {"sinusoids": _multiplied},
    ),
    Mistake(
        "positions from 1",
        "The given positions are the p of the formula; nothing is added. Position 0 has 0, 1, 0, 1.",
        {"sinusoids": _from_one},
    ),
    Mistake(
        "row numbers instead of positions",
        "Row 0 need not be position 0: with a cache, the positions start later. Use the numbers in `positions`.",
        {"sinusoids": _row_numbers},
    ),
    Mistake(
        "the base is not 10,000",
        "The slowest wave is too fast, so distant positions look alike. The base is 10,000.",
        {"sinusoids": _base_1000},
    ),
]
ALSO_RIGHT = [{"sinusoids": _by_logarithms}, {"sinusoids": _complex}]
