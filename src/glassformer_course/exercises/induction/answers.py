"""Known mistakes, and alternative correct solutions."""

from itertools import pairwise

import numpy as np

from glassformer_course.cases import Mistake


def _blocks(V, P):
    """Return the channels of the four blocks of the stream."""
    edges = [0, V, V + P, 2 * V + P, 3 * V + P]
    return [np.arange(a, b) for a, b in pairwise(edges)]


def _matrix(V, P, rows, columns, value):
    result = np.zeros((3 * V + P, 3 * V + P))
    result[rows, columns] = value
    return result


def _looks_ahead(V, P):
    token, position, previous, _ = _blocks(V, P)
    return _matrix(V, P, position[:-1], position[1:], 100.0), _matrix(V, P, token, previous, 1.0)


def _looks_at_itself(V, P):
    token, position, previous, _ = _blocks(V, P)
    return _matrix(V, P, position, position, 100.0), _matrix(V, P, token, previous, 1.0)


def _over_the_token(V, P):
    token, position, _, _ = _blocks(V, P)
    return _matrix(V, P, position[1:], position[:-1], 100.0), _matrix(V, P, token, token, 1.0)


def _finds_the_copy(V, P):
    token, _, _, following = _blocks(V, P)
    return _matrix(V, P, token, token, 100.0), _matrix(V, P, token, following, 1.0)


def _turned_round(V, P):
    token, _, previous, following = _blocks(V, P)
    return _matrix(V, P, previous, token, 100.0), _matrix(V, P, token, following, 1.0)


def _says_the_previous(V, P):
    token, _, previous, following = _blocks(V, P)
    return _matrix(V, P, token, previous, 100.0), _matrix(V, P, previous, following, 1.0)


def _sums(weights, tokens, shift):
    """Return a dictionary from row to sum of weights, for the rows whose token also occurs earlier.

    The weights are those on the earlier copies (`shift` 0) or on the tokens after these copies (`shift` 1).
    """
    return {
        i: sum(weights[i, p + shift] for p in range(i) if tokens[p] == tokens[i])
        for i in range(len(tokens))
        if tokens[i] in tokens[:i]
    }


def _on_the_copy(weights, tokens):
    sums = _sums(weights, tokens, 0)
    return float(np.mean(list(sums.values()))) if sums else 0.0


def _over_all_rows(weights, tokens):
    return float(sum(_sums(weights, tokens, 1).values()) / len(tokens))


def _last_copy_only(weights, tokens):
    scores = []
    for i in range(len(tokens)):
        before = [p for p in range(i) if tokens[p] == tokens[i]]
        if before:
            scores.append(weights[i, before[-1] + 1])
    return float(np.mean(scores)) if scores else 0.0


def _no_number(weights, tokens):
    sums = list(_sums(weights, tokens, 1).values())
    return float(np.sum(sums) / np.float64(len(sums)))


def _previous_by_index(V, P):
    token, position, previous, _ = _blocks(V, P)
    return _matrix(V, P, position[1:], position[:-1], 100.0), _matrix(V, P, token, previous, 1.0)


def _induction_by_index(V, P):
    token, _, previous, following = _blocks(V, P)
    return _matrix(V, P, token, previous, 100.0), _matrix(V, P, token, following, 1.0)


def _score_by_sums(weights, tokens):
    sums = _sums(weights, tokens, 1)
    return float(sum(sums.values()) / max(len(sums), 1))


def _previous_by_diagonals(V, P):
    D = 3 * V + P
    i, j = np.indices((D, D))
    qk = 100.0 * ((i == j + 1) & (j >= V) & (i < V + P))
    return qk, 1.0 * ((j == i + V + P) & (i < V))


def _induction_by_diagonals(V, P):
    D = 3 * V + P
    qk = np.eye(D, k=V + P) * 100
    ov = np.eye(D, k=2 * V + P)
    qk[V:] = 0
    ov[V:] = 0
    return qk, ov


def _score_by_matrices(weights, tokens):
    same = np.tril(np.equal.outer(tokens, tokens), -1).astype(float)
    after = np.roll(same, 1, axis=1)
    rows = same.sum(axis=1) > 0
    return float(np.einsum("ij,ij,i->", weights, after, rows / max(rows.sum(), 1)))


MISTAKES = [
    Mistake(
        "the first head attends to the next position",
        "Position i has its score with i + 1, which the causal mask hides. Rows of QK belong to the query: row "
        "position i, column position i - 1.",
        {"previous_token_head": _looks_ahead},
    ),
    Mistake(
        "the first head attends to the same position",
        "Every position finds its own token instead of the previous one. Row position i needs its 100 in column "
        "position i - 1.",
        {"previous_token_head": _looks_at_itself},
    ),
    Mistake(
        "the first head writes over the token",
        "The previous token was added to the block *token*, which then contains two tokens that cannot be "
        "distinguished. Write into the empty block *previous*.",
        {"previous_token_head": _over_the_token},
    ),
    Mistake(
        "the second head finds the copy itself",
        "*token* was compared with *token*, so the head attends to the earlier A and predicts A. Compare the query's "
        "*token* with the key's *previous*: that finds the position after A.",
        {"induction_head": _finds_the_copy},
    ),
    Mistake(
        "query and key are swapped",
        "The query's *previous* was compared with the key's *token*. Rows of QK belong to the query: row *token*, "
        "column *previous*.",
        {"induction_head": _turned_round},
    ),
    Mistake(
        "the second head predicts the previous token",
        "The head attends to the right position, but copies its previous token, which is A again. OV must copy the "
        "block *token*.",
        {"induction_head": _says_the_previous},
    ),
    Mistake(
        "the score is on the copy",
        "A head with weight on the earlier copy is a duplicate-token head. An induction head attends to the position "
        "after it.",
        {"induction_score": _on_the_copy},
    ),
    Mistake(
        "the mean is over all positions",
        "A position with a new token has no earlier copy. If such positions count, a perfect head scores less than 1: "
        "divide by the number of positions with an earlier copy.",
        {"induction_score": _over_all_rows},
    ),
    Mistake(
        "only the last copy counts",
        "A token can have several earlier copies: sum the weights after all of them.",
        {"induction_score": _last_copy_only},
    ),
    Mistake(
        "the mean of no positions is NaN",
        "A text without repeated tokens has no positions to count. The score is 0.0 then.",
        {"induction_score": _no_number},
    ),
]
ALSO_RIGHT = [
    {
        "previous_token_head": _previous_by_index,
        "induction_head": _induction_by_index,
        "induction_score": _score_by_sums,
    },
    {
        "previous_token_head": _previous_by_diagonals,
        "induction_head": _induction_by_diagonals,
        "induction_score": _score_by_matrices,
    },
]
