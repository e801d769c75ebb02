# %% [markdown]
# # The causal mask
#
# A language model must not see the tokens that it has to predict: each query may attend to its own position and to
# earlier positions. Write the mask, and a softmax that applies it.
#
# `causal(queries, keys)`: a boolean array (T, S), `True` where the query may attend to the key, for T = `queries` and
# S = `keys` with T ≤ S.
#
# - The queries are the **last** T of the S positions. With T = S, query i is at position i. When text is generated, S
#   is larger: the earlier keys come from a cache, and query i is at position S - T + i.
#
# `masked_softmax(scores, allowed)`: probabilities over the last axis.
#
# - `scores` is float64 (..., T, S) and finite; `allowed` is boolean (T, S), the same for all leading axes.
# - A key that is not allowed gets the weight **exactly 0**, and its score has no influence on the other weights,
#   however large it is. So set its score to `-inf` *before* the softmax.
# - Every row sums to 1, unless no key is allowed: such a row is all 0, not NaN.

# %%
import numpy as np


def causal(queries, keys):
    """Return True where a query may attend to a key: T, S -> bool (T, S)."""
    # BEGIN SOLUTION
    query_positions = np.arange(keys - queries, keys)
    return np.arange(keys) <= query_positions[:, None]
    # END SOLUTION


def masked_softmax(scores, allowed):
    """Return the softmax over the allowed keys: (..., T, S), (T, S) -> (..., T, S)."""
    # BEGIN SOLUTION
    masked = np.where(allowed, scores, -np.inf)
    highest = masked.max(axis=-1, keepdims=True)
    highest = np.where(np.isfinite(highest), highest, 0.0)
    exponentials = np.exp(masked - highest)
    totals = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / np.where(totals == 0, 1.0, totals)
    # END SOLUTION
