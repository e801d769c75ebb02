"""Known mistakes, and alternative correct solutions."""

import math

import numpy as np

from glassformer_course.cases import Mistake


def _softmax(scores, axis=-1):
    powers = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def _unscaled(Q, K, V):
    weights = _softmax(Q @ K.T)
    return weights @ V, weights


def _by_width(Q, K, V):
    weights = _softmax(Q @ K.T / Q.shape[-1])
    return weights @ V, weights


def _by_values(Q, K, V):
    weights = _softmax(Q @ K.T / np.sqrt(V.shape[-1]))
    return weights @ V, weights


def _by_keys(Q, K, V):
    weights = _softmax(Q @ K.T / np.sqrt(len(K)))
    return weights @ V, weights


def _times_root(Q, K, V):
    weights = _softmax(Q @ K.T * np.sqrt(Q.shape[-1]))
    return weights @ V, weights


def _over_queries(Q, K, V):
    weights = _softmax(Q @ K.T / np.sqrt(Q.shape[-1]), axis=0)
    return weights @ V, weights


def _scaled_late(Q, K, V):
    weights = _softmax(Q @ K.T) / np.sqrt(Q.shape[-1])
    return weights @ V, weights


def _no_maximum(Q, K, V):
    powers = np.exp(Q @ K.T / np.sqrt(Q.shape[-1]))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return weights @ V, weights


def _exchanged(Q, K, V):
    weights = _softmax(Q @ K.T / np.sqrt(Q.shape[-1]))
    return weights, weights @ V


def _query_by_query(Q, K, V):
    output = np.zeros((len(Q), V.shape[1]))
    weights = np.zeros((len(Q), len(K)))
    for t, query in enumerate(Q):
        scores = [math.fsum(query * key) / math.sqrt(len(query)) for key in K]
        powers = [math.exp(score - max(scores)) for score in scores]
        for s, power in enumerate(powers):
            weights[t, s] = power / sum(powers)
            output[t] += weights[t, s] * V[s]
    return output, weights


def _running(Q, K, V):
    """Process the keys one by one with a running maximum and sum, as fused kernels do."""
    Q = Q / Q.shape[-1] ** 0.5
    highest = np.full((len(Q), 1), -np.inf)
    total = np.zeros((len(Q), 1))
    mixed = np.zeros((len(Q), V.shape[1]))
    for key, value in zip(K, V, strict=True):
        scores = (Q @ key)[:, None]
        higher = np.maximum(highest, scores)
        rescale = np.exp(highest - higher)
        power = np.exp(scores - higher)
        highest = higher
        total = total * rescale + power
        mixed = mixed * rescale + power * value
    return mixed / total, np.exp(np.einsum("td,sd->ts", Q, K) - highest) / total


MISTAKES = [
    Mistake(
        "the scale is missing",
        "Scores are sums of d_k products, so they grow with √d_k and the softmax puts nearly all weight on one key. "
        "Divide the scores by √d_k.",
        {"attention": _unscaled},
    ),
    Mistake(
        "divided by d_k, not by its root",
        "The scores' standard deviation grows with the root of d_k. Divide by np.sqrt(d_k).",
        {"attention": _by_width},
    ),
    Mistake(
        "the root of the wrong width",
        "The scale depends on the number of products summed in a score: d_k, the width of queries and keys, not d_v.",
        {"attention": _by_values},
    ),
    Mistake(
        "the root of the number of keys",
        "The scale is the root of d_k, the last axis of Q. The softmax already accounts for the number of keys.",
        {"attention": _by_keys},
    ),
    Mistake(
        "multiplied by the root",
        "Scores must become smaller: divide by √d_k.",
        {"attention": _times_root},
    ),
    Mistake(
        "softmax over the queries",
        "The columns sum to 1 here, so queries compete for a key. The weights of each query must sum to 1: axis=-1.",
        {"attention": _over_queries},
    ),
    Mistake(
        "scaled after the softmax",
        "The rows of A no longer sum to 1. The scale belongs to the scores, before the softmax.",
        {"attention": _scaled_late},
    ),
    Mistake(
        "no maximum subtracted",
        "exp of a score above 709 is infinite. Subtract each row's maximum before the exponential.",
        {"attention": _no_maximum},
    ),
    Mistake(
        "output and weights are swapped",
        "The output comes first, the weights second: return weights @ V, weights.",
        {"attention": _exchanged},
    ),
]
ALSO_RIGHT = [{"attention": _query_by_query}, {"attention": _running}]
