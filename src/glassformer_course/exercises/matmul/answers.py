"""Wrong answers with their names, and right ones written in other ways."""

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
        "A dot product is one number: add the products of all entries up.",
        {"dot": _unsummed},
    ),
    Mistake(
        "the last term is missing",
        "range(n) already stops before n. With range(n - 1) the last product is never added.",
        {"dot": _short_dot, "matmul": _short_matmul},
    ),
    Mistake(
        "the second matrix is transposed",
        "Rows of A met rows of B here. A row of A meets a column of B: in B[j, k] the summed index j comes first.",
        {"matmul": _second_transposed},
    ),
    Mistake(
        "multiplied entry by entry",
        "A * B multiplies the entries at the same place. A matrix product sums along a row of A and a column of B.",
        {"matmul": _entry_by_entry},
    ),
    Mistake(
        "overwritten instead of added",
        "Each new product replaced the one before, so only the last term is left. Start from 0 and add: +=.",
        {"matmul": _overwritten},
    ),
    Mistake(
        "the factors are exchanged",
        "This is B A. The order matters: A B takes its rows from A and its columns from B.",
        {"matmul": _exchanged},
    ),
    Mistake(
        "the result is transposed",
        "Row and column of the result are exchanged. C[i, k] belongs to row i of A and column k of B.",
        {"matmul": _result_transposed},
    ),
]
ALSO_RIGHT = [
    {"dot": _with_zip, "matmul": _sum_of_outer_products},
    {"dot": lambda a, b: float(a @ b), "matmul": _einsum},
]
