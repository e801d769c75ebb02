# %% [markdown]
# # Cross-attention and teacher forcing
#
# A translation model reads a source and generates a target. Write the two functions that connect them.
#
# `shift_right` returns the decoder's inputs for training: the target shifted by one position to the right, with the
# begin token `bos` in front and without the last token. So position i of the decoder reads token i - 1 of the target,
# and predicts token i.
#
# `cross_attention` (one head): the queries come from the decoder, the keys and values from the encoder.
#
# $$q = \mathrm{decoder}\, W_Q \qquad k = \mathrm{encoder}\, W_K \qquad v = \mathrm{encoder}\, W_V$$
#
# $$\mathrm{weights} = \mathrm{softmax}\!\left(\frac{q k^\top}{\sqrt{d}}\right) \qquad
# \mathrm{mixed} = \mathrm{weights}\, v$$
#
# - The softmax is over the S positions of the source. Where `real_source` is False (padding), the weight is exactly 0.
# - There is no causal mask: the whole source is known before the first word is generated.
# - Every source has at least one real token. Numbers are float64, token ids int64. Do not change the arguments.

# %%
import numpy as np


def shift_right(targets, bos):
    """Return the inputs of the decoder: target ids (B, T) with T at least 1, the begin token's id -> (B, T)."""
    # BEGIN SOLUTION
    begin = np.full((len(targets), 1), bos, dtype=targets.dtype)
    return np.concatenate([begin, targets[:, :-1]], axis=1)
    # END SOLUTION


def cross_attention(decoder, encoder, real_source, w_query, w_key, w_value):
    """Return output and weights: (B, T, D), (B, S, D), bool (B, S), three times (D, d) -> (B, T, d), (B, T, S)."""
    # BEGIN SOLUTION
    q = decoder @ w_query
    k = encoder @ w_key
    v = encoder @ w_value
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = np.where(real_source[:, None, :], scores, -np.inf)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return weights @ v, weights
    # END SOLUTION
