# %% [markdown]
# # The pre-norm block
#
# Write one block of a decoder. The residual stream `x` has one vector per token. Attention reads a *normalized copy* of
# it and adds its output to `x`; then the feed-forward layer reads a normalized copy of the *new* `x` and adds its
# output:
#
# $$x \leftarrow x + \mathrm{attention}(\mathrm{norm}_1(x))
# \qquad x \leftarrow x + \mathrm{feedforward}(\mathrm{norm}_2(x))$$
#
# `rms_norm` and `attention` are given. You write `feedforward` and `block`:
#
# $$\mathrm{feedforward}(x) = \max(x\, W_{up},\, 0)\; W_{down}$$
#
# - `x` is float64 (T, D). `weights` is a dictionary of float64 arrays: `"attention_gain"` (D,), `"query"`, `"key"`,
#   `"value"` (D, K), `"output"` (K, D) of attention, `"feedforward_gain"` (D,), `"up"` (D, F), `"down"` (F, D) of the
#   feed-forward layer.
# - $\mathrm{norm}_1$ has the gain `"attention_gain"`, $\mathrm{norm}_2$ has `"feedforward_gain"`.
# - If `"output"` and `"down"` are all 0, the block returns exactly `x`.
# - The results are new arrays; do not change the arguments.

# %%
import numpy as np


def rms_norm(x, gain):
    """Normalize each vector to a mean square of 1, then apply the gain: (T, D) -> (T, D). (Nothing to write here.)"""
    return gain * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)


def attention(x, weights):
    """Compute causal attention with one head: (T, D) -> (T, D). (Nothing to write here.)"""
    q = x @ weights["query"]
    k = x @ weights["key"]
    v = x @ weights["value"]
    scores = np.where(np.tri(len(x), dtype=bool), q @ k.T / np.sqrt(q.shape[1]), -np.inf)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True) @ v @ weights["output"]


def feedforward(x, weights):
    """Apply two matrices with a ReLU between them: (T, D) -> (T, D)."""
    # BEGIN SOLUTION
    return np.maximum(x @ weights["up"], 0) @ weights["down"]
    # END SOLUTION


def block(x, weights):
    """Add attention and feed-forward to the stream, each with a norm before it: (T, D) -> (T, D)."""
    # BEGIN SOLUTION
    x = x + attention(rms_norm(x, weights["attention_gain"]), weights)
    return x + feedforward(rms_norm(x, weights["feedforward_gain"]), weights)
    # END SOLUTION
