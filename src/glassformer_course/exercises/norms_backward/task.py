# %% [markdown]
# # Norms, backward
#
# Write the backward passes of LayerNorm and RMSNorm by hand. The forward passes are
#
# $$y = gain \cdot \hat x + bias \qquad \hat x = \frac{x - \mu}{s} \qquad s = \sqrt{\sigma^2 + \epsilon}
# \qquad \text{(LayerNorm)}$$
#
# $$y = gain \cdot \hat x \qquad \hat x = \frac{x}{s} \qquad s = \sqrt{m + \epsilon} \qquad \text{(RMSNorm)}$$
#
# with mean $\mu$, variance $\sigma^2$ and mean square $m$ of each vector (the *last* axis, D numbers, divided by D).
#
# Given `dy`, the gradient of a loss with respect to `y`, compute the gradients of the same loss with respect to `x`,
# the gain and the bias.
#
# - `dy` and `x` are float64 of one shape (..., D), with any leading axes; `gain` is (D,); `epsilon` is a float.
# - `dx` has the shape of `x`. The gradients of the gain and the bias are (D,), *sums* over all vectors.
# - $\mu$, $\sigma^2$ and $m$ depend on `x`, so gradients flow through them too.
# - Return new arrays in a tuple; do not change the arguments.

# %%
import numpy as np


def layer_norm_backward(dy, x, gain, epsilon):
    """Return (dx, dgain, dbias) of LayerNorm: (..., D), (D,), (D,)."""
    # BEGIN SOLUTION
    centered = x - x.mean(axis=-1, keepdims=True)
    size = np.sqrt((centered**2).mean(axis=-1, keepdims=True) + epsilon)
    normed = centered / size
    dnormed = dy * gain
    along = (dnormed * normed).mean(axis=-1, keepdims=True)
    dx = (dnormed - dnormed.mean(axis=-1, keepdims=True) - normed * along) / size
    vectors = tuple(range(x.ndim - 1))
    return dx, (dy * normed).sum(axis=vectors), dy.sum(axis=vectors)
    # END SOLUTION


def rms_norm_backward(dy, x, gain, epsilon):
    """Return (dx, dgain) of RMSNorm: (..., D), (D,)."""
    # BEGIN SOLUTION
    size = np.sqrt((x**2).mean(axis=-1, keepdims=True) + epsilon)
    normed = x / size
    dnormed = dy * gain
    along = (dnormed * normed).mean(axis=-1, keepdims=True)
    dx = (dnormed - normed * along) / size
    return dx, (dy * normed).sum(axis=tuple(range(x.ndim - 1)))
    # END SOLUTION
