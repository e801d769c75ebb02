# %% [markdown]
# # Stable softmax
#
# Write `softmax`. It turns each row of numbers (the *last* axis) into probabilities:
#
# $$\mathrm{softmax}(x)_i = \frac{e^{x_i}}{\sum_j e^{x_j}}$$
#
# - No number of the result is negative, and every row sums to 1.
# - Rows may contain numbers such as 10,000 or -10,000: the result must still be finite.
# - Keep the dtype and the shape (float32 stays float32), and do not change `x` itself.
# - Some entries may be `-inf`, which means "not allowed": their probability is exactly 0. No row is `-inf` everywhere.

# %%
import numpy as np


def softmax(x):
    """Return probabilities along the last axis: (..., n) -> (..., n)."""
    # BEGIN SOLUTION
    shifted = x - x.max(axis=-1, keepdims=True)
    exponentials = np.exp(shifted)
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
    # END SOLUTION
