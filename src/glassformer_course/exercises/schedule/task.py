# %% [markdown]
# # The learning-rate schedule
#
# Write `rate`: the learning rate at one step of a training run of `steps` steps. It rises linearly, then falls along
# half a cosine wave. Steps are counted from 0.
#
# - **Warm-up**, where step < warmup: the rate is $peak \cdot (step + 1) / warmup$. The first step already learns, and
#   step warmup - 1 has exactly the peak.
# - **Decay**, after that: with $p = (step - warmup + 1) / (steps - warmup)$, the fraction of the decay that is done,
#   $$rate = floor + \frac{1 + \cos(\pi p)}{2} \cdot (peak - floor)$$
#   so the last step, steps - 1, has exactly the floor.
# - **After the end**, where step ≥ steps: the floor.
# - `step`, `steps` and `warmup` are ints, `peak` and `floor` floats; 0 ≤ warmup ≤ steps and 1 ≤ steps. With warmup 0
#   the decay begins at step 0. The result is a float.

# %%
import math


def rate(step, steps, warmup, peak, floor):
    """Return the learning rate of one step, a float."""
    # BEGIN SOLUTION
    if step >= steps:
        return floor
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup + 1) / (steps - warmup)
    return floor + (1 + math.cos(math.pi * progress)) / 2 * (peak - floor)
    # END SOLUTION
