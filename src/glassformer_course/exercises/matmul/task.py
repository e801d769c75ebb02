# %% [markdown]
# # Dot product and matrix product
#
# Write both from loops, without `@`, `np.dot` or `np.einsum`: a transformer does little else, so see once which numbers
# meet.
#
# `dot` multiplies two vectors of the same length n entry by entry and adds up:
#
# $$\mathrm{dot}(a, b) = \sum_{j=1}^{n} a_j\, b_j$$
#
# `matmul` does that for every row of A with every column of B:
#
# $$C_{ik} = \sum_{j=1}^{m} A_{ij}\, B_{jk}$$
#
# - All arrays are float64. `dot` gives a float, `matmul` a new float64 array: (n, m) and (m, p) give (n, p).
# - The shapes always fit. n, m and p may differ, and may be 1.
# - m may be 0. A sum of nothing is 0: `dot` then gives 0.0, `matmul` an array of zeros.

# %%
import numpy as np


def dot(a, b):
    """The sum of the products of matching entries: (n,), (n,) -> float."""
    # BEGIN SOLUTION
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total
    # END SOLUTION


def matmul(A, B):
    """Every row of A with every column of B: (n, m), (m, p) -> (n, p)."""
    # BEGIN SOLUTION
    C = np.zeros((A.shape[0], B.shape[1]))
    for i in range(A.shape[0]):
        for k in range(B.shape[1]):
            C[i, k] = dot(A[i], B[:, k])
    return C
    # END SOLUTION
