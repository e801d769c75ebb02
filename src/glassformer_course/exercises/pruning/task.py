# %% [markdown]
# # Pruning heads
#
# Many heads can be removed from a trained model. Write three functions: which matter, how one is taken out, and in
# what order.
#
# `importance`: put a gate $\xi_h = 1$ as a factor on the output of each head h. How much does the loss depend on it?
#
# $$I_h = \frac{1}{N} \sum_x \left|\frac{\partial L(x)}{\partial \xi_h}\right| \qquad
# \frac{\partial L(x)}{\partial \xi_h} =
# \sum_{i,c} \mathrm{out}_{xhic}\, \frac{\partial L(x)}{\partial\, \mathrm{out}_{xhic}}$$
#
# `outputs` (N, H, T, d) are what the heads gave for N texts x (before $W_O$), at places i in channels c; `gradients`,
# of the same shape, is the gradient of each text's loss by them. The result is (H,).
#
# `remove` takes heads out of an attention for good. In $W_Q, W_K, W_V$, (D, H·d) each, head h has the d columns from
# h·d on; in $W_O$, (H·d, D), it has the *rows* of these numbers. Give back a tuple of the four without the heads in
# `removed`, a list of numbers in any order; the others keep their order. The smaller attention must give what the
# whole one gives with these gates at 0.
#
# `greedy` chooses `count` heads to remove, one at a time. `losses` is a dictionary: its keys are tuples of removed
# heads in ascending order, its values the loss without them. Each time remove the head whose removal, *besides those
# already gone*, gives the lowest loss; of equal ones the lower number. Give back the heads in the order of their
# removal, a list of `int`.
#
# - Arrays are float64. `removed` may be empty, and so may be what is left. The arguments are not changed.

# %%
import numpy as np


def importance(outputs, gradients):
    """What heads gave, and the losses' gradients by it, (N, H, T, d) each -> I_h, (H,)."""
    # BEGIN SOLUTION
    slopes = (outputs * gradients).sum(axis=(2, 3))
    return np.abs(slopes).mean(axis=0)
    # END SOLUTION


def remove(w_query, w_key, w_value, w_output, heads, removed):
    """Three weights (D, H·d), one (H·d, D), the int H, head numbers -> a tuple of the four with fewer heads."""
    # BEGIN SOLUTION
    width = w_query.shape[1] // heads
    kept = [h * width + c for h in range(heads) if h not in removed for c in range(width)]
    return w_query[:, kept], w_key[:, kept], w_value[:, kept], w_output[kept]
    # END SOLUTION


def greedy(losses, heads, count):
    """Losses by removed heads, the number of heads, how many to remove -> their numbers, the first removed first."""
    # BEGIN SOLUTION
    gone = []
    for _ in range(count):
        left = [h for h in range(heads) if h not in gone]
        gone.append(min(left, key=lambda h: losses[tuple(sorted([*gone, h]))]))
    return gone
    # END SOLUTION
