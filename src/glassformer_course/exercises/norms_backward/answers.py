"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake


def _mean(x):
    return x.mean(axis=-1, keepdims=True)


def _sum(x):
    return x.reshape(-1, x.shape[-1]).sum(axis=0)


def _layer(x, epsilon):
    size = np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
    return (x - _mean(x)) / size, size


def _rms(x, epsilon):
    size = np.sqrt(_mean(x**2) + epsilon)
    return x / size, size


def _through_layer(dnormed, normed, size):
    return (dnormed - _mean(dnormed) - normed * _mean(dnormed * normed)) / size


def _through_rms(dnormed, normed, size):
    return (dnormed - normed * _mean(dnormed * normed)) / size


def _constant_statistics(dy, x, gain, epsilon):
    normed, size = _layer(x, epsilon)
    return dy * gain / size, _sum(dy * normed), _sum(dy)


def _constant_statistics_rms(dy, x, gain, epsilon):
    normed, size = _rms(x, epsilon)
    return dy * gain / size, _sum(dy * normed)


def _no_mean(dy, x, gain, epsilon):
    normed, size = _layer(x, epsilon)
    return _through_rms(dy * gain, normed, size), _sum(dy * normed), _sum(dy)


def _no_variance(dy, x, gain, epsilon):
    normed, size = _layer(x, epsilon)
    return (dy * gain - _mean(dy * gain)) / size, _sum(dy * normed), _sum(dy)


def _no_gain(dy, x, gain, epsilon):
    normed, size = _layer(x, epsilon)
    return _through_layer(dy, normed, size), _sum(dy * normed), _sum(dy)


def _no_gain_rms(dy, x, gain, epsilon):
    normed, size = _rms(x, epsilon)
    return _through_rms(dy, normed, size), _sum(dy * normed)


def _gain_by_x(dy, x, gain, epsilon):
    normed, size = _layer(x, epsilon)
    return _through_layer(dy * gain, normed, size), _sum(dy * x), _sum(dy)


def _gain_by_x_rms(dy, x, gain, epsilon):
    normed, size = _rms(x, epsilon)
    return _through_rms(dy * gain, normed, size), _sum(dy * x)


def _averaged(dy, x, gain, epsilon):
    normed, size = _layer(x, epsilon)
    vectors = dy.size / dy.shape[-1]
    return _through_layer(dy * gain, normed, size), _sum(dy * normed) / vectors, _sum(dy) / vectors


def _averaged_rms(dy, x, gain, epsilon):
    normed, size = _rms(x, epsilon)
    return _through_rms(dy * gain, normed, size), _sum(dy * normed) / (dy.size / dy.shape[-1])


def _jacobian(normed, size, centered):
    """Return the Jacobian ∂x̂/∂x of one vector: (D, D)."""
    D = len(normed)
    mean_matrix = np.ones((D, D)) / D if centered else np.zeros((D, D))
    return (np.eye(D) - mean_matrix - np.outer(normed, normed) / D) / size


def _by_jacobians(dy, x, gain, epsilon, statistics, centered):
    D = x.shape[-1]
    dx = np.zeros(x.shape)
    dgain = np.zeros(D)
    dbias = np.zeros(D)
    for position in np.ndindex(x.shape[:-1]):
        normed, size = statistics(x[position], epsilon)
        dx[position] = _jacobian(normed, size, centered).T @ (gain * dy[position])
        dgain += dy[position] * normed
        dbias += dy[position]
    return dx, dgain, dbias


def _layer_by_jacobians(dy, x, gain, epsilon):
    return _by_jacobians(dy, x, gain, epsilon, _layer, centered=True)


def _rms_by_jacobians(dy, x, gain, epsilon):
    return _by_jacobians(dy, x, gain, epsilon, _rms, centered=False)[:2]


def _layer_step_by_step(dy, x, gain, epsilon):
    centered = x - _mean(x)
    variance = _mean(centered**2)
    size = np.sqrt(variance + epsilon)
    dnormed = gain * dy
    dsize = -(dnormed * centered).sum(axis=-1, keepdims=True) / size**2
    dvariance = dsize / (2 * size)
    dcentred = dnormed / size + dvariance * 2 * centered / x.shape[-1]
    dx = dcentred - _mean(dcentred)
    return dx, _sum(dy * centered / size), _sum(dy)


def _rms_step_by_step(dy, x, gain, epsilon):
    size = np.sqrt(_mean(x**2) + epsilon)
    dsquare = -(gain * dy * x).sum(axis=-1, keepdims=True) / (2 * size**3)
    return gain * dy / size + dsquare * 2 * x / x.shape[-1], _sum(dy * x / size)


MISTAKES = [
    Mistake(
        "mean and size taken as constants",
        "dx = gain · dy / s ignores that μ and s depend on x. Two terms are missing: - mean(dx̂) and - x̂ · mean(dx̂ "
        "· x̂) (RMSNorm has only the second).",
        {"layer_norm_backward": _constant_statistics, "rms_norm_backward": _constant_statistics_rms},
    ),
    Mistake(
        "the path through the mean forgotten",
        "x̂ contains -μ, and μ depends on every x. LayerNorm's dx also needs the term - mean(dx̂); then it sums to 0.",
        {"layer_norm_backward": _no_mean},
    ),
    Mistake(
        "the path through the variance forgotten",
        "The size s depends on every x. LayerNorm's dx also needs the term - x̂ · mean(dx̂ · x̂).",
        {"layer_norm_backward": _no_variance},
    ),
    Mistake(
        "gain left out of dx",
        "y = gain · x̂, so the gradient of x̂ is dx̂ = gain · dy. Multiply by the gain before going through the norm.",
        {"layer_norm_backward": _no_gain, "rms_norm_backward": _no_gain_rms},
    ),
    Mistake(
        "gradient of the gain by x, not x̂",
        "The gain multiplies the normalized vector, so its gradient is the sum of dy · x̂, not of dy · x.",
        {"layer_norm_backward": _gain_by_x, "rms_norm_backward": _gain_by_x_rms},
    ),
    Mistake(
        "gradients of gain and bias averaged",
        "All vectors share one gain, so its gradient is the sum over them. If the loss is a mean, dy is already "
        "divided by their number.",
        {"layer_norm_backward": _averaged, "rms_norm_backward": _averaged_rms},
    ),
]
ALSO_RIGHT = [
    {"layer_norm_backward": _layer_by_jacobians, "rms_norm_backward": _rms_by_jacobians},
    {"layer_norm_backward": _layer_step_by_step, "rms_norm_backward": _rms_step_by_step},
]
