# %% [markdown]
# # Padding
#
# A batch contains texts of different lengths; the short ones are filled with padding. Write two functions whose results
# do not depend on padding. `real` (B, T) is True at real tokens. Padding may be anywhere in a row, and contain any
# numbers.
#
# `attention` (one head, as in an encoder: no causal mask):
#
# $$\mathrm{attention}(q, k, v)_{bi} = \sum_{j\ \mathrm{real}} a_{ij}\, v_{bj} \qquad
# a_{ij} = \frac{e^{s_{ij}}}{\sum_{j'\ \mathrm{real}} e^{s_{ij'}}} \qquad
# s_{ij} = \frac{q_{bi} \cdot k_{bj}}{\sqrt{d}}$$
#
# - Every query gets a result, also at padding positions, where it is not used. Only *keys* at padding are left out.
# - A row without any real token gets zeros everywhere.
#
# `mean` is the mean of the vectors at the real positions of each row; zeros for a row without real tokens.
#
# - All numbers are float64 and finite; scores may be as low as -100,000. Do not change the arguments.

# %%
import numpy as np


def attention(q, k, v, real):
    """Return the attention over real keys: q, k, v (B, T, d), real bool (B, T) -> (B, T, d)."""
    # BEGIN SOLUTION
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = np.where(real[:, None, :], scores, -np.inf)
    highest = scores.max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - np.where(np.isfinite(highest), highest, 0.0))
    total = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / np.where(total > 0, total, 1.0) @ v
    # END SOLUTION


def mean(x, real):
    """Return the mean over real positions: x (B, T, d), real bool (B, T) -> (B, d)."""
    # BEGIN SOLUTION
    total = (x * real[:, :, None]).sum(axis=1)
    return total / np.maximum(real.sum(axis=1), 1)[:, None]
    # END SOLUTION
