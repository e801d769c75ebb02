# %% [markdown]
# # The answer mask
#
# A chat model reads whole conversations, but learns the answers only. Write `row`, which makes one training row of a
# conversation, and `answer_loss`, its loss.
#
# `row` gets the messages as lists of token ids, with the role of each, "user" or "assistant". The text begins with the
# token `end`, and `end` stands after each message:
#
# $$\mathrm{end}\;\; m_1 \;\; \mathrm{end} \;\; m_2 \;\; \mathrm{end} \;\; \dots$$
#
# 1. `inputs` are all tokens but the last, `targets` all but the first: the model predicts each token from those before.
# 2. `counts[i]` is True if `targets[i]` belongs to an answer, or is the `end` right after an answer: so the model
#    learns to stop. Questions, and the `end` after them, do not count.
#
# `answer_loss` is the mean over the places that count of
#
# $$-\ln \mathrm{softmax}(\mathrm{logits}_i)_{\mathrm{targets}_i}$$
#
# - `inputs` and `targets` are int64 (T,), `counts` is bool (T,). `end` is an int. Messages may be empty.
# - `logits` are float64 (T, V) and may be as large as 10,000. The loss is a `float`; if nothing counts it is 0.0.
# - The arguments are not changed.

# %%
import numpy as np


def row(roles, messages, end):
    """Roles, messages of token ids, and the end token -> inputs (T,), targets (T,), counts (T,)."""
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
    """logits (T, V), targets (T,), counts (T,) -> the mean of -ln p over the places that count, a float."""
    # BEGIN SOLUTION
    if not counts.any():
        return 0.0
    logits = logits[counts]
    targets = targets[counts]
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return float(-logs[np.arange(len(targets)), targets].mean())
    # END SOLUTION
