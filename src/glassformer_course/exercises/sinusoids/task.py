# %% [markdown]
# # Sinusoidal positions
#
# Attention does not see the order of tokens. The first transformers added to each token a vector that says where it
# stands: D numbers, sines and cosines of the place, from fast to slow. For place p and i = 0, 1, …, D/2 - 1:
#
# $$\mathrm{PE}(p)_{2i} = \sin\!\left(\frac{p}{10000^{2i/D}}\right), \qquad
# \mathrm{PE}(p)_{2i+1} = \cos\!\left(\frac{p}{10000^{2i/D}}\right)$$
#
# Write `sinusoids(places, width)`.
#
# - `places` is int64 (T,), in any order, from 0; `width` is D, an even number. The result is float64 (T, D).
# - **Layout**: sine and cosine of the same frequency stand side by side, sin cos sin cos …, as in the formula. So place
#   0 has 0, 1, 0, 1, …

# %%
import numpy as np


def sinusoids(places, width):
    """The vector of each place, sin and cos side by side: (T,), D -> (T, D)."""
    # BEGIN SOLUTION
    frequencies = 10_000.0 ** (-np.arange(0, width, 2) / width)
    angles = places[:, None] * frequencies
    result = np.empty((len(places), width))
    result[:, 0::2] = np.sin(angles)
    result[:, 1::2] = np.cos(angles)
    return result
    # END SOLUTION
