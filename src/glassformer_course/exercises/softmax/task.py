# %% [markdown]
# # Stable softmax
#
# Write `softmax`. It turns each row of numbers (the *last* axis) into probabilities:
#
# $$\mathrm{softmax}(x)_i = \frac{e^{x_i}}{\sum_j e^{x_j}}$$
#
# - Every row of the result is positive and sums to 1.
# - Rows may hold numbers such as 10,000 or -10,000: the result must still be finite.
# - The type and the shape stay as they are (float32 stays float32); `x` itself is not changed.
# - Some places may be `-inf`, which means "not allowed": they get exactly 0. No row is `-inf` everywhere.

# %%
import numpy as np


def softmax(x):
    """Probabilities along the last axis: (..., n) -> (..., n)."""
    # BEGIN SOLUTION
    shifted = x - x.max(axis=-1, keepdims=True)
    exponentials = np.exp(shifted)
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
    # END SOLUTION
