# %% [markdown]
# # Cross-entropy and perplexity
#
# Write the loss of a language model, computed from its logits z and the ids of the actual next tokens. For one
# position, with target y:
#
# $$\ell = -\ln \mathrm{softmax}(z)_y = \ln \sum_{v} e^{z_v} - z_y$$
#
# `cross_entropy` is the mean of these losses over all positions that *count*, in nats (natural logarithm). `perplexity`
# is e to the power of that mean.
#
# - `logits` is float64 (..., V); `targets` is int64 (...), with any number of leading axes, the same for both arrays.
# - A target of -100 means that its position does not count: it is neither in the sum nor in the number to divide by.
#   All other targets are 0 to V - 1.
# - If no position counts, the loss is defined as 0.0, so the perplexity is 1.0.
# - Logits may be 10,000 or -10,000; the result must still be right. A logit may be `-inf` (an impossible token), but
#   never that of the target.
# - Both functions return a float.

# %%
import numpy as np


def cross_entropy(logits, targets):
    """Return the mean loss in nats over the positions that count: (..., V), (...) -> float."""
    # BEGIN SOLUTION
    counted = targets != -100
    if not counted.any():
        return 0.0
    rows = logits[counted]
    wanted = targets[counted]
    highest = rows.max(axis=-1)
    log_sums = highest + np.log(np.exp(rows - highest[:, None]).sum(axis=-1))
    return float((log_sums - rows[np.arange(len(wanted)), wanted]).mean())
    # END SOLUTION


def perplexity(logits, targets):
    """Return e to the power of the cross-entropy: (..., V), (...) -> float."""
    # BEGIN SOLUTION
    return float(np.exp(cross_entropy(logits, targets)))
    # END SOLUTION
