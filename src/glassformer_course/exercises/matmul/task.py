# %% [markdown]
# # Dot product and matrix product
#
# Write both with loops, without `@`, `np.dot` or `np.einsum`. Most of the computation in a transformer is matrix
# multiplication, so it is worth seeing once which numbers are multiplied.
#
# `dot` multiplies two vectors of the same length n entry by entry and sums the products:
#
# $$\mathrm{dot}(a, b) = \sum_{j=1}^{n} a_j\, b_j$$
#
# `matmul` computes the dot product of every row of A with every column of B:
#
# $$C_{ik} = \sum_{j=1}^{m} A_{ij}\, B_{jk}$$
#
# - All arrays are float64. `dot` returns a float, `matmul` a new float64 array: (n, m) and (m, p) give (n, p).
# - The shapes always match. n, m and p may differ, and may be 1.
# - m may be 0. An empty sum is 0: `dot` then returns 0.0, and `matmul` an array of zeros.

# %%
import numpy as np


def dot(a, b):
    """Return the sum of the products of matching entries: (n,), (n,) -> float."""
    # BEGIN SOLUTION
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total
    # END SOLUTION


def matmul(A, B):
    """Return the dot product of every row of A with every column of B: (n, m), (m, p) -> (n, p)."""
    # BEGIN SOLUTION
    C = np.zeros((A.shape[0], B.shape[1]))
    for i in range(A.shape[0]):
        for k in range(B.shape[1]):
            C[i, k] = dot(A[i], B[:, k])
    return C
    # END SOLUTION
