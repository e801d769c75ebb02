# %% [markdown]
# # KV cache
#
# A text is processed in pieces. Write `step`: causal attention (one head) for the next n tokens, where the keys and
# values of the t earlier tokens are in a cache. Row i of `x` is the token at position $t + i$ of the text, counted from
# 0.
#
# $$q = \mathrm{rotate}(x W_Q,\ t \ldots t{+}n{-}1) \qquad k = \mathrm{rotate}(x W_K,\ t \ldots t{+}n{-}1)
# \qquad v = x W_V$$
#
# $$\mathrm{keys} = [\mathrm{cached\ keys};\ k] \qquad \mathrm{values} = [\mathrm{cached\ values};\ v] \qquad
# \mathrm{mixed} = \mathrm{softmax}\!\left(\frac{q\,\mathrm{keys}^\top}{\sqrt{d}} + \mathrm{mask}\right)
# \mathrm{values}$$
#
# - `cache` is a tuple `(keys, values)`, (t, d) each. t may be 0, at the start of the text. Cached keys are already
#   rotated.
# - The token at position p attends to positions 0 … p, including itself; n may be more than 1.
# - Return `mixed`, (n, d), and the new cache: the tuple of keys and values, (t + n, d) each, oldest first.
# - All arrays are float64. Do not change the arguments: create new arrays.
# - However the text is split into pieces, the rows of `mixed` must be the same as for the whole text at once.

# %%
import numpy as np


def rotate(x, positions):
    """Rotate each row of x (n, d) by its position (n,). Pairs are i and i + d/2. (Nothing to write here.)"""
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10_000.0 ** (-np.arange(half) / half)
    a = x[:, :half]
    b = x[:, half:]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=-1)


def step(x, cache, w_query, w_key, w_value):
    """Return the attention output of the next tokens and the new cache: (n, D), cache, (D, d) each -> (n, d), cache."""
    # BEGIN SOLUTION
    old_keys, old_values = cache
    t = len(old_keys)
    n = len(x)
    positions = np.arange(t, t + n)
    keys = np.concatenate([old_keys, rotate(x @ w_key, positions)])
    values = np.concatenate([old_values, x @ w_value])
    scores = rotate(x @ w_query, positions) @ keys.T / np.sqrt(keys.shape[-1])
    scores = np.where(np.arange(t + n) <= positions[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights @ values, (keys, values)
    # END SOLUTION
