# %% [markdown]
# # LayerNorm and RMSNorm
#
# Write two norms. Each scales every vector (the *last* axis, D numbers) to a fixed size, then multiplies it by a
# learned gain; `layer_norm` also subtracts the mean first and adds a learned bias last.
#
# $$\mathrm{layer\_norm}(x) = gain \cdot \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + bias
# \qquad \mu = \frac1D \sum_i x_i \qquad \sigma^2 = \frac1D \sum_i (x_i - \mu)^2$$
#
# $$\mathrm{rms\_norm}(x) = gain \cdot \frac{x}{\sqrt{m + \epsilon}} \qquad m = \frac1D \sum_i x_i^2$$
#
# - `x` is float64 of shape (..., D), with any leading axes; `gain` and `bias` are (D,); `epsilon` is a float.
# - Divide the variance by D, not by D - 1. $\epsilon$ is *inside* the root.
# - Numbers may be about 1,000,000 with a spread of 10 in `layer_norm`, and about 100,000,000 in `rms_norm`: the result
#   must still be right.
# - The result is a new array of the shape of `x`; do not change the arguments.

# %%
import numpy as np


def layer_norm(x, gain, bias, epsilon):
    """Normalize each vector to mean 0 and variance 1, then apply gain and bias: (..., D) -> (..., D)."""
    # BEGIN SOLUTION
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = (centered**2).mean(axis=-1, keepdims=True)
    return gain * centered / np.sqrt(variance + epsilon) + bias
    # END SOLUTION


def rms_norm(x, gain, epsilon):
    """Normalize each vector to a mean square of 1, then apply the gain: (..., D) -> (..., D)."""
    # BEGIN SOLUTION
    square = (x**2).mean(axis=-1, keepdims=True)
    return gain * x / np.sqrt(square + epsilon)
    # END SOLUTION
