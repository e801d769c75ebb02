"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake


def _overwritten(ids, dX, size):
    gradient = np.zeros((size, dX.shape[-1]))
    gradient[ids] += dX
    return gradient


def _mean(ids, dX, size):
    gradient = np.zeros((size, dX.shape[-1]))
    np.add.at(gradient, ids, dX)
    return gradient / np.maximum(np.bincount(ids.reshape(-1), minlength=size), 1)[:, None]


def _used_rows(ids, dX, size):
    flat = ids.reshape(-1)
    return np.stack([dX.reshape(-1, dX.shape[-1])[flat == token].sum(axis=0) for token in np.unique(flat)])


def _by_position(ids, dX, size):
    return dX.copy()


def _columns(ids, table):
    return table[:, ids % table.shape[1]].T


def _transposed(ids, size):
    return np.moveaxis((ids[..., None] == np.arange(size)).astype(np.float64), -1, 0)


def _of_booleans(ids, size):
    return ids[..., None] == np.arange(size)


def _rows_of_identity(ids, size):
    return np.eye(size)[ids]


def _product(ids, table):
    return _rows_of_identity(ids, len(table)) @ table


def _transposed_product(ids, dX, size):
    flat = dX.reshape(-1, dX.shape[-1])
    return np.einsum("pv,pd->vd", _rows_of_identity(ids.reshape(-1), size), flat)


def _stacked(ids, table):
    return np.stack([table[token] for token in ids.reshape(-1)]).reshape(*ids.shape, -1)


def _token_by_token(ids, dX, size):
    return np.stack([dX[ids == token].sum(axis=0) for token in range(size)])


MISTAKES = [
    Mistake(
        "repeated tokens overwrite each other",
        "gradient[ids] += dX keeps only the last of equal ids: NumPy computes all sums first and then assigns them. "
        "np.add.at adds for every occurrence.",
        {"table_gradient": _overwritten},
    ),
    Mistake(
        "repeated tokens get the mean",
        "The loss depends on the row through every position that looked it up, and the chain rule sums all gradients. "
        "Do not divide by the number of occurrences.",
        {"table_gradient": _mean},
    ),
    Mistake(
        "only the tokens that occur have rows",
        "The gradient has the shape of the table, (V, D). Tokens that do not occur have rows of 0.",
        {"table_gradient": _used_rows},
    ),
    Mistake(
        "the gradient of each position, not of each token",
        "dX has a row for each position of the text. Add each of its rows to the row of the token at that position.",
        {"table_gradient": _by_position},
    ),
    Mistake(
        "columns of the table",
        "Each token has a row of the table, table[id]; its columns are the D features.",
        {"look_up": _columns},
    ),
    Mistake(
        "the one-hot array is transposed",
        "The axes of the ids come first, the axis of the vocabulary last: (..., V).",
        {"one_hot": _transposed},
    ),
    Mistake(
        "one-hot of True and False",
        "A comparison gives booleans. Convert them to numbers: .astype(np.float64).",
        {"one_hot": _of_booleans},
    ),
]
ALSO_RIGHT = [
    {"one_hot": _rows_of_identity, "look_up": _product, "table_gradient": _transposed_product},
    {"look_up": _stacked, "table_gradient": _token_by_token},
]
