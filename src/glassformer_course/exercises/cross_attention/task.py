# %% [markdown]
# # Cross-attention and teacher forcing
#
# A translator reads a source and writes a target. Write the two places where they meet.
#
# `shift_right` makes the decoder's inputs for training: the target moved one place to the right, with the begin token
# `bos` in front; the last token is never read. So place i of the decoder reads the target's token i - 1, and is asked
# for token i.
#
# `cross_attention` (one head): the decoder's vectors ask, the encoder's vectors answer.
#
# $$q = \mathrm{decoder}\, W_Q \qquad k = \mathrm{encoder}\, W_K \qquad v = \mathrm{encoder}\, W_V$$
#
# $$\mathrm{weights} = \mathrm{softmax}\!\left(\frac{q k^\top}{\sqrt{d}}\right) \qquad
# \mathrm{mixed} = \mathrm{weights}\, v$$
#
# - The softmax is over the S places of the source. Where `real_source` is False (padding) the weight is exactly 0.
# - There is no causal mask: the whole source is known before the first word is written.
# - Every source has at least one real token. Numbers are float64, token ids int64. The arguments are not changed.

# %%
import numpy as np


def shift_right(targets, bos):
    """Target ids (B, T), T at least 1, and the begin token's id -> what the decoder reads, (B, T)."""
    # BEGIN SOLUTION
    begin = np.full((len(targets), 1), bos, dtype=targets.dtype)
    return np.concatenate([begin, targets[:, :-1]], axis=1)
    # END SOLUTION


def cross_attention(decoder, encoder, real_source, w_query, w_key, w_value):
    """decoder (B, T, D), encoder (B, S, D), real_source (B, S) bool, weights (D, d) -> (B, T, d), weights (B, T, S)."""
    # BEGIN SOLUTION
    q = decoder @ w_query
    k = encoder @ w_key
    v = encoder @ w_value
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = np.where(real_source[:, None, :], scores, -np.inf)
    grown = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = grown / grown.sum(axis=-1, keepdims=True)
    return weights @ v, weights
    # END SOLUTION
