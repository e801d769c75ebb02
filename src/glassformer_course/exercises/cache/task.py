# %% [markdown]
# # KV cache
#
# A text is read piece by piece. Write `step`: causal attention (one head) for the next n tokens, when the keys and
# values of the t tokens before them are in a cache. Row i of `x` is the token at place $t + i$ of the text, counted
# from 0.
#
# $$q = \mathrm{rotate}(x W_Q,\ t \ldots t{+}n{-}1) \qquad k = \mathrm{rotate}(x W_K,\ t \ldots t{+}n{-}1)
# \qquad v = x W_V$$
#
# $$\mathrm{keys} = [\mathrm{cached\ keys};\ k] \qquad \mathrm{values} = [\mathrm{cached\ values};\ v] \qquad
# \mathrm{mixed} = \mathrm{softmax}\!\left(\frac{q\,\mathrm{keys}^\top}{\sqrt{d}} + \mathrm{mask}\right)
# \mathrm{values}$$
#
# - `cache` is a tuple `(keys, values)`, (t, d) each. t may be 0: the text begins. Cached keys are turned already.
# - The token at place p sees the places 0 … p, itself included; n may be more than 1.
# - Give back `mixed`, (n, d), and the new cache: the tuple of keys and values, (t + n, d) each, oldest first.
# - All arrays are float64. The arguments are not changed: make new arrays.
# - Whatever the pieces, the rows of `mixed` must be those of the whole text read at once.

# %%
import numpy as np


def rotate(x, places):
    """Rotary positions, given: turn each row of x (n, d) to its place (n,). d is even; pairs are i and i + d/2."""
    half = x.shape[-1] // 2
    angles = places[:, None] * 10_000.0 ** (-np.arange(half) / half)
    a = x[:, :half]
    b = x[:, half:]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=-1)


def step(x, cache, w_query, w_key, w_value):
    """Next tokens x (n, D), cache, weights (D, d) each -> mixed (n, d), and the cache with n places more."""
    # BEGIN SOLUTION
    old_keys, old_values = cache
    t = len(old_keys)
    n = len(x)
    places = np.arange(t, t + n)
    keys = np.concatenate([old_keys, rotate(x @ w_key, places)])
    values = np.concatenate([old_values, x @ w_value])
    scores = rotate(x @ w_query, places) @ keys.T / np.sqrt(keys.shape[-1])
    scores = np.where(np.arange(t + n) <= places[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights @ values, (keys, values)
    # END SOLUTION
