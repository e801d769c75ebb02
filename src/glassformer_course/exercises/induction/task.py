# %% [markdown]
# # An induction head, built by hand
#
# Two heads can copy: in "... A B ... A" they find what followed A the last time, and say B. Write their weights, no
# training needed. V is the number of tokens, P the number of places. The residual stream has D = 3V + P channels, in
# four blocks:
#
# | block | channels | holds |
# |---|---|---|
# | token | 0 … V - 1 | 1 in the channel of the token, else 0 |
# | place | V … V + P - 1 | 1 in the channel of the place, else 0 |
# | previous | V + P … 2V + P - 1 | empty; the first head writes here which token stood before |
# | next | 2V + P … 3V + P - 1 | empty; the second head writes here which token comes next |
#
# A head is two matrices (D, D). QK says where to look, OV what is taken from there; `head` below runs it:
#
# $$\mathrm{score}_{ij} = x_i\, QK\, x_j^\top \qquad A = \mathrm{softmax}(\mathrm{score},\ j \le i) \qquad
# x_i \leftarrow x_i + \sum_j A_{ij}\, x_j\, OV$$
#
# - `previous_token_head`: the place i gives a score of 100 to the place i - 1, for i ≥ 1. It takes the token found
#   there and writes it, with factor 1, into *previous*.
# - `induction_head`: a place gives a score of 100 to all places whose *previous* is its own *token*. It takes the
#   token found there and writes it, with factor 1, into *next*.
# - All other numbers in the four matrices are 0. They are float64.
# - `induction_score` measures any head, from its attention `weights`. For each place i whose token stood earlier in
#   the text, add up the weights on the places right after those earlier copies: all j ≤ i with j ≥ 1 and token j - 1
#   = token i. The score is the mean of these sums over such places i; 0.0 if there is none.

# %%
import numpy as np


def stream(tokens, V, P):
    """Given: the residual stream at the start, tokens (T,) -> (T, 3V + P), T at most P."""
    x = np.zeros((len(tokens), 3 * V + P))
    x[np.arange(len(tokens)), tokens] = 1.0
    x[np.arange(len(tokens)), V + np.arange(len(tokens))] = 1.0
    return x


def head(x, qk, ov):
    """Given: the attention (T, T) of a head, and the stream (T, D) after it."""
    scores = np.where(np.tri(len(x), dtype=bool), x @ qk @ x.T, -np.inf)
    grown = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = grown / grown.sum(axis=-1, keepdims=True)
    return weights, x + weights @ x @ ov


def previous_token_head(V, P):
    """Two ints -> QK and OV, (D, D) each."""
    # BEGIN SOLUTION
    D = 3 * V + P
    qk = np.zeros((D, D))
    ov = np.zeros((D, D))
    for place in range(1, P):
        qk[V + place, V + place - 1] = 100.0
    for token in range(V):
        ov[token, V + P + token] = 1.0
    return qk, ov
    # END SOLUTION


def induction_head(V, P):
    """Two ints -> QK and OV, (D, D) each."""
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
    """Attention weights (T, T), row i the query's, and token ids (T,) -> a float between 0 and 1."""
    # BEGIN SOLUTION
    found = []
    for i in range(len(tokens)):
        if tokens[i] in tokens[:i]:
            found.append(sum(weights[i, j] for j in range(1, i + 1) if tokens[j - 1] == tokens[i]))
    return float(np.mean(found)) if found else 0.0
    # END SOLUTION
