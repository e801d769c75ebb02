# %% [markdown]
# # A bigram language model
#
# A bigram model is a very simple language model: it predicts the next token from the previous token alone, and is
# trained by counting.
#
# - `count(ids, size)`: the number of times that token b follows token a, as an **int64** array (V, V) with V = `size`.
#   Rows are the first token, columns the next. `ids` is an int64 array of length N, so it has N - 1 pairs.
# - `probabilities(counts, k)`: the counts as probabilities, float64 (V, V), with k > 0 added to every count, as in
#   the formula below. Every row sums to 1; for a token that never occurred, all V next tokens are equally likely.
# - `nats_per_token(ids, p)`: the mean of $-\ln p(b \mid a)$ over the N - 1 pairs of `ids`, a float. It measures the
#   model on a text, preferably one that was not used for counting. `ids` has at least two tokens.
#
# $$p(b \mid a) = \frac{c_{ab} + k}{\sum_{b'} (c_{ab'} + k)}$$

# %%
import numpy as np


def count(ids, size):
    """Count how often each token follows each token: (N,), V -> int64 (V, V), [token, next token]."""
    # BEGIN SOLUTION
    counts = np.zeros((size, size), dtype=np.int64)
    for position in range(len(ids) - 1):
        counts[ids[position], ids[position + 1]] += 1
    return counts
    # END SOLUTION


def probabilities(counts, k):
    """Add k to every count and divide each row by its sum: (V, V), float -> (V, V)."""
    # BEGIN SOLUTION
    added = counts + k
    return added / added.sum(axis=1, keepdims=True)
    # END SOLUTION


def nats_per_token(ids, p):
    """Return the mean of -ln p over all adjacent pairs: (N,), (V, V) -> float."""
    # BEGIN SOLUTION
    return float(-np.log(p[ids[:-1], ids[1:]]).mean())
    # END SOLUTION
