# %% [markdown]
# # The tied output layer
#
# A tied model has one table $E$ of V vectors for two uses. At its input, token $id_t$ becomes the row
# $x_t = E_{id_t}$. At its output, the last hidden vectors $h$ are compared with all rows:
#
# $$logits = h\, E^\top$$
#
# Write that output layer, and the gradient of the table. What lies between $x$ and $h$ does not matter here: its
# backward pass has been done already and gave `dx`.
#
# - `tied_logits`: `h` is float64 (T, D), `table` float64 (V, D); the result is (T, V).
# - `tied_backward` gives the gradient of the table, float64 (V, D). `ids` is an int64 array (T,); `h` (T, D) are the
#   hidden vectors; `dlogits` (T, V) and `dx` (T, D) are the gradients of some loss with respect to the logits and to
#   the vectors that were looked up; `table` (V, D).
# - The table is used twice, so its gradient is the *sum* of both uses.
# - The same id may stand at several places; some ids stand nowhere.
# - The results are new arrays; no argument is changed.

# %%
import numpy as np


def tied_logits(h, table):
    """How well each hidden vector fits each token's row: (T, D), (V, D) -> (T, V)."""
    # BEGIN SOLUTION
    return h @ table.T
    # END SOLUTION


def tied_backward(ids, h, dlogits, dx, table):
    """The gradient of the table, (V, D), from both of its uses."""
    # BEGIN SOLUTION
    dtable = dlogits.T @ h
    np.add.at(dtable, ids, dx)
    return dtable
    # END SOLUTION
