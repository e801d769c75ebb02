"""Known mistakes, and alternative correct solutions."""

import math

import numpy as np

from glassformer_course.cases import Mistake
from glassformer_course.exercises.training_loop.task import backward, clip, forward, loss_and_gradients


def _loss_and_gradients(weights, inputs, targets, positions):
    """Return loss and gradients, with the gradient of the logits divided by `positions`."""
    logits, kept = forward(weights, inputs)
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    hit = np.eye(logits.shape[-1])[targets]
    with np.errstate(all="ignore"):
        loss = -np.log((p * hit).sum(axis=-1)).mean()
    return float(loss), backward((p - hit) / positions, kept)


def _not_shifted(weights, rows):
    inputs = rows[:, :-1]
    return _loss_and_gradients(weights, inputs, inputs, inputs.size)


def _backwards_in_time(weights, rows):
    return _loss_and_gradients(weights, rows[:, 1:], rows[:, :-1], rows[:, 1:].size)


def _not_averaged(weights, rows):
    return _loss_and_gradients(weights, rows[:, :-1], rows[:, 1:], 1)


def _averaged_over_rows(weights, rows):
    return _loss_and_gradients(weights, rows[:, :-1], rows[:, 1:], len(rows))


def _each_alone(gradients, max_norm):
    norms = {name: np.linalg.norm(gradient) for name, gradient in gradients.items()}
    return {name: gradient * max_norm / max(norms[name], max_norm) for name, gradient in gradients.items()}


def _each_number(gradients, max_norm):
    return {name: np.clip(gradient, -max_norm, max_norm) for name, gradient in gradients.items()}


def _always_scaled(gradients, max_norm):
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
    return {name: gradient * (max_norm / norm) for name, gradient in gradients.items()}


def _loop(compute, limit):
    """Return a correct `train` that uses the given loss and clipping functions."""

    def train(weights, rows, steps, rate, max_norm):
        losses = []
        for _ in range(steps):
            loss, gradients = compute(weights, rows)
            gradients = limit(gradients, max_norm)
            weights = {name: weights[name] - rate * gradients[name] for name in weights}
            losses.append(loss)
        return weights, losses

    return train


def _gradients_kept(weights, rows, steps, rate, max_norm):
    losses = []
    total = {name: np.zeros_like(weight) for name, weight in weights.items()}
    for _ in range(steps):
        loss, gradients = loss_and_gradients(weights, rows)
        total = {name: total[name] + gradients[name] for name in weights}
        clipped = clip(total, max_norm)
        weights = {name: weights[name] - rate * clipped[name] for name in weights}
        losses.append(loss)
    return weights, losses


def _uphill(weights, rows, steps, rate, max_norm):
    return _loop(loss_and_gradients, clip)(weights, rows, steps, -rate, max_norm)


def _clip_forgotten(weights, rows, steps, rate, max_norm):
    return _loop(loss_and_gradients, lambda gradients, _: gradients)(weights, rows, steps, rate, max_norm)


def _in_place(weights, rows, steps, rate, max_norm):
    losses = []
    for _ in range(steps):
        loss, gradients = loss_and_gradients(weights, rows)
        gradients = clip(gradients, max_norm)
        for name in weights:
            weights[name] -= rate * gradients[name]
        losses.append(loss)
    return weights, losses


def _by_positions(weights, rows):
    logits, kept = forward(weights, rows[:, :-1])
    total = 0.0
    dlogits = np.zeros_like(logits)
    positions = rows[:, 1:].size
    for b, t in np.ndindex(logits.shape[:2]):
        z = logits[b, t]
        target = rows[b, t + 1]
        largest = max(z)
        log_sum = largest + math.log(sum(math.exp(each - largest) for each in z))
        total += log_sum - z[target]
        dlogits[b, t] = np.exp(z - log_sum)
        dlogits[b, t, target] -= 1
    return float(total / positions), backward(dlogits / positions, kept)


def _clip_by_branches(gradients, max_norm):
    norm = np.linalg.norm(np.concatenate([gradient.ravel() for gradient in gradients.values()]))
    if norm <= max_norm:
        return dict(gradients)
    return {name: gradient / norm * max_norm for name, gradient in gradients.items()}


def _train_on_copies(weights, rows, steps, rate, max_norm):
    losses = []
    mine = {name: weight.copy() for name, weight in weights.items()}
    for _ in range(steps):
        loss, gradients = _by_positions(mine, rows)
        losses.append(loss)
        for name, gradient in _clip_by_branches(gradients, max_norm).items():
            mine[name] -= rate * gradient
    return mine, losses


def _with_log_sum_exp(weights, rows):
    inputs = rows[:, :-1]
    targets = rows[:, 1:]
    logits, kept = forward(weights, inputs)
    log_sums = np.logaddexp.reduce(logits, axis=-1)
    hits = targets[..., None] == np.arange(logits.shape[-1])
    loss = np.mean(log_sums - logits[hits].reshape(targets.shape))
    return float(loss), backward((np.exp(logits - log_sums[..., None]) - hits) / hits.sum(), kept)


MISTAKES = [
    Mistake(
        "targets not shifted",
        "The target is the token that the model has just read, so it learns to copy. The target at position t is token "
        "t + 1: targets = rows[:, 1:].",
        {"loss_and_gradients": _not_shifted, "train": _loop(_not_shifted, clip)},
    ),
    Mistake(
        "shifted the wrong way",
        "The model reads the next token and predicts the one before it. Inputs are rows[:, :-1], targets rows[:, 1:].",
        {"loss_and_gradients": _backwards_in_time, "train": _loop(_backwards_in_time, clip)},
    ),
    Mistake(
        "gradient not averaged",
        "The loss is a mean over all positions, so divide p - onehot by their number. Otherwise, longer rows and "
        "larger batches give larger steps.",
        {"loss_and_gradients": _not_averaged, "train": _loop(_not_averaged, clip)},
    ),
    Mistake(
        "gradient averaged over rows only",
        "The loss is a mean over all B · T positions, not over B rows: divide by the number of targets.",
        {"loss_and_gradients": _averaged_over_rows, "train": _loop(_averaged_over_rows, clip)},
    ),
    Mistake(
        "each array clipped by itself",
        "This changes the direction of the step: large gradients shrink but small ones do not. Compute one norm over "
        "all arrays and multiply them by one factor.",
        {"clip": _each_alone, "train": _loop(loss_and_gradients, _each_alone)},
    ),
    Mistake(
        "each number clipped by itself",
        "np.clip limits single numbers and changes the direction of the step. Multiply all numbers by one factor, "
        "max_norm / norm.",
        {"clip": _each_number, "train": _loop(loss_and_gradients, _each_number)},
    ),
    Mistake(
        "small gradients scaled up",
        "Every step has the maximum norm here, so training never converges, and a gradient of 0 gives 0 / 0. The "
        "factor is max_norm / norm only if the norm is larger than max_norm, else 1.",
        {"clip": _always_scaled, "train": _loop(loss_and_gradients, _always_scaled)},
    ),
    Mistake(
        "gradients not reset",
        "The gradients accumulate: each step uses the sum of all gradients so far. Use only the new gradients at "
        "every step (in PyTorch: zero_grad).",
        {"train": _gradients_kept},
    ),
    Mistake(
        "steps uphill",
        "The gradient points in the direction of a larger loss. Step against it: w - rate · g.",
        {"train": _uphill},
    ),
    Mistake(
        "clip never called",
        "The gradients are used without clipping. Call clip before the step.",
        {"train": _clip_forgotten},
    ),
    Mistake(
        "weights changed in place",
        "The caller's arrays were changed, so the caller cannot train again from the same start. Create new arrays: "
        "w - rate · g, not w -= rate · g.",
        {"train": _in_place},
    ),
]
ALSO_RIGHT = [
    {"loss_and_gradients": _by_positions, "clip": _clip_by_branches, "train": _train_on_copies},
    {"loss_and_gradients": _with_log_sum_exp, "train": _loop(_with_log_sum_exp, clip)},
]
