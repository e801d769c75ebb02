# %% [markdown]
# # The tied output layer
#
# A tied model uses one table $E$ of V vectors twice. At the input, token $id_t$ becomes the row $x_t = E_{id_t}$. At
# the output, the logits are the dot products of the last hidden vectors $h$ with all rows:
#
# $$logits = h\, E^\top$$
#
# Write this output layer, and the gradient of the table. The layers between $x$ and $h$ do not matter here: their
# backward pass has already computed `dx`.
#
# - `tied_logits`: `h` is float64 (T, D), `table` float64 (V, D); the result is (T, V).
# - `tied_backward` returns the gradient of the table, float64 (V, D). `ids` is an int64 array (T,); `h` (T, D) are the
#   hidden vectors; `dlogits` (T, V) and `dx` (T, D) are the gradients of a loss with respect to the logits and to the
#   vectors looked up; `table` is (V, D).
# - The table is used twice, so its gradient is the *sum* of the gradients of both uses.
# - The same id may occur at several positions; some ids do not occur.
# - The results are new arrays; do not change the arguments.

# %%
import numpy as np


def tied_logits(h, table):
    """Return the dot product of each hidden vector with each row of the table: (T, D), (V, D) -> (T, V)."""
    # BEGIN SOLUTION
    return h @ table.T
    # END SOLUTION


def tied_backward(ids, h, dlogits, dx, table):
    """Return the gradient of the table, (V, D), from both of its uses."""
    # BEGIN SOLUTION
    dtable = dlogits.T @ h
    np.add.at(dtable, ids, dx)
    return dtable
    # END SOLUTION
