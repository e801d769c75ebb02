"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake


def _each_by_itself(parts, gain, bias, unembedding, token, eps):
    centered = parts - parts.mean(axis=-1, keepdims=True)
    part_sigmas = np.sqrt(parts.var(axis=-1, keepdims=True) + eps)
    return centered / part_sigmas * gain @ unembedding[:, token], float(bias @ unembedding[:, token])


def _mean_left(parts, gain, bias, unembedding, token, eps):
    sigma = np.sqrt(parts.sum(axis=0).var() + eps)
    return parts / sigma * gain @ unembedding[:, token], float(bias @ unembedding[:, token])


def _mean_of_the_whole(parts, gain, bias, unembedding, token, eps):
    x = parts.sum(axis=0)
    return (parts - x.mean()) / np.sqrt(x.var() + eps) * gain @ unembedding[:, token], float(
        bias @ unembedding[:, token]
    )


def _no_norm(parts, gain, bias, unembedding, token, eps):
    return parts @ unembedding[:, token], float(bias @ unembedding[:, token])


def _no_gain(parts, gain, bias, unembedding, token, eps):
    sigma = np.sqrt(parts.sum(axis=0).var() + eps)
    centered = parts - parts.mean(axis=-1, keepdims=True)
    return centered / sigma @ unembedding[:, token], float(bias @ unembedding[:, token])


def _eps_outside(parts, gain, bias, unembedding, token, eps):
    sigma = parts.sum(axis=0).std() + eps
    centered = parts - parts.mean(axis=-1, keepdims=True)
    return centered / sigma * gain @ unembedding[:, token], float(bias @ unembedding[:, token])


def _bias_in_every_part(parts, gain, bias, unembedding, token, eps):
    sigma = np.sqrt(parts.sum(axis=0).var() + eps)
    centered = parts - parts.mean(axis=-1, keepdims=True)
    direction = unembedding[:, token]
    return (centered / sigma * gain + bias) @ direction, float(bias @ direction)


def _unbiased(parts, gain, bias, unembedding, token, eps):
    sigma = np.sqrt(parts.sum(axis=0).var(ddof=1) + eps)
    centered = parts - parts.mean(axis=-1, keepdims=True)
    return centered / sigma * gain @ unembedding[:, token], float(bias @ unembedding[:, token])


def _by_direction(parts, gain, bias, unembedding, token, eps):
    x = np.sum(parts, axis=0)
    read = gain * unembedding[:, token]
    read = (read - read.mean()) / np.sqrt(np.mean((x - x.mean()) ** 2) + eps)
    return parts @ read, float(np.dot(bias, unembedding[:, token]))


def _by_omission(parts, gain, bias, unembedding, token, eps):
    x = sum(parts)
    sigma = (x.var() + eps) ** 0.5

    def logit(stream):
        return float(((stream - stream.mean()) / sigma * gain) @ unembedding[:, token])

    contributions = [logit(part) for part in parts]
    constant = sum(b * u for b, u in zip(bias.tolist(), unembedding[:, token].tolist(), strict=True))
    return np.array(contributions), constant


MISTAKES = [
    Mistake(
        "each part normalized by itself",
        "Every part was divided by its own standard deviation, so a small part counts as much as a large one, and the "
        "sum is not the logit. Use σ of the whole stream for all parts.",
        {"attribution": _each_by_itself},
    ),
    Mistake(
        "the mean is not subtracted",
        "LayerNorm subtracts the mean over the channels. Subtract from each part its own mean. (RMSNorm subtracts no "
        "mean.)",
        {"attribution": _mean_left},
    ),
    Mistake(
        "the stream's mean subtracted from every part",
        "The mean of the stream is the sum of the means of the parts. If you subtract it from each part, it is counted "
        "N times: subtract from each part its own mean.",
        {"attribution": _mean_of_the_whole},
    ),
    Mistake(
        "the final norm is left out",
        "The output layer reads the stream after the norm, not before it. Center each part, divide by σ and multiply "
        "by the gain.",
        {"attribution": _no_norm},
    ),
    Mistake(
        "the gain is left out",
        "The norm multiplies each channel by a gain before the output layer. Multiply by the gain before the dot "
        "product.",
        {"attribution": _no_gain},
    ),
    Mistake(
        "eps outside the root",
        "σ is the root of the variance plus eps, not the root plus eps. If the variance is small, the two differ a "
        "lot.",
        {"attribution": _eps_outside},
    ),
    Mistake(
        "the bias in every part",
        "The norm adds its bias once, not once per part. The bias is a separate contribution.",
        {"attribution": _bias_in_every_part},
    ),
    Mistake(
        "the variance divided by D - 1",
        "LayerNorm's variance is the mean of the squares: divide by D, which is NumPy's default.",
        {"attribution": _unbiased},
    ),
]
ALSO_RIGHT = [{"attribution": _by_direction}, {"attribution": _by_omission}]
