# %% [markdown]
# # Pruning heads
#
# Many heads can be removed from a trained model. Write three functions: they measure the importance of heads, remove
# heads, and choose the order of removal.
#
# `importance`: multiply the output of each head h by a gate $\xi_h = 1$. How much does the loss depend on the gate?
#
# $$I_h = \frac{1}{N} \sum_x \left|\frac{\partial L(x)}{\partial \xi_h}\right| \qquad
# \frac{\partial L(x)}{\partial \xi_h} =
# \sum_{i,c} \mathrm{out}_{xhic}\, \frac{\partial L(x)}{\partial\, \mathrm{out}_{xhic}}$$
#
# `outputs` (N, H, T, d) are the outputs of the heads for N texts x (before $W_O$), at positions i in channels c;
# `gradients`, of the same shape, are the gradients of each text's loss with respect to these outputs. The result is
# (H,).
#
# `remove` removes heads from an attention layer. In $W_Q, W_K, W_V$, (D, H·d) each, head h has the d columns from h·d
# on; in $W_O$, (H·d, D), it has the *rows* with the same indices. Return a tuple of the four weights without the heads
# in `removed`, a list of numbers in any order; the other heads keep their order. The smaller attention must give the
# same result as the original one with the gates of the removed heads at 0.
#
# `greedy` chooses `count` heads to remove, one at a time. `losses` is a dictionary: its keys are tuples of removed
# heads in ascending order, its values the loss without them. Each time, remove the head whose removal, *in addition to
# those already removed*, gives the lowest loss; on ties, the lower number. Return the heads in the order of their
# removal, a list of `int`.
#
# - Arrays are float64. `removed` may be empty or contain all heads. Do not change the arguments.

# %%
import numpy as np


def importance(outputs, gradients):
    """Return the importance of the heads from their outputs and gradients: (N, H, T, d) each -> (H,)."""
    # BEGIN SOLUTION
    slopes = (outputs * gradients).sum(axis=(2, 3))
    return np.abs(slopes).mean(axis=0)
    # END SOLUTION


def remove(w_query, w_key, w_value, w_output, heads, removed):
    """Return the weights without the removed heads: (D, H·d) three times, (H·d, D), H, head numbers -> tuple."""
    # BEGIN SOLUTION
    width = w_query.shape[1] // heads
    kept = [h * width + c for h in range(heads) if h not in removed for c in range(width)]
    return w_query[:, kept], w_key[:, kept], w_value[:, kept], w_output[kept]
    # END SOLUTION


def greedy(losses, heads, count):
    """Return the heads to remove, in order: losses by removed heads, number of heads, number to remove -> list."""
    # BEGIN SOLUTION
    removed = []
    for _ in range(count):
        left = [h for h in range(heads) if h not in removed]
        removed.append(min(left, key=lambda h: losses[tuple(sorted([*removed, h]))]))
    return removed
    # END SOLUTION
