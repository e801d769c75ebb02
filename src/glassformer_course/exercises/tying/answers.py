"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake


def _look_up(ids, dx, table):
    gradient = np.zeros(table.shape)
    np.add.at(gradient, ids, dx)
    return gradient


def _output_only(ids, h, dlogits, dx, table):
    return dlogits.T @ h


def _look_up_only(ids, h, dlogits, dx, table):
    return _look_up(ids, dx, table)


def _repeats_lost(ids, h, dlogits, dx, table):
    gradient = dlogits.T @ h
    gradient[ids] += dx
    return gradient


def _averaged(ids, h, dlogits, dx, table):
    return (dlogits.T @ h + _look_up(ids, dx, table)) / 2


def _overwritten(ids, h, dlogits, dx, table):
    gradient = dlogits.T @ h
    for position, token in enumerate(ids):
        gradient[token] = dx[position]
    return gradient


def _cosines(h, table):
    return h @ (table / np.linalg.norm(table, axis=1, keepdims=True)).T


def _scaled(h, table):
    return h @ table.T / np.sqrt(h.shape[1])


def _logits_by_einsum(h, table):
    return np.einsum("td,vd->tv", h, table)


def _backward_by_one_hot(ids, h, dlogits, dx, table):
    one_hot = np.eye(len(table))[ids]
    return np.concatenate([dlogits, one_hot]).T @ np.concatenate([h, dx])


def _logits_with_loops(h, table):
    return np.array([[float(sum(a * b for a, b in zip(row, entry, strict=True))) for entry in table] for row in h])


def _backward_with_loops(ids, h, dlogits, dx, table):
    gradient = np.zeros_like(table)
    for t, token in enumerate(ids):
        gradient[token] += dx[t]
        for v in range(len(table)):
            gradient[v] += dlogits[t, v] * h[t]
    return gradient


MISTAKES = [
    Mistake(
        "logits divided by √D",
        "This scale belongs to the scores of attention. The output layer is only a matrix multiplication: logits = h "
        "Eᵀ.",
        {"tied_logits": _scaled},
    ),
    Mistake(
        "rows scaled to length 1",
        "The logits are dot products, not cosine similarities: the length of a row affects the logit of its token.",
        {"tied_logits": _cosines},
    ),
    Mistake(
        "only the output's gradient",
        "The table is used at the input too: row id_t also gets dx_t. Add it for every position t.",
        {"tied_backward": _output_only},
    ),
    Mistake(
        "only the look-up's gradient",
        "The table is the output layer too: every row also gets its column of dlogits times h. Add dlogitsᵀ h.",
        {"tied_backward": _look_up_only},
    ),
    Mistake(
        "repeated ids counted once",
        "gradient[ids] += dx keeps only the last dx of each id. Add them all: np.add.at(gradient, ids, dx).",
        {"tied_backward": _repeats_lost},
    ),
    Mistake(
        "average of the two gradients",
        "A weight that is used twice gets the sum of both gradients (the chain rule), not their mean.",
        {"tied_backward": _averaged},
    ),
    Mistake(
        "one gradient overwrites the other",
        "The rows that were looked up lost their gradient from the output layer. Add to them instead of replacing "
        "them.",
        {"tied_backward": _overwritten},
    ),
]
ALSO_RIGHT = [
    {"tied_logits": _logits_by_einsum, "tied_backward": _backward_by_one_hot},
    {"tied_logits": _logits_with_loops, "tied_backward": _backward_with_loops},
]
