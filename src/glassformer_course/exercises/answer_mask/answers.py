"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake


def _parts(roles, messages, end):
    ids = [end]
    counts = [False]
    for role, message in zip(roles, messages, strict=True):
        ids += [*message, end]
        counts += [role == "assistant"] * (len(message) + 1)
    return np.array(ids, dtype=np.int64), np.array(counts, dtype=np.bool_)


def _mask_of_inputs(roles, messages, end):
    ids, counts = _parts(roles, messages, end)
    return ids[:-1], ids[1:], counts[:-1]


def _everything(roles, messages, end):
    ids, counts = _parts(roles, messages, end)
    return ids[:-1], ids[1:], np.ones(len(counts) - 1, dtype=np.bool_)


def _questions(roles, messages, end):
    ids, counts = _parts(roles, messages, end)
    return ids[:-1], ids[1:], ~counts[1:]


def _without_ends(roles, messages, end):
    ids = [end]
    counts = [False]
    for role, message in zip(roles, messages, strict=True):
        ids += [*message, end]
        counts += [role == "assistant"] * len(message) + [False]
    ids = np.array(ids, dtype=np.int64)
    return ids[:-1], ids[1:], np.array(counts[1:], dtype=np.bool_)


def _every_end(roles, messages, end):
    ids = [end]
    counts = [False]
    for role, message in zip(roles, messages, strict=True):
        ids += [*message, end]
        counts += [role == "assistant"] * len(message) + [True]
    ids = np.array(ids, dtype=np.int64)
    return ids[:-1], ids[1:], np.array(counts[1:], dtype=np.bool_)


def _one_end(roles, messages, end):
    ids = [end]
    counts = [False]
    for role, message in zip(roles, messages, strict=True):
        ids += message
        counts += [role == "assistant"] * len(message)
    ids = np.array([*ids, end], dtype=np.int64)
    counts = np.array([*counts, roles[-1] == "assistant"], dtype=np.bool_)
    return ids[:-1], ids[1:], counts[1:]


def _not_shifted(roles, messages, end):
    ids, counts = _parts(roles, messages, end)
    return ids[:-1], ids[:-1], counts[1:]


def _losses(logits, targets):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return -logs[np.arange(len(targets)), targets]


def _mean_over_all(logits, targets, counts):
    return float((_losses(logits, targets) * counts).sum() / len(counts))


def _mean_without_mask(logits, targets, counts):
    return float(_losses(logits, targets).mean())


def _sum(logits, targets, counts):
    return float(_losses(logits, targets)[counts].sum())


def _row_by_pieces(roles, messages, end):
    pieces = [np.array([end])]
    marks = []
    for role, message in zip(roles, messages, strict=True):
        pieces.append(np.array([*message, end]))
        marks.append(np.full(len(message) + 1, role == "assistant"))
    ids = np.concatenate(pieces).astype(np.int64)
    return ids[:-1], ids[1:], np.concatenate(marks)


def _loss_by_where(logits, targets, counts):
    losses = np.where(counts, _losses(logits, targets), 0.0)
    return float(losses.sum() / max(1, counts.sum()))


MISTAKES = [
    Mistake(
        "the mask belongs to the inputs",
        "counts[i] says whether targets[i] counts, and targets[i] is the input one position later. The mask of the "
        "inputs misses the first token of each answer and counts the first token of the next message: shift the mask "
        "like the targets.",
        {"row": _mask_of_inputs},
    ),
    Mistake(
        "everything counts",
        "The model then also learns to generate questions, and most of the loss is about text that it never generates.",
        {"row": _everything},
    ),
    Mistake(
        "questions count instead of answers",
        "The mask is inverted: it must be True at answers.",
        {"row": _questions},
    ),
    Mistake(
        "the end after an answer does not count",
        "The model then never learns to stop: it generates text until it reaches the token limit.",
        {"row": _without_ends},
    ),
    Mistake(
        "the end after a question counts",
        "The user, not the model, ends a question. Only the end after an answer counts.",
        {"row": _every_end},
    ),
    Mistake(
        "one end for the whole conversation",
        "There is an end after each message; without it, the model cannot see where a question ends and the answer "
        "begins.",
        {"row": _one_end},
    ),
    Mistake(
        "targets are not shifted",
        "The target at each position is the next token. A model that sees its target copies it.",
        {"row": _not_shifted},
    ),
    Mistake(
        "the mean over all positions",
        "Divide by the number of positions that count. If you divide by all, a long question makes the loss look "
        "small.",
        {"answer_loss": _mean_over_all},
    ),
    Mistake(
        "the loss ignores the mask",
        "Positions that do not count must not be in the mean.",
        {"answer_loss": _mean_without_mask},
    ),
    Mistake(
        "the sum, not the mean",
        "Divide by the number of positions that count.",
        {"answer_loss": _sum},
    ),
]
ALSO_RIGHT = [{"row": _row_by_pieces, "answer_loss": _loss_by_where}]
