"""Reference functions and test cases for `dot` and `matmul`, in plain sums."""

from __future__ import annotations

from collections.abc import Iterator
from math import fsum

import numpy as np

from glassformer.numpy_reference.arrays import Array
from glassformer_course.cases import Case, call
from glassformer_course.drawing import Panel, Picture


def dot(a: Array, b: Array) -> float:
    """Return the dot product, with a correctly rounded sum: (n,), (n,) -> float."""
    return fsum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def matmul(A: Array, B: Array) -> Array:
    """Return A B, computed one entry at a time: (n, m), (m, p) -> (n, p)."""
    C = np.zeros((A.shape[0], B.shape[1]))
    for i, k in np.ndindex(C.shape):
        C[i, k] = dot(A[i, :], B[:, k])
    return C


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Yield cases for vectors, then for square matrices, where a wrong order still fits, then for other shapes."""
    yield call("dot", np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]), note="where the result is 1·4 + 2·5 + 3·6")
    yield call("dot", rng.normal(size=11), rng.normal(size=11), note="where the vectors have 11 entries")
    yield call("dot", np.array([1.0, -1.0]), np.array([3.0, 3.0]), note="where the vectors are at right angles")
    yield call("dot", np.array([-2.5]), np.array([4.0]), note="where the vectors have one entry")
    yield call("dot", np.zeros(0), np.zeros(0), note="where the vectors are empty")
    small = np.array([[1.0, 2.0], [3.0, 4.0]])
    other = np.array([[5.0, 6.0], [7.0, 8.0]])
    yield call("matmul", small, other, note="where A is [[1, 2], [3, 4]] and B is [[5, 6], [7, 8]]")
    yield call("matmul", small, np.array([[0.0, 1.0], [0.0, 0.0]]), note="where B shifts the columns to the right")
    for size in (2, 3, 4, 5):
        yield call("matmul", *rng.normal(size=(2, size, size)), note="where both matrices are square")
    yield call("matmul", np.tril(rng.normal(size=(3, 3))), rng.normal(size=(3, 3)), note="where A is triangular")
    yield call("matmul", rng.normal(size=(7, 5)), rng.normal(size=(5, 3)), note="where the shapes differ")
    yield call("matmul", rng.normal(size=(2, 3)), rng.normal(size=(3, 7)), note="where B is wider than A")
    yield call("matmul", rng.normal(size=(1, 5)), rng.normal(size=(5, 1)), note="where A is one row and B one column")
    yield call("matmul", rng.normal(size=(5, 1)), rng.normal(size=(1, 3)), note="where A is one column and B one row")
    yield call("matmul", rng.normal(size=(3, 4)) * 1e6, rng.normal(size=(4, 2)) * 1e6, note="where numbers are large")
    yield call("matmul", rng.normal(size=(3, 4)), np.eye(4), note="where B is the identity")
    yield call("matmul", np.zeros((2, 0)), np.zeros((0, 3)), note="where there is nothing to sum")


def picture() -> Picture:
    """Draw the product of a matrix of words by features and a matrix of features by questions."""
    words = np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
    questions = np.array([[2.0, 0.0], [1.0, 0.0], [-1.0, 3.0]])
    names = ["cat", "dog", "lion"]
    features = ["tame", "barks", "wild"]
    question_names = ["pet?", "wild?"]
    return Picture(
        [
            Panel("A: words", words, names, features),
            Panel("B: questions", questions, features, question_names),
            Panel("C = A B", matmul(words, questions), names, question_names),
        ],
        caption="C[cat, pet?] is the row of cat times the column of pet?: 1·2 + 0·1 + 1·(-1) = 1.",
    )
