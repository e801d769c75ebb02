# %% [markdown]
# # A bigram language model
#
# The smallest language model: it looks at one token and says how likely each next one is. It is learnt by counting.
#
# - `count(ids, size)`: how often token b comes right after token a, as an **int64** array (V, V) with V = `size`. The
#   row is the token before, the column the one after. `ids` is an int64 array of length N, so it has N - 1 pairs.
# - `probabilities(counts, k)`: the counts as probabilities, float64 (V, V), with k > 0 added to every count, as in
#   the formula below. Every row sums to 1, also that of a token that never came: all V tokens are then equally likely.
# - `nats_per_token(ids, p)`: the mean of $-\ln p(b \mid a)$ over the N - 1 pairs of `ids`, a float. It says how
#   well the model does on a text; take one that it was not counted on. `ids` has at least two tokens.
#
# $$p(b \mid a) = \frac{c_{ab} + k}{\sum_{b'} (c_{ab'} + k)}$$

# %%
import numpy as np


def count(ids, size):
    """How often each token follows each: (N,), V -> int64 (V, V), [before, after]."""
    # BEGIN SOLUTION
    counts = np.zeros((size, size), dtype=np.int64)
    for place in range(len(ids) - 1):
        counts[ids[place], ids[place + 1]] += 1
    return counts
    # END SOLUTION


def probabilities(counts, k):
    """Each row with k added everywhere, divided by its sum: (V, V), float -> (V, V)."""
    # BEGIN SOLUTION
    added = counts + k
    return added / added.sum(axis=1, keepdims=True)
    # END SOLUTION


def nats_per_token(ids, p):
    """The mean of -ln p over all pairs of neighbours: (N,), (V, V) -> float."""
    # BEGIN SOLUTION
    return float(-np.log(p[ids[:-1], ids[1:]]).mean())
    # END SOLUTION
