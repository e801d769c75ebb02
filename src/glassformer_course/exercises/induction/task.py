# %% [markdown]
# # An induction head, built by hand
#
# Two heads can copy: in "... A B ... A" they find the token that followed A before, and predict B. Write their weights
# by hand, without training. V is the number of tokens, P the number of positions. The residual stream has D = 3V + P
# channels, in four blocks:
#
# | block | channels | contents |
# |---|---|---|
# | token | 0 … V - 1 | 1 in the channel of the token, else 0 |
# | position | V … V + P - 1 | 1 in the channel of the position, else 0 |
# | previous | V + P … 2V + P - 1 | empty; the first head writes the previous token here |
# | next | 2V + P … 3V + P - 1 | empty; the second head writes the predicted next token here |
#
# A head is two matrices (D, D). QK determines the attention scores, OV the output; `head` below runs it:
#
# $$\mathrm{score}_{ij} = x_i\, QK\, x_j^\top \qquad A = \mathrm{softmax}(\mathrm{score},\ j \le i) \qquad
# x_i \leftarrow x_i + \sum_j A_{ij}\, x_j\, OV$$
#
# - `previous_token_head`: position i has a score of 100 with position i - 1, for i ≥ 1. The head copies the *token* of
#   that position, with factor 1, into *previous*.
# - `induction_head`: a position has a score of 100 with all positions whose *previous* is its own *token*. The head
#   copies their *token*, with factor 1, into *next*.
# - All other numbers in the four matrices are 0. The matrices are float64.
# - `induction_score` measures any head, from its attention `weights`. For each position i whose token occurred earlier
#   in the text, sum the weights on the positions right after those earlier copies: all j ≤ i with j ≥ 1 and token j - 1
#   = token i. The score is the mean of these sums over such positions i; 0.0 if there are none.

# %%
import numpy as np


def stream(tokens, V, P):
    """Return the initial residual stream: (T,) -> (T, 3V + P), T at most P. (Nothing to write here.)"""
    x = np.zeros((len(tokens), 3 * V + P))
    x[np.arange(len(tokens)), tokens] = 1.0
    x[np.arange(len(tokens)), V + np.arange(len(tokens))] = 1.0
    return x


def head(x, qk, ov):
    """Return the attention weights (T, T) of a head, and the stream (T, D) after it. (Nothing to write here.)"""
    scores = np.where(np.tri(len(x), dtype=bool), x @ qk @ x.T, -np.inf)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return weights, x + weights @ x @ ov


def previous_token_head(V, P):
    """Return QK and OV of the head, (D, D) each."""
    # BEGIN SOLUTION
    D = 3 * V + P
    qk = np.zeros((D, D))
    ov = np.zeros((D, D))
    for position in range(1, P):
        qk[V + position, V + position - 1] = 100.0
    for token in range(V):
        ov[token, V + P + token] = 1.0
    return qk, ov
    # END SOLUTION


def induction_head(V, P):
    """Return QK and OV of the head, (D, D) each."""
    # BEGIN SOLUTION
    D = 3 * V + P
    qk = np.zeros((D, D))
    ov = np.zeros((D, D))
    for token in range(V):
        qk[token, V + P + token] = 100.0
        ov[token, 2 * V + P + token] = 1.0
    return qk, ov
    # END SOLUTION


def induction_score(weights, tokens):
    """Return the induction score: weights (T, T), with a row per query, token ids (T,) -> float from 0 to 1."""
    # BEGIN SOLUTION
    found = []
    for i in range(len(tokens)):
        if tokens[i] in tokens[:i]:
            found.append(sum(weights[i, j] for j in range(1, i + 1) if tokens[j - 1] == tokens[i]))
    return float(np.mean(found)) if found else 0.0
    # END SOLUTION
