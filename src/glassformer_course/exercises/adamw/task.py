# %% [markdown]
# # AdamW
#
# Write one step of AdamW, for one array of weights $w$ with gradient $g$. `m` and `v` are running averages of $g$ and
# of $g^2$; both start at 0. `t` is the number of this step, 1 for the first.
#
# $$m \leftarrow \beta_1 m + (1 - \beta_1)\, g \qquad v \leftarrow \beta_2 v + (1 - \beta_2)\, g^2$$
#
# $$\hat m = \frac{m}{1 - \beta_1^t} \qquad \hat v = \frac{v}{1 - \beta_2^t} \qquad
# w \leftarrow w - rate \cdot decay \cdot w - rate \cdot \frac{\hat m}{\sqrt{\hat v} + \epsilon}$$
#
# - All arrays are float64 and have the same shape, with at least one axis. `rate` and `decay` are floats.
# - On the right of the last formula, both $w$ are the weight *before* this step.
# - The result is the tuple (w, m, v) after the step, all new arrays. Return `m` and `v` *without* the bias correction:
#   $\hat m$ and $\hat v$ are only for this step. Do not change the arguments.

# %%
import numpy as np

BETA1 = 0.9
BETA2 = 0.999
EPSILON = 1e-8


def adamw(w, g, m, v, t, rate, decay):
    """Return (w, m, v) after one step."""
    # BEGIN SOLUTION
    m = BETA1 * m + (1 - BETA1) * g
    v = BETA2 * v + (1 - BETA2) * g**2
    mean = m / (1 - BETA1**t)
    square = v / (1 - BETA2**t)
    w = w - rate * decay * w - rate * mean / (np.sqrt(square) + EPSILON)
    return w, m, v
    # END SOLUTION
