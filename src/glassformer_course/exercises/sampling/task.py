# %% [markdown]
# # Sampling: temperature, top-k, top-p
#
# A model gives a logit for each token of the vocabulary. Write two functions that make the next token of it.
#
# `distribution` makes probabilities, in this order:
#
# 1. **Temperature** $\tau$: the logits are divided by it. $\tau = 0$ means: all probability on the largest logit; of
#    equal ones on the lowest id. Nothing else is done then.
# 2. **Top-k**: only the `top_k` largest logits stay, exactly so many. Of equal ones the lower id comes first. `None`,
#    or as many as there are tokens or more: all stay.
# 3. **Softmax** of those that stay; the others get probability 0.
# 4. **Top-p**: go through the tokens from the likeliest down, of equal ones the lower id first. A token stays if the
#    likelier ones before it have together less than `top_p`. So the first always stays, and the one that reaches
#    `top_p` is the last. A sum that misses `top_p` by less than 1e-9 has reached it: rounding must not decide.
#    `None`: all stay.
# 5. What is left is divided by its sum.
#
# `draw` makes a token of probabilities and a number $0 \le u < 1$: the first token at which the running sum of the
# probabilities is **greater** than $u$. If rounding keeps even the last sum from that, it is the last token whose
# probability is not 0.
#
# - `logits` is float64 (V,); some may be `-inf`: such tokens have probability 0. They may be as large as 10,000, and
#   the temperature as small as 1e-6. `top_p` is between 0.01 and 1, `top_k` at least 1.
# - The probabilities are float64 (V,) and sum to 1. The token is an `int`.

# %%
import numpy as np


def distribution(logits, temperature, top_k, top_p):
    """Logits (V,), a float, an int or None, a float or None -> probabilities (V,)."""
    # BEGIN SOLUTION
    order = np.argsort(-logits, kind="stable")  # likeliest first; equal ones stay in the order of their ids
    result = np.zeros(len(logits))
    if temperature == 0:
        result[order[0]] = 1.0
        return result
    order = order[:top_k]
    grown = np.exp((logits[order] - logits[order[0]]) / temperature)
    shares = grown / grown.sum()
    if top_p is not None:
        before = np.concatenate([[0.0], np.cumsum(shares)[:-1]])
        shares = np.where(before < top_p - 1e-9, shares, 0.0)
    result[order] = shares / shares.sum()
    return result
    # END SOLUTION


def draw(probabilities, u):
    """Probabilities (V,) and a number in [0, 1) -> the token that it falls on."""
    # BEGIN SOLUTION
    place = int(np.searchsorted(np.cumsum(probabilities), u, side="right"))
    return min(place, int(np.flatnonzero(probabilities)[-1]))
    # END SOLUTION
