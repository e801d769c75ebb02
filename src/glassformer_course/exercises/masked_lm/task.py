# %% [markdown]
# # The masked language model
#
# An encoder is trained to guess hidden tokens. Write `hide`, which makes holes as BERT does, and `loss`.
#
# `hide` gets everything that is random as arguments, so that its result is fixed:
#
# 1. A token is **chosen** if its number in `choose` is less than 0.15 and it is not special.
# 2. What becomes of a chosen token is said by its number $a$ in `action`: $a < 0.8$: it becomes `mask_id`; $0.8 \le a
#    < 0.9$: it becomes its number in `others`; $0.9 \le a$: it stays.
# 3. All other tokens stay.
#
# `hide` gives back the inputs and the labels: the label of a chosen token is the true token (whatever it became),
# every other label is -100.
#
# `loss` is the mean over the places whose label is not -100 of
#
# $$-\ln \mathrm{softmax}(\mathrm{logits}_i)_{\mathrm{label}_i}$$
#
# - `tokens`, `others` and labels are int64 (T,), `special` is bool (T,), `choose` and `action` are float64 (T,) in
#   [0, 1).
# - `logits` are float64 (T, V) and may be as large as 10,000. The loss is a `float`; without any label it is 0.0.
# - The arguments are not changed.

# %%
import numpy as np


def hide(tokens, special, choose, action, others, mask_id):
    """Six arguments as above, (T,) each but mask_id, an int -> inputs (T,), labels (T,)."""
    # BEGIN SOLUTION
    chosen = (choose < 0.15) & ~special
    inputs = tokens.copy()
    inputs[chosen & (action < 0.8)] = mask_id
    swapped = chosen & (action >= 0.8) & (action < 0.9)
    inputs[swapped] = others[swapped]
    return inputs, np.where(chosen, tokens, -100)
    # END SOLUTION


def loss(logits, labels):
    """logits (T, V), labels (T,) -> the mean of -ln p over the labels that count, a float."""
    # BEGIN SOLUTION
    counts = labels != -100
    if not counts.any():
        return 0.0
    logits = logits[counts]
    labels = labels[counts]
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return float(-logs[np.arange(len(labels)), labels].mean())
    # END SOLUTION
