# %% [markdown]
# # Sinusoidal positions
#
# Attention does not see the order of tokens. In the original transformer, a vector that encodes the position is added
# to the vector of each token. It has D numbers: sines and cosines of the position, from high to low frequency. For
# position p and i = 0, 1, …, D/2 - 1:
#
# $$\mathrm{PE}(p)_{2i} = \sin\!\left(\frac{p}{10000^{2i/D}}\right), \qquad
# \mathrm{PE}(p)_{2i+1} = \cos\!\left(\frac{p}{10000^{2i/D}}\right)$$
#
# Write `sinusoids(positions, width)`.
#
# - `positions` is int64 (T,), in any order, never negative; `width` is D, an even number. The result is float64 (T, D).
# - **Layout**: sine and cosine of the same frequency are adjacent, sin cos sin cos …, as in the formula. So position 0
#   has 0, 1, 0, 1, …

# %%
import numpy as np


def sinusoids(positions, width):
    """Return the vector of each position, with adjacent sin and cos: (T,), D -> (T, D)."""
    # BEGIN SOLUTION
    frequencies = 10_000.0 ** (-np.arange(0, width, 2) / width)
    angles = positions[:, None] * frequencies
    result = np.empty((len(positions), width))
    result[:, 0::2] = np.sin(angles)
    result[:, 1::2] = np.cos(angles)
    return result
    # END SOLUTION
