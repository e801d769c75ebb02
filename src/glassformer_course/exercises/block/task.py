# %% [markdown]
# # The pre-norm block
#
# Write one block of a decoder. The stream `x` holds one vector per token. Attention reads a *normalised copy* of it
# and adds what it found to `x`; then the feed-forward layer reads a normalised copy of the *new* `x` and adds to it
# too:
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
# - With `"output"` and `"down"` all 0, the block gives back exactly `x`.
# - The results are new arrays; no argument is changed.

# %%
import numpy as np


def rms_norm(x, gain):
    """Given. Each vector with a mean square of 1, times gain: (T, D) -> (T, D)."""
    return gain * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)


def attention(x, weights):
    """Given. Causal attention with one head: (T, D) -> (T, D)."""
    q = x @ weights["query"]
    k = x @ weights["key"]
    v = x @ weights["value"]
    scores = np.where(np.tri(len(x), dtype=bool), q @ k.T / np.sqrt(q.shape[1]), -np.inf)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True) @ v @ weights["output"]


def feedforward(x, weights):
    """Two matrices with a ReLU between them: (T, D) -> (T, D)."""
    # BEGIN SOLUTION
    return np.maximum(x @ weights["up"], 0) @ weights["down"]
    # END SOLUTION


def block(x, weights):
    """Attention and feed-forward, each with a norm before it and added to the stream: (T, D) -> (T, D)."""
    # BEGIN SOLUTION
    x = x + attention(rms_norm(x, weights["attention_gain"]), weights)
    return x + feedforward(rms_norm(x, weights["feedforward_gain"]), weights)
    # END SOLUTION
