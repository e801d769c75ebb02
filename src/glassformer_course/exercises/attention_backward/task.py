# %% [markdown]
# # Attention, backward
#
# Write the backward pass of causal attention with one head by hand. The forward pass is
#
# $$S = \frac{Q K^\top}{\sqrt{d}} \qquad A = \mathrm{softmax}(S \text{, each row over what it may see}) \qquad Y = A V$$
#
# with d the width of the queries. Given is `dy`, the gradient of some loss with respect to $Y$. Wanted are the
# gradients of the same loss with respect to $Q$, $K$ and $V$. `causal_weights`, which computes $A$, is given.
#
# - `softmax_backward`: each row $a$ of `weights` came from a row of scores by a softmax, and `dweights` is the
#   gradient with respect to $a$. The gradient with respect to the scores is, with $i$ and $j$ along the row,
#   $$ds_i = \sum_j da_j \frac{\partial a_j}{\partial s_i} \qquad
#   \frac{\partial a_j}{\partial s_i} = a_j\,(\mathbb{1}[i = j] - a_i)$$
# - `attention_backward` gives the tuple (dq, dk, dv).
# - All arrays are float64: `q`, `k` (T, d); `v`, `dy` (T, e), where e may differ from d.
#   `weights` and `dweights` are (T, T).
# - Where a weight is 0 because of the mask, no gradient flows.
# - The results are new arrays; no argument is changed.

# %%
import numpy as np


def causal_weights(q, k):
    """Given. How much each token looks at itself and those before it: (T, d), (T, d) -> (T, T)."""
    scores = np.where(np.tri(len(q), dtype=bool), q @ k.T / np.sqrt(q.shape[1]), -np.inf)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def softmax_backward(dweights, weights):
    """The gradient of the scores: (T, T), (T, T) -> (T, T)."""
    # BEGIN SOLUTION
    return weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))
    # END SOLUTION


def attention_backward(dy, q, k, v):
    """The tuple (dq, dk, dv), each with the shape of q, k, v."""
    # BEGIN SOLUTION
    weights = causal_weights(q, k)
    dv = weights.T @ dy
    dscores = softmax_backward(dy @ v.T, weights) / np.sqrt(q.shape[1])
    return dscores @ k, dscores.T @ q, dv
    # END SOLUTION
