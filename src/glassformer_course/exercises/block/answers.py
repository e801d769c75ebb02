"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake
from glassformer_course.exercises.block.task import attention, rms_norm


def _feedforward(x, weights):
    return np.maximum(x @ weights["up"], 0) @ weights["down"]


def _post_norm(x, weights):
    x = rms_norm(x + attention(x, weights), weights["attention_gain"])
    return rms_norm(x + _feedforward(x, weights), weights["feedforward_gain"])


def _no_residual(x, weights):
    x = attention(rms_norm(x, weights["attention_gain"]), weights)
    return _feedforward(rms_norm(x, weights["feedforward_gain"]), weights)


def _residual_of_normed(x, weights):
    x = rms_norm(x, weights["attention_gain"])
    x = x + attention(x, weights)
    x = rms_norm(x, weights["feedforward_gain"])
    return x + _feedforward(x, weights)


def _parallel(x, weights):
    attended = attention(rms_norm(x, weights["attention_gain"]), weights)
    return x + attended + _feedforward(rms_norm(x, weights["feedforward_gain"]), weights)


def _norm_of_output(x, weights):
    x = x + rms_norm(attention(x, weights), weights["attention_gain"])
    return x + rms_norm(_feedforward(x, weights), weights["feedforward_gain"])


def _one_gain(x, weights):
    x = x + attention(rms_norm(x, weights["attention_gain"]), weights)
    return x + _feedforward(rms_norm(x, weights["attention_gain"]), weights)


def _in_place(x, weights):
    x += attention(rms_norm(x, weights["attention_gain"]), weights)
    x += _feedforward(rms_norm(x, weights["feedforward_gain"]), weights)
    return x


def _linear(x, weights):
    return x @ weights["up"] @ weights["down"]


def _block_of_linear(x, weights):
    x = x + attention(rms_norm(x, weights["attention_gain"]), weights)
    return x + _linear(rms_norm(x, weights["feedforward_gain"]), weights)


def _feedforward_by_unit(x, weights):
    result = np.zeros(x.shape)
    for unit in range(weights["up"].shape[1]):
        fired = x @ weights["up"][:, unit]
        result += np.outer(fired * (fired > 0), weights["down"][unit])
    return result


def _block_as_a_sum(x, weights):
    terms = [x]
    parts = ((attention, "attention_gain"), (_feedforward_by_unit, "feedforward_gain"))
    for part, gain in parts:
        terms.append(part(rms_norm(sum(terms), weights[gain]), weights))
    return sum(terms)


def _feedforward_by_token(x, weights):
    rows = [np.where(row @ weights["up"] > 0, row @ weights["up"], 0.0) for row in x]
    return np.array([np.dot(row, weights["down"]) for row in rows])


def _block_by_token(x, weights):
    between = np.array(
        [x[t] + attention(rms_norm(x[: t + 1], weights["attention_gain"]), weights)[-1] for t in range(len(x))]
    )
    return between + _feedforward_by_token(rms_norm(between, weights["feedforward_gain"]), weights)


MISTAKES = [
    Mistake(
        "no ReLU between the matrices",
        "Without it, the two matrices are equivalent to one, and the layer is only a linear map. Take the maximum "
        "with 0 between them.",
        {"feedforward": _linear, "block": _block_of_linear},
    ),
    Mistake(
        "post-norm",
        "norm(x + f(x)) is the block of the original transformer: it normalizes the stream itself, and deep models "
        "are hard to train without warm-up. The task asks for x + f(norm(x)).",
        {"block": _post_norm},
    ),
    Mistake(
        "residual forgotten",
        "f(norm(x)) alone discards the content of the stream. Add it to x: x + f(norm(x)).",
        {"block": _no_residual},
    ),
    Mistake(
        "normalized copy added, not x",
        "The norm replaced x before the addition: norm(x) + f(norm(x)). Only f reads the normalized copy; add its "
        "output to x itself.",
        {"block": _residual_of_normed},
    ),
    Mistake(
        "norm of the output",
        "x + norm(f(x)) normalizes the output of f. Here the norm comes before f: x + f(norm(x)).",
        {"block": _norm_of_output},
    ),
    Mistake(
        "feed-forward reads the old stream",
        "Both layers read the input of the block (a parallel block). The feed-forward layer must read x after the "
        "output of attention was added.",
        {"block": _parallel},
    ),
    Mistake(
        "one gain for both norms",
        "Each norm has its own gain: attention_gain before attention, feedforward_gain before the feed-forward layer.",
        {"block": _one_gain},
    ),
    Mistake(
        "stream changed in place",
        "x += … changes the caller's array. Create a new one: x = x + ….",
        {"block": _in_place},
    ),
]
ALSO_RIGHT = [
    {"feedforward": _feedforward_by_unit, "block": _block_as_a_sum},
    {"feedforward": _feedforward_by_token, "block": _block_by_token},
]
