# %% [markdown]
# # Beam search
#
# Search for likely texts instead of sampling one. The model here is a table: `table[a, b]` is the natural logarithm of
# the probability that token b follows token a. A *hypothesis* is a list of tokens; its log-probability is the sum over
# its tokens, the first of which follows `bos`. `bos` itself is not part of it. Write `beam_search`:
#
# 1. Start with one active hypothesis: the empty one, with log-probability 0.
# 2. A step extends every active hypothesis by every token of the vocabulary. Discard extensions with log-probability
#    `-inf`. Keep the `beams` extensions with the highest log-probability; on ties, prefer the hypothesis that was
#    ranked higher before the step, then the lower token.
# 3. A kept hypothesis that ends in `eos` is finished: set it aside and never extend it. The others stay active, in this
#    order.
# 4. Stop after `most` steps, or if no hypothesis is active. Hypotheses that are still active then become finished.
# 5. Finished hypotheses are ranked by their score: the log-probability divided by the length penalty, for n tokens
#    including `eos`:
#
# $$\mathrm{penalty}(n) = \left(\frac{5 + n}{6}\right)^{\alpha}$$
#
# Return the `beams` best as a list of tuples `(tokens, score)`: a list of `int` and a `float`, best first. On ties, the
# hypothesis that was finished earlier comes first, in the order of steps 3 and 4.
#
# - `table` is float64 (V, V), and its numbers are multiples of $2^{-20}$ or `-inf`, so sums are exact in any order.
# - `most` and `beams` are at least 1, `alpha` is 0 or more.

# %%
import numpy as np


def beam_search(table, bos, eos, beams, most, alpha):
    """Return the best (tokens, score), at most `beams` of them: (V, V), two token ids, three numbers -> list."""
    # BEGIN SOLUTION
    running = [([bos], 0.0)]
    finished = []
    for _ in range(most):
        extended = []
        for tokens, total in running:
            for token, step in enumerate(table[tokens[-1]]):
                if step > -np.inf:
                    extended.append(([*tokens, token], total + float(step)))
        extended.sort(key=lambda hypothesis: -hypothesis[1])  # a stable sort: ties keep their order
        kept = extended[:beams]
        finished += [hypothesis for hypothesis in kept if hypothesis[0][-1] == eos]
        running = [hypothesis for hypothesis in kept if hypothesis[0][-1] != eos]
    finished += running
    scored = [(tokens[1:], total / ((4 + len(tokens)) / 6) ** alpha) for tokens, total in finished]  # without bos
    return sorted(scored, key=lambda hypothesis: -hypothesis[1])[:beams]
    # END SOLUTION
