# %% [markdown]
# # Rotary positions
#
# Write `rotate`. It rotates queries or keys by their position, so that their dot product depends on the distance
# between them.
#
# The K channels of a vector form K/2 pairs: channel $i$ and channel $i + K/2$, for every $i$ from 0 to $K/2 - 1$. This
# is the *half* layout, as in this package and in Hugging Face's Llama. At position $p$ the pair $(a, b)$ becomes
#
# $$a' = a \cos\theta - b \sin\theta \qquad b' = b \cos\theta + a \sin\theta \qquad \theta = p \cdot base^{-2i/K}$$
#
# - $a$ is channel $i$ of `x` and $b$ is channel $i + K/2$; the result has $a'$ and $b'$ in the same two channels.
# - `x` is float64 of shape (..., T, K) with K even; the leading axes may be batch and heads, or absent.
# - Row `t` is at position $p = start + t$. A text begins at position 0; with a cache, `start` tokens came before.
# - The result is a new array of the same shape; do not change `x` itself.

# %%
import numpy as np


def rotate(x, start, base):
    """Rotate queries or keys by their positions: (..., T, K) -> (..., T, K)."""
    # BEGIN SOLUTION
    T, K = x.shape[-2:]
    frequencies = base ** (-2 * np.arange(K // 2) / K)
    angles = (start + np.arange(T))[:, None] * frequencies
    cos = np.cos(angles)
    sin = np.sin(angles)
    a = x[..., : K // 2]
    b = x[..., K // 2 :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    # END SOLUTION
