# %% [markdown]
# # The masked language model
#
# An encoder is trained to predict masked tokens. Write `hide`, which masks tokens as BERT does, and `loss`.
#
# `hide` gets all random numbers as arguments, so its result is determined by them:
#
# 1. A token is **chosen** if its number in `choose` is less than 0.15 and it is not special.
# 2. The number $a$ of a chosen token in `action` determines its input. If $a < 0.8$, it is replaced by `mask_id`; if
#    $0.8 \le a < 0.9$, by its token in `others`; if $0.9 \le a$, it stays the same.
# 3. All other tokens stay the same.
#
# `hide` returns the inputs and the labels. The label of a chosen token is the original token, even if it was not
# replaced; every other label is -100.
#
# `loss` is the mean, over the positions whose label is not -100, of
#
# $$-\ln \mathrm{softmax}(\mathrm{logits}_i)_{\mathrm{label}_i}$$
#
# - `tokens`, `others` and labels are int64 (T,), `special` is bool (T,), `choose` and `action` are float64 (T,) in
#   [0, 1).
# - `logits` are float64 (T, V) and may be as large as 10,000. The loss is a `float`; if there are no labels, it is 0.0.
# - Do not change the arguments.

# %%
import numpy as np


def hide(tokens, special, choose, action, others, mask_id):
    """Return the inputs and the labels: (T,) each, mask_id an int -> (T,), (T,)."""
    # BEGIN SOLUTION
    chosen = (choose < 0.15) & ~special
    inputs = tokens.copy()
    inputs[chosen & (action < 0.8)] = mask_id
    swapped = chosen & (action >= 0.8) & (action < 0.9)
    inputs[swapped] = others[swapped]
    return inputs, np.where(chosen, tokens, -100)
    # END SOLUTION


def loss(logits, labels):
    """Return the mean of -ln p over the labels that are not -100: (T, V), (T,) -> float."""
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
