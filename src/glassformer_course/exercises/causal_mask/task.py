# %% [markdown]
# # The causal mask
#
# A language model must not see the tokens that it is to predict: each query may look at its own place and at those
# before it. Write the mask, and the softmax that obeys it.
#
# `causal(queries, keys)`: a boolean array (T, S), `True` where the query may see the key, for T = `queries` and S =
# `keys` with T ≤ S.
#
# - The queries are the **last** T of the S places. With T = S, query i stands at place i. When text is generated, S is
#   larger: the keys before come from a cache, and query i stands at place S - T + i.
#
# `masked_softmax(scores, allowed)`: probabilities over the last axis.
#
# - `scores` is float64 (..., T, S) and finite; `allowed` is boolean (T, S), the same for all axes in front.
# - A place that is not allowed gets **exactly 0**, and its score has no influence on the others, however large it is.
#   So it becomes `-inf` *before* the softmax.
# - Every row sums to 1, except where nothing is allowed: such a row is all 0, not NaN.

# %%
import numpy as np


def causal(queries, keys):
    """Which key each query may see: T, S -> bool (T, S)."""
    # BEGIN SOLUTION
    query_places = np.arange(keys - queries, keys)
    return np.arange(keys) <= query_places[:, None]
    # END SOLUTION


def masked_softmax(scores, allowed):
    """Softmax over the allowed places: (..., T, S), (T, S) -> (..., T, S)."""
    # BEGIN SOLUTION
    masked = np.where(allowed, scores, -np.inf)
    highest = masked.max(axis=-1, keepdims=True)
    highest = np.where(np.isfinite(highest), highest, 0.0)
    exponentials = np.exp(masked - highest)
    totals = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / np.where(totals == 0, 1.0, totals)
    # END SOLUTION
