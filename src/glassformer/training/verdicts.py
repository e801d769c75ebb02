"""Describe the loss curve of a run in one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

NOISE = 0.003
"""Maximum relative change of the validation loss that counts as no change."""


def verdict(evaluations: Sequence[tuple[int, float]], vocab_size: int) -> str:
    """Return one sentence on the loss curve of a run, from (step, validation loss) pairs in order of steps.

    `vocab_size` is the number V of possible outcomes of a prediction; for a classifier, the number of labels.

    >>> verdict([(800, 1.60), (850, 1.55), (900, 1.58), (950, 1.66)], 65).partition(";")[0]
    'overfitting: the validation loss has risen since step 850, the best'
    """
    evaluations = [(step, loss) for step, loss in evaluations if math.isfinite(loss)]
    if len(evaluations) < 2:
        return "too few evaluations to judge"
    best_step, best = min(evaluations, key=lambda pair: pair[1])
    if evaluations[-1][1] > best * (1 + NOISE):
        remedy = "train again, with another --out, on more text or with a higher --model.dropout_residual"
        return f"overfitting: the validation loss has risen since step {best_step}, the best; {remedy}"
    before = evaluations[max(0, len(evaluations) - 3)][1]
    last_step, last = evaluations[-1]
    if before - last > NOISE * before:
        return f"still improving at step {last_step}: a longer run may do better"
    if best > 0.98 * math.log(vocab_size):
        return "not learning: the loss stays near ln V, the loss if all V possible outcomes were equally likely"
    return f"levelled off: hardly any gain since step {evaluations[max(0, len(evaluations) - 3)][0]}"
