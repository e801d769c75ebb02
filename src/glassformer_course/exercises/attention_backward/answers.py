"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake
from glassformer_course.exercises.attention_backward.task import causal_weights


def _softmax_backward(dweights, weights):
    return weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))


def _diagonal_only(dweights, weights):
    return dweights * weights * (1 - weights)


def _first_axis(dweights, weights):
    return weights * (dweights - (weights * dweights).sum(axis=0, keepdims=True))


def _unweighted_mean(dweights, weights):
    return weights * (dweights - dweights.mean(axis=-1, keepdims=True))


def _through(dy, q, k, v, softmax_backward):
    weights = causal_weights(q, k)
    dscores = softmax_backward(dy @ v.T, weights) / np.sqrt(q.shape[1])
    return dscores @ k, dscores.T @ q, weights.T @ dy


def _attention_by_diagonal(dy, q, k, v):
    return _through(dy, q, k, v, _diagonal_only)


def _attention_by_first_axis(dy, q, k, v):
    return _through(dy, q, k, v, _first_axis)


def _attention_by_mean(dy, q, k, v):
    return _through(dy, q, k, v, _unweighted_mean)


def _no_scale(dy, q, k, v):
    weights = causal_weights(q, k)
    dscores = _softmax_backward(dy @ v.T, weights)
    return dscores @ k, dscores.T @ q, weights.T @ dy


def _dk_not_transposed(dy, q, k, v):
    weights = causal_weights(q, k)
    dscores = _softmax_backward(dy @ v.T, weights) / np.sqrt(q.shape[1])
    return dscores @ k, dscores @ q, weights.T @ dy


def _dv_not_transposed(dy, q, k, v):
    weights = causal_weights(q, k)
    dscores = _softmax_backward(dy @ v.T, weights) / np.sqrt(q.shape[1])
    return dscores @ k, dscores.T @ q, weights @ dy


def _softmax_forgotten(dy, q, k, v):
    dscores = np.tril(dy @ v.T) / np.sqrt(q.shape[1])
    return dscores @ k, dscores.T @ q, causal_weights(q, k).T @ dy


def _by_jacobians(dweights, weights):
    size = len(weights)
    jacobians = np.einsum("tj,ji->tji", weights, np.eye(size)) - np.einsum("tj,ti->tji", weights, weights)
    return np.einsum("tj,tji->ti", dweights, jacobians)


def _attention_with_loops(dy, q, k, v):
    weights = causal_weights(q, k)
    scale = q.shape[1] ** -0.5
    dq = np.zeros(q.shape)
    dk = np.zeros(k.shape)
    dv = np.zeros(v.shape)
    for t in range(len(q)):
        dweights = [dy[t] @ v[s] for s in range(t + 1)]
        mean = sum(weights[t, s] * dweights[s] for s in range(t + 1))
        for s in range(t + 1):
            dscore = weights[t, s] * (dweights[s] - mean) * scale
            dq[t] += dscore * k[s]
            dk[s] += dscore * q[t]
            dv[s] += weights[t, s] * dy[t]
    return dq, dk, dv


def _by_columns(dweights, weights):
    result = weights * dweights
    return result - weights * np.sum(result, axis=1)[:, None]


def _attention_by_output(dy, q, k, v):
    """Compute the row sums Σ_s A dA from the outputs as y · dy, as fused kernels do."""
    weights = causal_weights(q, k)
    scale = 1 / np.sqrt(q.shape[1])
    mean = ((weights @ v) * dy).sum(axis=1, keepdims=True)
    dscores = weights * (dy @ v.T - mean)
    return np.einsum("ts,sd->td", dscores, k) * scale, np.einsum("ts,td->sd", dscores, q) * scale, weights.T @ dy


MISTAKES = [
    Mistake(
        "only the diagonal of softmax's derivative",
        "a (1 - a) is the derivative of a weight with respect to its own score, but each score of a row changes every "
        "weight of the row. Subtract the row's weighted mean: a · (da - Σ a · da).",
        {"softmax_backward": _diagonal_only, "attention_backward": _attention_by_diagonal},
    ),
    Mistake(
        "sum over the wrong axis",
        "The softmax is over each row, so the sum Σ a · da is over the row too: axis=-1, not axis=0.",
        {"softmax_backward": _first_axis, "attention_backward": _attention_by_first_axis},
    ),
    Mistake(
        "plain mean instead of the weighted one",
        "Subtract Σ a · da, the mean of da weighted by the attention weights, not da.mean().",
        {"softmax_backward": _unweighted_mean, "attention_backward": _attention_by_mean},
    ),
    Mistake(
        "1/√d forgotten on the way back",
        "The scores are divided by √d, so the gradients of q and k must be divided by √d too (once each).",
        {"attention_backward": _no_scale},
    ),
    Mistake(
        "gradient of k not transposed",
        "Key s gets a gradient from every query that attends to it: sum over queries, dscores.T @ q.",
        {"attention_backward": _dk_not_transposed},
    ),
    Mistake(
        "gradient of v not transposed",
        "Value s gets a gradient from every token that attends to it: sum over tokens, weights.T @ dy.",
        {"attention_backward": _dv_not_transposed},
    ),
    Mistake(
        "softmax's derivative forgotten",
        "dy vᵀ is the gradient of the weights, not of the scores. Apply softmax_backward to it first.",
        {"attention_backward": _softmax_forgotten},
    ),
]
ALSO_RIGHT = [
    {"softmax_backward": _by_jacobians, "attention_backward": _attention_with_loops},
    {"softmax_backward": _by_columns, "attention_backward": _attention_by_output},
]
