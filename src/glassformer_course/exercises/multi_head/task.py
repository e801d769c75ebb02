# %% [markdown]
# # Multi-head attention
#
# One head has only one attention pattern per token. Multi-head attention splits the width D into H heads of d = D / H
# channels, computes attention in each head separately, and combines the results:
#
# $$\mathrm{head}_h = \mathrm{softmax}\!\left(\frac{Q_h K_h^\top}{\sqrt{d}}\right) V_h, \qquad
# Y = \mathrm{merge}(\mathrm{head}_1, \dots, \mathrm{head}_H)\, W_O$$
#
# - `split(x, heads)`: (B, T, D) to (B, H, T, d). Head 0 has the first d channels of **every** token, head 1 the next d,
#   and so on.
# - `merge(x)`: the inverse of `split`, (B, H, T, d) to (B, T, D).
# - `multi_head(x, W_Q, W_K, W_V, W_O, heads)`: self-attention of x (B, T, D), without mask and biases. Q = x W_Q,
#   K = x W_K and V = x W_V are split, each head computes attention, and the results are merged and multiplied by W_O.
#   All weights are (D, D), input channels by output channels, so multiply `x @ W`. The result is (B, T, D).
#
# All arrays are float64. H divides D. The stable `softmax` is given.

# %%
import numpy as np


def softmax(x):
    """Return probabilities along the last axis. (Nothing to write here.)"""
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def split(x, heads):
    """Split the channels into heads: (B, T, D) -> (B, H, T, d)."""
    # BEGIN SOLUTION
    B, T, D = x.shape
    return x.reshape(B, T, heads, D // heads).transpose(0, 2, 1, 3)
    # END SOLUTION


def merge(x):
    """Concatenate the heads: (B, H, T, d) -> (B, T, D)."""
    # BEGIN SOLUTION
    B, H, T, d = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, T, H * d)
    # END SOLUTION


def multi_head(x, W_Q, W_K, W_V, W_O, heads):
    """Compute multi-head self-attention: (B, T, D), four times (D, D), H -> (B, T, D)."""
    # BEGIN SOLUTION
    Q = split(x @ W_Q, heads)
    K = split(x @ W_K, heads)
    V = split(x @ W_V, heads)
    scores = Q @ K.transpose(0, 1, 3, 2) / np.sqrt(Q.shape[-1])
    return merge(softmax(scores) @ V) @ W_O
    # END SOLUTION
