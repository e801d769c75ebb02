# %% [markdown]
# # The answer mask
#
# A chat model reads whole conversations, but is trained only on the answers. Write `row`, which converts a conversation
# to a training row, and `answer_loss`, its loss.
#
# `row` gets the messages as lists of token ids, with the role of each, "user" or "assistant". The row begins with the
# token `end`, and each message is followed by `end`:
#
# $$\mathrm{end}\;\; m_1 \;\; \mathrm{end} \;\; m_2 \;\; \mathrm{end} \;\; \dots$$
#
# 1. `inputs` are all tokens except the last, `targets` all except the first: the model predicts each token from those
#    before it.
# 2. `counts[i]` is True if `targets[i]` is in an answer, or is the `end` right after an answer, so that the model
#    learns to stop. Questions, and the `end` after them, do not count.
#
# `answer_loss` is the mean, over the positions that count, of
#
# $$-\ln \mathrm{softmax}(\mathrm{logits}_i)_{\mathrm{targets}_i}$$
#
# - `inputs` and `targets` are int64 (T,), `counts` is bool (T,). `end` is an int. Messages may be empty.
# - `logits` are float64 (T, V) and may be as large as 10,000. The loss is a `float`; if no position counts, it is 0.0.
# - Do not change the arguments.

# %%
import numpy as np


def row(roles, messages, end):
    """Return inputs, targets and counts, (T,) each, from roles, messages of token ids, and the end token."""
    # BEGIN SOLUTION
    ids = [end]
    counts = [False]
    for role, message in zip(roles, messages, strict=True):
        ids += [*message, end]
        counts += [role == "assistant"] * (len(message) + 1)
    ids = np.array(ids, dtype=np.int64)
    return ids[:-1], ids[1:], np.array(counts[1:], dtype=np.bool_)
    # END SOLUTION


def answer_loss(logits, targets, counts):
    """Return the mean of -ln p over the positions that count: (T, V), (T,), (T,) -> float."""
    # BEGIN SOLUTION
    if not counts.any():
        return 0.0
    logits = logits[counts]
    targets = targets[counts]
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return float(-logs[np.arange(len(targets)), targets].mean())
    # END SOLUTION
