# %% [markdown]
# # Averages of weights
#
# The weights jump about while a model is trained. Their average over many steps lies in the middle, and is often
# better than the last. Write two averages that are made on the way, without keeping old weights.
#
# `weights` is a list of arrays of one shape: the weights after step 1, 2, 3 …
#
# **`ema`**, the exponential moving average with a growing decay:
#
# $$a_1 = w_1 \qquad a_t = d_t\, a_{t-1} + (1 - d_t)\, w_t \qquad d_t = \min\!\left(\mathrm{decay},
# \frac{1 + t}{10 + t}\right)$$
#
# **`late`**, in which step t weighs about $t^n$, however long the run is:
#
# $$a_1 = w_1 \qquad a_t = (1 - s_t)\, a_{t-1} + s_t\, w_t \qquad s_t = \frac{n + 1}{t + n}$$
#
# - Steps are counted from 1. `decay` is a float, `n` a number that is not negative.
# - The result is a new array, float64, of the shape of the weights; no argument is changed.

# %%
import numpy as np


def ema(weights, decay):
    """Arrays of one shape, and the largest decay -> their exponential moving average."""
    # BEGIN SOLUTION
    average = np.array(weights[0], dtype=np.float64)
    for t, weight in enumerate(weights[1:], start=2):
        d = min(decay, (1 + t) / (10 + t))
        average = d * average + (1 - d) * weight
    return average
    # END SOLUTION


def late(weights, n):
    """Arrays of one shape, and the power n -> their average, in which step t weighs about t to the n."""
    # BEGIN SOLUTION
    average = np.array(weights[0], dtype=np.float64)
    for t, weight in enumerate(weights[1:], start=2):
        s = (n + 1) / (t + n)
        average = (1 - s) * average + s * weight
    return average
    # END SOLUTION
