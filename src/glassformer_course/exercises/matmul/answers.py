"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake


def _unsummed(a, b):
    return a * b


def _short_dot(a, b):
    return float(sum(a[j] * b[j] for j in range(len(a) - 1)))


def _short_matmul(A, B):
    return np.array([[_short_dot(row, column) for column in B.T] for row in A]).reshape(len(A), B.shape[1])


def _second_transposed(A, B):
    return A @ B.T


def _entry_by_entry(A, B):
    return A * B


def _overwritten(A, B):
    C = np.zeros((A.shape[0], B.shape[1]))
    for i in range(A.shape[0]):
        for k in range(B.shape[1]):
            for j in range(A.shape[1]):
                C[i, k] = A[i, j] * B[j, k]
    return C


def _exchanged(A, B):
    return B @ A


def _result_transposed(A, B):
    return np.array([[row @ column for row in A] for column in B.T])


def _with_zip(a, b):
    return float(sum((x * y for x, y in zip(a, b, strict=True)), 0.0))


def _sum_of_outer_products(A, B):
    C = np.zeros((A.shape[0], B.shape[1]))
    for j in range(A.shape[1]):
        C += A[:, j, None] * B[None, j, :]
    return C


def _einsum(A, B):
    return np.einsum("ij,jk->ik", A, B)


MISTAKES = [
    Mistake(
        "the products are not summed",
        "A dot product is one number: sum the products of all entries.",
        {"dot": _unsummed},
    ),
    Mistake(
        "the last term is missing",
        "range(n) already stops before n, so range(n - 1) leaves out the last product.",
        {"dot": _short_dot, "matmul": _short_matmul},
    ),
    Mistake(
        "the second matrix is transposed",
        "This multiplies rows of A by rows of B. Multiply rows of A by columns of B: in B[j, k], the summed index j "
        "is first.",
        {"matmul": _second_transposed},
    ),
    Mistake(
        "multiplied entry by entry",
        "A * B multiplies entries at the same index. Matrix multiplication sums along a row of A and a column of B.",
        {"matmul": _entry_by_entry},
    ),
    Mistake(
        "overwritten instead of added",
        "Each new product replaced the previous one, so only the last term is left. Start at 0 and add: +=.",
        {"matmul": _overwritten},
    ),
    Mistake(
        "the factors are swapped",
        "This is B A. The order matters: A B takes its rows from A and its columns from B.",
        {"matmul": _exchanged},
    ),
    Mistake(
        "the result is transposed",
        "Rows and columns of the result are swapped. C[i, k] belongs to row i of A and column k of B.",
        {"matmul": _result_transposed},
    ),
]
ALSO_RIGHT = [
    {"dot": _with_zip, "matmul": _sum_of_outer_products},
    {"dot": lambda a, b: float(a @ b), "matmul": _einsum},
]
