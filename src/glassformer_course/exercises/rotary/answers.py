"""Known mistakes, and alternative correct solutions."""

import math

import numpy as np

from glassformer_course.cases import Mistake


def _angles(x, first, base):
    T, K = x.shape[-2:]
    return (first + np.arange(T))[:, None] * base ** (-2 * np.arange(K // 2) / K)


def _turned(x, angles):
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=-1)


def _interleaved(x, start, base):
    angles = _angles(x, start, base)
    a = x[..., 0::2]
    b = x[..., 1::2]
    result = np.empty_like(x)
    result[..., 0::2] = a * np.cos(angles) - b * np.sin(angles)
    result[..., 1::2] = b * np.cos(angles) + a * np.sin(angles)
    return result


def _layouts_mixed(x, start, base):
    angles = np.repeat(_angles(x, start, base), 2, axis=-1)
    a, b = np.split(x, 2, axis=-1)
    return x * np.cos(angles) + np.concatenate([-b, a], axis=-1) * np.sin(angles)


def _other_way(x, start, base):
    return _turned(x, -_angles(x, start, base))


def _from_one(x, start, base):
    return _turned(x, _angles(x, start + 1, base))


def _start_ignored(x, start, base):
    return _turned(x, _angles(x, 0, base))


def _slow_frequencies(x, start, base):
    T, K = x.shape[-2:]
    return _turned(x, (start + np.arange(T))[:, None] * base ** (-np.arange(K // 2) / K))


def _complex_numbers(x, start, base):
    half = x.shape[-1] // 2
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * _angles(x, start, base))
    return np.concatenate([turned.real, turned.imag], axis=-1)


def _with_loops(x, start, base):
    T, K = x.shape[-2:]
    result = np.zeros(x.shape)
    for t in range(T):
        for i in range(K // 2):
            angle = (start + t) / base ** (2 * i / K)
            cos = math.cos(angle)
            sin = math.sin(angle)
            result[..., t, i] = cos * x[..., t, i] - sin * x[..., t, i + K // 2]
            result[..., t, i + K // 2] = sin * x[..., t, i] + cos * x[..., t, i + K // 2]
    return result


MISTAKES = [
    Mistake(
        "adjacent channels paired, not halves",
        "Channels 2i and 2i + 1 are rotated together here: the interleaved layout. The task asks for the half layout, "
        "which pairs channel i with channel i + K/2; weights trained for one layout are wrong in the other.",
        {"rotate": _interleaved},
    ),
    Mistake(
        "two layouts mixed",
        "The angles are repeated for adjacent channels (θ0, θ0, θ1, θ1) but the pairs are halves, so the two channels "
        "of a pair are rotated by different angles. Repeat the whole list of angles: θ0, θ1, θ0, θ1.",
        {"rotate": _layouts_mixed},
    ),
    Mistake(
        "rotated in the wrong direction",
        "The signs of the sines are swapped, so this rotates by -θ. Use a cos θ - b sin θ and b cos θ + a sin θ.",
        {"rotate": _other_way},
    ),
    Mistake(
        "positions counted from 1",
        "The first token is rotated although it is at position 0, where the angle is 0. Row t is at position start + "
        "t.",
        {"rotate": _from_one},
    ),
    Mistake(
        "start ignored",
        "Every call begins at position 0 here, so a token that is processed with a cache is rotated as if it were the "
        "first of the text. Row t is at position start + t.",
        {"rotate": _start_ignored},
    ),
    Mistake(
        "the 2 of the exponent forgotten",
        "The frequencies are base^(-i/K) here, so the slowest pair is far too fast. Use base^(-2i/K): i numbers the "
        "pairs, K is the number of channels.",
        {"rotate": _slow_frequencies},
    ),
]
ALSO_RIGHT = [{"rotate": _complex_numbers}, {"rotate": _with_loops}]
