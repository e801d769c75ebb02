"""Reference functions and test cases for `cross_entropy` and `perplexity`."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, fsum, log

import numpy as np

from glassformer.numpy_reference.arrays import Array, Ints
from glassformer.numpy_reference.loss import IGNORED
from glassformer_course.cases import Case, call
from glassformer_course.drawing import Panel, Picture


def cross_entropy(logits: Array, targets: Ints) -> float:
    """Return the mean loss in nats over the positions that count: (..., V), (...) -> float."""
    losses = [
        _surprise(logits[position], int(targets[position]))
        for position in np.ndindex(targets.shape)
        if targets[position] != IGNORED
    ]
    return fsum(losses) / len(losses) if losses else 0.0


def perplexity(logits: Array, targets: Ints) -> float:
    """Return e to the power of the cross-entropy: (..., V), (...) -> float."""
    return exp(cross_entropy(logits, targets))


def _surprise(logits: Array, target: int) -> float:
    """Return -ln p of the target: (V,) -> float. Subtracting the largest logit changes no probability."""
    highest = float(logits.max())
    return log(fsum(exp(float(logit) - highest) for logit in logits)) - (float(logits[target]) - highest)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases with one or two axes of targets, ignored positions, and equal, large or infinite logits."""
    hand = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]))
    yield call("cross_entropy", hand, np.array([0, 1]), note="where the probabilities are 1/2 and 1/10")
    for shape in [(5,), (1,), (2, 3)]:
        targets = rng.integers(7, size=shape)
        yield call("cross_entropy", rng.normal(size=(*shape, 7)) * 2, targets, note="where every position counts")
    yield call("cross_entropy", np.full((3, 5), 0.7), np.array([0, 2, 4]), note="where all 5 logits are equal: ln 5")
    yield call("perplexity", np.full((3, 5), 0.7), np.array([0, 2, 4]), note="where all 5 logits are equal: 5")
    yield call("perplexity", rng.normal(size=(7, 5)) * 2, rng.integers(5, size=7), note="where losses differ")
    for ignored in (1, 3):
        targets = rng.integers(11, size=(2, 5))
        targets[:, -ignored:] = IGNORED
        logits = rng.normal(size=(2, 5, 11))
        yield call("cross_entropy", logits, targets, note="where each row ends with positions that do not count")
        yield call("perplexity", logits, targets, note="where each row ends with positions that do not count")
    scattered = np.where(rng.random(13) < 0.4, IGNORED, rng.integers(5, size=13))
    scattered[:2] = IGNORED, 4
    yield call("cross_entropy", rng.normal(size=(13, 5)), scattered, note="where some positions do not count")
    high = rng.normal(size=(3, 5)) + np.array([[10_000.0], [-10_000.0], [0.0]])
    yield call("cross_entropy", high, np.array([0, 1, 2]), note="where logits are about 10,000, -10,000 and 0")
    sure = np.array([[1000.0, 0.0, -1000.0]] * 2)
    yield call(
        "cross_entropy", sure, np.array([0, 2]), note="where the model is certain, and wrong once: losses 0 and 2,000"
    )
    impossible = rng.normal(size=(3, 5))
    impossible[:, 1] = -np.inf
    yield call(
        "cross_entropy", impossible, np.array([0, 2, 4]), note="where one token is impossible: its logit is -inf"
    )
    nothing = np.full((2, 3), IGNORED)
    yield call("cross_entropy", rng.normal(size=(2, 3, 5)), nothing, note="where no position counts: 0.0")
    yield call("perplexity", rng.normal(size=(2, 3, 5)), nothing, note="where no position counts: 1.0")
    yield call(
        "cross_entropy", np.zeros((2, 1)), np.array([0, 0]), note="where the vocabulary has only one token: loss 0"
    )


def picture() -> Picture:
    """Draw the losses of a model at three positions, of which the last does not count."""
    logits = np.array([[0.0, 3.0, 1.0], [1.0, 0.0, 2.0], [2.0, 2.0, 2.0]])
    targets = np.array([1, 0, IGNORED])
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    losses = [cross_entropy(logits[i : i + 1], targets[i : i + 1]) for i in range(2)] + [float("nan")]
    words = ["the", "cat", "sat"]
    positions = ["target cat", "target the", "padding"]
    mean = cross_entropy(logits, targets)
    return Picture(
        [
            Panel("logits", logits, positions, words),
            Panel("probabilities", shifted / shifted.sum(axis=-1, keepdims=True), columns=words),
            Panel("loss", np.array(losses)[:, None], columns=["nats"]),
        ],
        caption=f"The loss is -ln of the probability of the target. The mean of the two losses that count is "
        f"{mean:.3f} nats, a perplexity of {exp(mean):.2f}.",
    )
