"""Reference functions and test cases for `importance`, `remove` and `greedy`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from glassformer.base.wording import counted
from glassformer.numpy_reference.arrays import Array
from glassformer.numpy_reference.attention import attend, joined
from glassformer_course.cases import Case, Functions, call
from glassformer_course.drawing import Panel, Picture

Losses = dict[tuple[int, ...], float]


def importance(outputs: Array, gradients: Array) -> Array:
    """Return the mean absolute derivative of the loss with respect to each gate (Michel et al. 2019, section 4.1)."""
    N, H = outputs.shape[:2]
    total = np.zeros(H)
    for x in range(N):
        for h in range(H):
            total[h] += abs(float(np.vdot(outputs[x, h], gradients[x, h])))
    return total / N


def remove(
    w_query: Array, w_key: Array, w_value: Array, w_output: Array, heads: int, removed: Sequence[int]
) -> tuple[Array, Array, Array, Array]:
    """Return the four weights without the removed heads, by selecting the remaining heads along a separate axis."""
    D = w_query.shape[0]
    width = w_query.shape[1] // heads
    remaining = [h for h in range(heads) if h not in removed]
    columns = [w.reshape(D, heads, width)[:, remaining].reshape(D, -1) for w in (w_query, w_key, w_value)]
    rows = w_output.reshape(heads, width, -1)[remaining].reshape(-1, w_output.shape[1])
    return columns[0], columns[1], columns[2], rows


def greedy(losses: Losses, heads: int, count: int) -> list[int]:
    """Return the heads in order of removal; each step removes the head whose removal gives the lowest loss."""
    removed: list[int] = []
    while len(removed) < count:
        losses_after = {h: losses[tuple(sorted({*removed, h}))] for h in range(heads) if h not in removed}
        lowest = min(losses_after.values())
        removed.append(min(h for h, loss in losses_after.items() if loss == lowest))
    return removed


def gated(weights: Sequence[Array], x: Array, gates: Array) -> tuple[Array, Array]:
    """Compute causal multi-head attention with a gate on each head: (T, D) -> (T, D), outputs (H, T, d)."""
    heads = len(gates)
    q, k, v = ((x @ w).reshape(len(x), heads, -1).swapaxes(0, 1)[None] for w in weights[:3])  # (1, H, T, d)
    mixed, _ = attend(q, k, v, np.tri(len(x), dtype=np.bool_))
    return joined(mixed * gates[:, None, None])[0] @ weights[3], mixed[0]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases with derivatives that cancel, removal of several heads, and heads that replace each other."""
    outputs = np.array([[[[2.0]], [[1.0]]], [[[2.0]], [[3.0]]]])
    gradients = np.array([[[[1.0]], [[4.0]]], [[[-1.0]], [[0.0]]]])
    yield call("importance", outputs, gradients, note="where head 0 has the derivatives 2 and -2, head 1 has 4 and 0")
    two_positions = np.array([[[[1.0, 1.0], [1.0, 0.0]]]])
    yield call(
        "importance", two_positions, two_positions * [1, -1], note="where the channels of one head have opposite signs"
    )
    for N, H, T, d in [(1, 1, 1, 1), (3, 2, 5, 4), (7, 5, 2, 3), (11, 3, 4, 2)]:
        note = f"where (N, H, T, d) is ({N}, {H}, {T}, {d})"
        yield call("importance", rng.normal(size=(N, H, T, d)), rng.normal(size=(N, H, T, d)), note=note)
    for heads, d, D, removed in [
        (2, 1, 3, [0]),
        (3, 2, 5, [1]),
        (4, 3, 7, [3, 0]),
        (5, 2, 10, [4, 1, 2]),
        (3, 4, 5, []),
    ]:
        weights = _weights(rng, heads, d, D)
        numbers = ", ".join(map(str, removed))
        which = f"head {numbers} is" if len(removed) == 1 else f"heads {numbers} are" if removed else "no heads are"
        note = f"where there are {heads} heads with {counted(d, 'channels')} each, and {which} removed"
        yield call("remove", *weights, heads, removed, note=note)
        if len(removed) < heads:
            x = rng.normal(size=(4, D))
            yield Case(
                _same_as_gated(weights, heads, removed, x),
                f"{note}, and the result is the output of the attention",
                "remove",
            )
    yield call("remove", *_weights(rng, 2, 3, 4), 2, [0, 1], note="where no head is left")
    twins: Losses = {(): 1.0, (0,): 1.1, (1,): 1.2, (2,): 1.3, (0, 1): 3.0, (0, 2): 1.5, (1, 2): 1.6, (0, 1, 2): 4.0}
    yield call("greedy", twins, 3, 2, note="where heads 0 and 1 do the same: one can be removed, but not both")
    equal: Losses = {subset: 1.0 + len(subset) for n in range(4) for subset in combinations(range(3), n)}
    yield call("greedy", equal, 3, 3, note="where all heads have the same effect")
    yield call("greedy", twins, 3, 0, note="where no head is to be removed")
    for heads, count in [(4, 3), (5, 5), (6, 4)]:
        losses = {subset: float(rng.random()) for n in range(heads + 1) for subset in combinations(range(heads), n)}
        yield call(
            "greedy", losses, heads, count, note=f"where {count} of {heads} heads are removed and the losses are random"
        )


def _weights(rng: np.random.Generator, heads: int, d: int, D: int) -> tuple[Array, Array, Array, Array]:
    q, k, v = (rng.normal(size=(D, heads * d)) for _ in range(3))
    return q, k, v, rng.normal(size=(heads * d, D))


def _same_as_gated(
    weights: tuple[Array, Array, Array, Array], heads: int, removed: list[int], x: Array
) -> Callable[[Functions], Any]:
    def ask(functions: Functions) -> Array:
        smaller = functions.remove(*weights, heads, removed)
        with np.errstate(all="ignore"):  # a wrong answer may have no channels
            return gated(smaller, x, np.ones(heads - len(removed)))[0]

    return ask


def picture() -> Picture:
    """Draw made-up derivatives for four heads, and the importance of each head by two measures."""
    slopes = np.array([[0.9, 0.1, 0.5, 0.0], [1.1, 0.2, -0.5, 0.0], [0.7, 0.1, 0.5, 0.1], [0.8, 0.1, -0.5, 0.0]])
    names = [f"head {h}" for h in range(4)]
    texts = [f"text {n}" for n in range(1, 5)]
    importances = importance(slopes[:, :, None, None], np.ones((4, 4, 1, 1)))
    summed = np.abs(slopes.mean(axis=0))
    return Picture(
        [
            Panel("derivative of each text's loss", slopes, texts, names),
            Panel("importance", [importances, summed], ["mean of |derivative|", "|mean derivative|"], names),
        ],
        caption="Head 2 matters for every text, with both signs. The mean of the absolute values shows this; the "
        "absolute value of the mean is 0, so head 2 would be removed first.",
    )
