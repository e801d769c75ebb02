# %% [markdown]
# # Beam search
#
# Find likely texts, not one drawn text. The model here is a table: `table[a, b]` is the natural logarithm of the
# probability that token b follows token a. A *hypothesis* is a list of tokens; its log-probability is the sum over
# its tokens, the first of which follows `bos`. `bos` itself is not part of it. Write `beam_search`:
#
# 1. At the start one hypothesis runs: the empty one, with log-probability 0.
# 2. A step extends every running hypothesis by every token of the vocabulary. Extensions of log-probability `-inf` do
#    not exist. The `beams` extensions with the highest log-probability are kept; of equal ones first those of the
#    hypothesis that was ranked higher before the step, then the lower token.
# 3. A kept hypothesis that ends in `eos` is finished: it is set aside and never extended. The others run on, in this
#    order.
# 4. After `most` steps, or when nothing runs any more, it is over. What still runs then is finished as it is.
# 5. Finished hypotheses are ranked by their score: log-probability divided by the length penalty (n tokens, `eos`
#    counts):
#
# $$\mathrm{penalty}(n) = \left(\frac{5 + n}{6}\right)^{\alpha}$$
#
# Give back the `beams` best as a list of tuples `(tokens, score)`: a list of `int` and a `float`, best first; of
# equal scores the one that was finished first, in the order of steps 3 and 4.
#
# - `table` is float64 (V, V), its numbers multiples of $2^{-20}$: sums are exact, whatever their order.
# - `most` and `beams` are at least 1, `alpha` is 0 or more.

# %%
import numpy as np


def beam_search(table, bos, eos, beams, most, alpha):
    """Table (V, V), two token ids, three numbers as above -> the best (tokens, score), at most `beams` of them."""
    # BEGIN SOLUTION
    running = [([bos], 0.0)]
    finished = []
    for _ in range(most):
        extended = []
        for tokens, total in running:
            for token, step in enumerate(table[tokens[-1]]):
                if step > -np.inf:
                    extended.append(([*tokens, token], total + float(step)))
        extended.sort(key=lambda one: -one[1])  # a stable sort: equal ones keep their order
        kept = extended[:beams]
        finished += [one for one in kept if one[0][-1] == eos]
        running = [one for one in kept if one[0][-1] != eos]
    finished += running
    scored = [(tokens[1:], total / ((4 + len(tokens)) / 6) ** alpha) for tokens, total in finished]  # without bos
    return sorted(scored, key=lambda one: -one[1])[:beams]
    # END SOLUTION
