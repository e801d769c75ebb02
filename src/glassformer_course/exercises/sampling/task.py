# %% [markdown]
# # Sampling: temperature, top-k, top-p
#
# A model gives a logit for each token of the vocabulary. Write two functions that choose the next token.
#
# `distribution` computes probabilities, in these steps:
#
# 1. **Temperature** $\tau$: divide the logits by it. If $\tau = 0$, the largest logit gets probability 1 (on ties, the
#    lowest id), and the other steps are skipped.
# 2. **Top-k**: keep exactly the `top_k` largest logits; on ties, the lower id comes first. If `top_k` is `None`, or not
#    less than the number of tokens, keep all.
# 3. **Softmax** of the kept logits; all other tokens get probability 0.
# 4. **Top-p**: sort the tokens by probability, largest first; on ties, the lower id comes first. Keep a token if the
#    tokens before it have a total probability less than `top_p`. So the first token is always kept, and the token that
#    reaches `top_p` is the last one kept. A total that misses `top_p` by less than 1e-9 counts as reaching it, to be
#    robust to rounding. If `top_p` is `None`, keep all.
# 5. Divide the remaining probabilities by their sum.
#
# `draw` samples a token from probabilities, given a number $0 \le u < 1$: the first token at which the cumulative sum
# of the probabilities is **greater** than $u$. If rounding makes even the last sum too small, return the last token
# whose probability is not 0.
#
# - `logits` is float64 (V,); some may be `-inf`: such tokens have probability 0. They may be as large as 10,000, and
#   the temperature as small as 1e-6. `top_p` is between 0.01 and 1, `top_k` at least 1.
# - The probabilities are float64 (V,) and sum to 1. The token is an `int`.

# %%
import numpy as np


def distribution(logits, temperature, top_k, top_p):
    """Return probabilities: logits (V,), a float, an int or None, a float or None -> (V,)."""
    # BEGIN SOLUTION
    order = np.argsort(-logits, kind="stable")  # most likely first; ties keep the order of their ids
    result = np.zeros(len(logits))
    if temperature == 0:
        result[order[0]] = 1.0
        return result
    order = order[:top_k]
    exponentials = np.exp((logits[order] - logits[order[0]]) / temperature)
    probabilities = exponentials / exponentials.sum()
    if top_p is not None:
        before = np.concatenate([[0.0], np.cumsum(probabilities)[:-1]])
        probabilities = np.where(before < top_p - 1e-9, probabilities, 0.0)
    result[order] = probabilities / probabilities.sum()
    return result
    # END SOLUTION


def draw(probabilities, u):
    """Sample a token: probabilities (V,), a number in [0, 1) -> int."""
    # BEGIN SOLUTION
    token = int(np.searchsorted(np.cumsum(probabilities), u, side="right"))
    return min(token, int(np.flatnonzero(probabilities)[-1]))
    # END SOLUTION
