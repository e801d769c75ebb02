# %% [markdown]
# # Embedding and its gradient
#
# A token's id is only a label. The embedding table E holds one vector of D numbers for each of V tokens, and looking up
# a token is the same as multiplying its one-hot vector by the table:
#
# $$X = \mathrm{onehot}(\mathrm{ids})\, E \qquad\Rightarrow\qquad
# \frac{\partial L}{\partial E} = \mathrm{onehot}(\mathrm{ids})^\top\, \frac{\partial L}{\partial X}$$
#
# - `one_hot(ids, size)`: float64 (..., V) with V = `size`: 1 at the index of the id, 0 elsewhere.
# - `look_up(ids, table)`: each id's row of the table, float64 (..., D). The result equals `one_hot(ids, V) @ table`.
# - `table_gradient(ids, dX, size)`: `dX` (..., D) is the gradient of the loss with respect to each vector looked up;
#   the result, float64 (V, D), is the gradient of the table. **A token that occurs at several positions gets the sum**
#   of their gradients; the row of a token that does not occur is 0.
#
# `ids` is int64 with any number of axes, written (...); all ids are 0 to V - 1. Ids may repeat.

# %%
import numpy as np


def one_hot(ids, size):
    """Return vectors with 1 at the index of each id, 0 elsewhere: (...) -> (..., V)."""
    # BEGIN SOLUTION
    return (ids[..., None] == np.arange(size)).astype(np.float64)
    # END SOLUTION


def look_up(ids, table):
    """Return the row of each id: (...), (V, D) -> (..., D)."""
    # BEGIN SOLUTION
    return table[ids]
    # END SOLUTION


def table_gradient(ids, dX, size):
    """Return the gradient of the table: (...), (..., D), V -> (V, D)."""
    # BEGIN SOLUTION
    gradient = np.zeros((size, dX.shape[-1]))
    np.add.at(gradient, ids, dX)
    return gradient
    # END SOLUTION
