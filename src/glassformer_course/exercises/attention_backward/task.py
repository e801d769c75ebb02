# %% [markdown]
# # Attention, backward
#
# Write the backward pass of causal attention with one head by hand. The forward pass is
#
# $$S = \frac{Q K^\top}{\sqrt{d}} \qquad A = \mathrm{softmax}(S \text{, each row over the allowed keys}) \qquad Y = A
# V$$
#
# where d is the width of the queries. Given `dy`, the gradient of a loss with respect to $Y$, compute the gradients of
# the same loss with respect to $Q$, $K$ and $V$. `causal_weights`, which computes $A$, is given.
#
# - `softmax_backward`: each row $a$ of `weights` is the softmax of a row of scores, and `dweights` is the gradient with
#   respect to $a$. The gradient with respect to the scores is, with $i$ and $j$ along the row,
#   $$ds_i = \sum_j da_j \frac{\partial a_j}{\partial s_i} \qquad
#   \frac{\partial a_j}{\partial s_i} = a_j\,(\mathbb{1}[i = j] - a_i)$$
# - `attention_backward` returns the tuple (dq, dk, dv).
# - All arrays are float64: `q`, `k` (T, d); `v`, `dy` (T, e), where e may differ from d.
#   `weights` and `dweights` are (T, T).
# - No gradient flows where a weight is 0 because of the mask.
# - The results are new arrays; do not change the arguments.

# %%
import numpy as np


def causal_weights(q, k):
    """Return causal attention weights: (T, d), (T, d) -> (T, T). (Nothing to write here.)"""
    scores = np.where(np.tri(len(q), dtype=bool), q @ k.T / np.sqrt(q.shape[1]), -np.inf)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def softmax_backward(dweights, weights):
    """Return the gradient of the scores: (T, T), (T, T) -> (T, T)."""
    # BEGIN SOLUTION
    return weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))
    # END SOLUTION


def attention_backward(dy, q, k, v):
    """Return the tuple (dq, dk, dv), with the shapes of q, k and v."""
    # BEGIN SOLUTION
    weights = causal_weights(q, k)
    dv = weights.T @ dy
    dscores = softmax_backward(dy @ v.T, weights) / np.sqrt(q.shape[1])
    return dscores @ k, dscores.T @ q, dv
    # END SOLUTION
