"""Known mistakes, and alternative correct solutions."""

import math

import numpy as np

from glassformer_course.cases import Mistake


def _hide(tokens, chosen, action, others, mask_id):
    inputs = np.where(chosen & (action < 0.8), mask_id, tokens)
    return np.where(chosen & (action >= 0.8) & (action < 0.9), others, inputs)


def _special_too(tokens, special, choose, action, others, mask_id):
    chosen = choose < 0.15
    return _hide(tokens, chosen, action, others, mask_id), np.where(chosen, tokens, -100)


def _labels_of_what_is_seen(tokens, special, choose, action, others, mask_id):
    chosen = (choose < 0.15) & ~special
    inputs = _hide(tokens, chosen, action, others, mask_id)
    return inputs, np.where(chosen, inputs, -100)


def _only_changed(tokens, special, choose, action, others, mask_id):
    inputs = _hide(tokens, (choose < 0.15) & ~special, action, others, mask_id)
    return inputs, np.where(inputs != tokens, tokens, -100)


def _only_masked(tokens, special, choose, action, others, mask_id):
    inputs = _hide(tokens, (choose < 0.15) & ~special, action, others, mask_id)
    return inputs, np.where((inputs == mask_id) & (choose < 0.15) & ~special, tokens, -100)


def _all_masked(tokens, special, choose, action, others, mask_id):
    chosen = (choose < 0.15) & ~special
    return np.where(chosen, mask_id, tokens), np.where(chosen, tokens, -100)


def _swapped_too_often(tokens, special, choose, action, others, mask_id):
    chosen = (choose < 0.15) & ~special
    inputs = np.where(chosen, np.where(action < 0.8, mask_id, others), tokens)
    return inputs, np.where(chosen, tokens, -100)


def _labels_everywhere(tokens, special, choose, action, others, mask_id):
    return _hide(tokens, (choose < 0.15) & ~special, action, others, mask_id), tokens.copy()


def _in_place(tokens, special, choose, action, others, mask_id):
    chosen = (choose < 0.15) & ~special
    labels = np.where(chosen, tokens, -100)
    tokens[:] = _hide(tokens, chosen, action, others, mask_id)
    return tokens, labels


def _losses(logits, labels):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return -logs[np.arange(len(labels)), np.where(labels == -100, 0, labels)]


def _over_all(logits, labels):
    return float(np.where(labels == -100, 0.0, _losses(logits, labels)).mean())


def _ignored_count(logits, labels):
    return float(_losses(logits, labels).mean())


def _with_loops(tokens, special, choose, action, others, mask_id):
    inputs = []
    labels = []
    for token, fixed, c, a, other in zip(tokens, special, choose, action, others, strict=True):
        chosen = c < 0.15 and not fixed
        labels.append(token if chosen else -100)
        inputs.append(token if not chosen or a >= 0.9 else mask_id if a < 0.8 else other)
    return np.array(inputs), np.array(labels)


def _by_positions(tokens, special, choose, action, others, mask_id):
    positions = np.flatnonzero((choose < 0.15) & np.logical_not(special))
    inputs = np.array(tokens)
    labels = np.full_like(tokens, -100)
    labels[positions] = tokens[positions]
    masked = positions[action[positions] < 0.8]
    unmasked = np.setdiff1d(positions, masked)
    swapped = unmasked[action[unmasked] < 0.9]
    inputs[masked] = mask_id
    inputs[swapped] = others[swapped]
    return inputs, labels


def _by_logsumexp(logits, labels):
    total = 0.0
    count = 0
    for row, label in zip(logits, labels, strict=True):
        if label >= 0:
            total += float(np.logaddexp.reduce(row) - row[label])
            count += 1
    return total / max(count, 1)


def _by_probabilities(logits, labels):
    rows = [position for position, label in enumerate(labels) if label != -100]
    if not rows:
        return 0.0
    return math.fsum(_losses(logits, labels)[rows].tolist()) / len(rows)


MISTAKES = [
    Mistake(
        "special tokens are chosen",
        "The begin, end and padding tokens are not text to predict. Leave them out: (choose < 0.15) & ~special.",
        {"hide": _special_too},
    ),
    Mistake(
        "the labels are the masked inputs",
        "The labels were taken after masking, so the model learns to predict [MASK]. Use the original tokens as "
        "labels.",
        {"hide": _labels_of_what_is_seen},
    ),
    Mistake(
        "unchanged tokens have no label",
        "A tenth of the chosen tokens stay the same, and are predicted too: otherwise the model learns that a visible "
        "token is always right. Every chosen token has a label, not only those that changed.",
        {"hide": _only_changed},
    ),
    Mistake(
        "only masked tokens have labels",
        "Chosen tokens that became another token or stayed the same must be predicted too. Every chosen token has a "
        "label.",
        {"hide": _only_masked},
    ),
    Mistake(
        "every chosen token is masked",
        "The model would then predict only at [MASK], which ordinary text does not contain. Only 80% are masked; 10% "
        "become another token, and 10% stay the same.",
        {"hide": _all_masked},
    ),
    Mistake(
        "no chosen token stays the same",
        "All chosen tokens that are not masked became another token: 80/20 instead of 80/10/10. From 0.9 on, a chosen "
        "token stays the same.",
        {"hide": _swapped_too_often},
    ),
    Mistake(
        "every token has a label",
        "Tokens that were not chosen are visible in the input: copying them is trivial, but they would be most of the "
        "loss. Their label is -100.",
        {"hide": _labels_everywhere},
    ),
    Mistake(
        "the text itself is changed",
        "tokens was overwritten, so the next epoch masks a text that is already masked. Work on a copy: tokens.copy().",
        {"hide": _in_place},
    ),
    Mistake(
        "divided by all positions",
        "The sum over the chosen tokens was divided by T, so the loss depends on how many tokens were chosen. Divide "
        "by the number of labels that are not -100.",
        {"loss": _over_all},
    ),
    Mistake(
        "positions without a label count",
        "-100 is not a token, but such positions still contributed a loss. Leave them out before you pick the "
        "log-probabilities.",
        {"loss": _ignored_count},
    ),
]
ALSO_RIGHT = [{"hide": _with_loops, "loss": _by_logsumexp}, {"hide": _by_positions, "loss": _by_probabilities}]
