"""Known mistakes, and alternative correct solutions."""

import math

import numpy as np

from glassformer_course.cases import Mistake


def _losses(logits, targets):
    counted = targets != -100
    rows = logits[counted] - logits[counted].max(axis=-1, keepdims=True)
    log_p = rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))
    return -log_p[np.arange(len(rows)), targets[counted]]


def _loss(logits, targets):
    losses = _losses(logits, targets)
    return float(losses.mean()) if len(losses) else 0.0


def _with_perplexity(loss):
    return {"cross_entropy": loss, "perplexity": lambda logits, targets: float(np.exp(loss(logits, targets)))}


def _over_all(logits, targets):
    return float(_losses(logits, targets).sum() / targets.size)


def _index_of_100(logits, targets):
    rows = logits.reshape(-1, logits.shape[-1])
    flat_targets = targets.reshape(-1)
    shifted = rows - rows.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return float(-log_p[np.arange(len(flat_targets)), flat_targets].mean())


def _overflows(logits, targets):
    counted = targets != -100
    if not counted.any():
        return 0.0
    powers = np.exp(logits[counted])
    probabilities = powers / powers.sum(axis=-1, keepdims=True)
    return float(-np.log(probabilities[np.arange(counted.sum()), targets[counted]]).mean())


def _bits(logits, targets):
    return _loss(logits, targets) / math.log(2)


def _summed(logits, targets):
    return float(_losses(logits, targets).sum())


def _nothing_counted(logits, targets):
    losses = _losses(logits, targets)
    return float(np.sum(losses) / np.float64(len(losses)))


def _mean_of_powers(logits, targets):
    losses = _losses(logits, targets)
    return float(np.exp(losses).mean()) if len(losses) else 1.0


def _power_of_two(logits, targets):
    return 2.0 ** _loss(logits, targets)


def _with_loops(logits, targets):
    total = 0.0
    positions = 0
    for row, target in zip(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), strict=True):
        if target != -100:
            total += math.log(sum(math.exp(logit - max(row)) for logit in row)) + max(row) - row[target]
            positions += 1
    return total / max(positions, 1)


def _with_weights(logits, targets):
    counted = (targets != -100).astype(float)
    valid_targets = np.where(targets == -100, 0, targets)
    log_sums = np.logaddexp.reduce(logits, axis=-1)
    picked = np.take_along_axis(logits, valid_targets[..., None], axis=-1)[..., 0]
    losses = np.where(counted > 0, log_sums - picked, 0.0)
    return float((losses * counted).sum() / max(counted.sum(), 1.0))


MISTAKES = [
    Mistake(
        "divided by all positions",
        "The positions with target -100 are included in the divisor, so padding makes the loss look smaller. Divide by "
        "the number of positions that count.",
        _with_perplexity(_over_all),
    ),
    Mistake(
        "-100 is used as an index",
        "-100 is not a token: it marks positions that do not count. Remove these positions before you pick the logits "
        "of the targets.",
        _with_perplexity(_index_of_100),
    ),
    Mistake(
        "softmax without its maximum",
        "exp of a large logit is infinite, and so is the logarithm of a probability that has been rounded to 0. "
        "Subtract the largest logit first, and take the logarithm of the sum, not of the probability.",
        _with_perplexity(_overflows),
    ),
    Mistake(
        "logarithm to the base 2",
        "This is the loss in bits. For nats, use the natural logarithm: np.log, not np.log2.",
        _with_perplexity(_bits),
    ),
    Mistake(
        "the sum instead of the mean",
        "A sum grows with the length of the text. Divide by the number of positions that count.",
        _with_perplexity(_summed),
    ),
    Mistake(
        "0 / 0 where no position counts",
        "A batch of padding alone gives NaN here, and one NaN ruins a training run. Return 0.0 if no position counts.",
        _with_perplexity(_nothing_counted),
    ),
    Mistake(
        "mean of the powers",
        "Perplexity is e to the power of the mean loss: first the mean, then the power.",
        {"perplexity": _mean_of_powers},
    ),
    Mistake(
        "a power of 2 for a loss in nats",
        "A loss in bits needs a power of 2, a loss in nats a power of e. The loss here is in nats: np.exp.",
        {"perplexity": _power_of_two},
    ),
]
ALSO_RIGHT = [_with_perplexity(_with_loops), _with_perplexity(_with_weights)]
