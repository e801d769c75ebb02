# %% [markdown]
# # Single-head attention
#
# Write `attention`. Each of T queries is compared with S keys; the resulting weights are used to average the S values:
#
# $$A = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right), \qquad \mathrm{output} = A\, V$$
#
# - `Q` is (T, d_k), `K` is (S, d_k), `V` is (S, d_v), all float64. T and S may differ, and so may d_k and d_v.
# - Each query has its own softmax, over the keys: the rows of A sum to 1.
# - Return two float64 arrays as a tuple: the output (T, d_v) and the weights A (T, S).
# - Scores may be as large as 100,000 or as low as -100,000; the result must still be finite. There is no mask here.

# %%
import numpy as np


def attention(Q, K, V):
    """Return the weighted sums of the values, and the weights: (T, d_k), (S, d_k), (S, d_v) -> (T, d_v), (T, S)."""
    # BEGIN SOLUTION
    scores = Q @ K.T / np.sqrt(Q.shape[-1])
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return weights @ V, weights
    # END SOLUTION
