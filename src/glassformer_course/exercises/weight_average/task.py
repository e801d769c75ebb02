# %% [markdown]
# # Averages of weights
#
# The weights of a model fluctuate during training. Their average over many steps often gives a better model than the
# last weights. Write two running averages, which do not store old weights.
#
# `weights` is a list of arrays of one shape: the weights after step 1, 2, 3 …
#
# **`ema`**, the exponential moving average with a growing decay:
#
# $$a_1 = w_1 \qquad a_t = d_t\, a_{t-1} + (1 - d_t)\, w_t \qquad d_t = \min\!\left(\mathrm{decay},
# \frac{1 + t}{10 + t}\right)$$
#
# **`late`**, in which the weight of step t is roughly proportional to $t^n$, for any number of steps:
#
# $$a_1 = w_1 \qquad a_t = (1 - s_t)\, a_{t-1} + s_t\, w_t \qquad s_t = \frac{n + 1}{t + n}$$
#
# - Steps are counted from 1. `decay` is a float, `n` a number that is not negative.
# - The result is a new float64 array of the shape of the weights; do not change the arguments.

# %%
import numpy as np


def ema(weights, decay):
    """Return the exponential moving average of arrays of one shape; `decay` limits the growing decay."""
    # BEGIN SOLUTION
    average = np.array(weights[0], dtype=np.float64)
    for t, weight in enumerate(weights[1:], start=2):
        d = min(decay, (1 + t) / (10 + t))
        average = d * average + (1 - d) * weight
    return average
    # END SOLUTION


def late(weights, n):
    """Return the average of arrays of one shape in which step t has a weight of about t to the power of n."""
    # BEGIN SOLUTION
    average = np.array(weights[0], dtype=np.float64)
    for t, weight in enumerate(weights[1:], start=2):
        s = (n + 1) / (t + n)
        average = (1 - s) * average + s * weight
    return average
    # END SOLUTION
