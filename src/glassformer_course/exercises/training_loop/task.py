# %% [markdown]
# # The training loop
#
# Train a tiny decoder by hand. The forward and backward passes of the decoder are given: token and position embeddings,
# causal attention with one head, a residual connection, an output layer. Write the training loop.
#
# `weights` is a dictionary of float64 arrays: `"embedding"` (V, D), `"position"` (positions, D), `"query"` and `"key"`
# (D, K), `"value"` (D, D), `"output"` (D, V). Gradients are a dictionary with the same names and shapes.
#
# **1. `loss_and_gradients`**. `rows` is an int64 array (B, T + 1) of token ids. The model reads all but the last
# token of each row; the target at each position is the *next* token. Let $p$ be the softmax of the logits. The loss is
# the mean over all $n = B \cdot T$ positions, which also gives its gradient with respect to the logits:
#
# $$L = -\frac1n \sum_{positions} \ln p_{target} \qquad dlogits = \frac{p - onehot(target)}{n}$$
#
# Return the loss (a float) and the dictionary of gradients, which `backward` computes from dlogits.
#
# **2. `clip`**. The norm of all gradients together is the root of the sum of all squares, over *all* arrays. If it is
# larger than `max_norm`, multiply every array by `max_norm / norm`; otherwise, leave them unchanged.
#
# **3. `train`**. Take `steps` steps of gradient descent on the same rows: compute loss and gradients, clip, then update
# $w \leftarrow w - rate \cdot g$ for every array. Return the tuple (weights, losses): the dictionary after the last
# step, and the list of losses, each computed *before* its step.
#
# - `max_norm` and `rate` are positive floats. All gradients may be 0: then `clip` leaves them 0. With `steps` 0, return
#   the weights unchanged, and an empty list.
# - Do not change the arguments, neither dictionaries nor arrays: create new ones at each step.

# %%
import numpy as np


def forward(weights, inputs):
    """Return the logits, and the values that `backward` needs: (B, T) -> (B, T, V). (Nothing to write here.)"""
    w = weights
    T = inputs.shape[1]
    x = w["embedding"][inputs] + w["position"][:T]
    q = x @ w["query"]
    k = x @ w["key"]
    v = x @ w["value"]
    scores = np.where(np.tri(T, dtype=bool), q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]), -np.inf)
    attention = np.exp(scores - scores.max(axis=-1, keepdims=True))
    attention = attention / attention.sum(axis=-1, keepdims=True)
    h = x + attention @ v
    return h @ w["output"], (weights, inputs, x, q, k, v, attention, h)


def backward(dlogits, kept):
    """Return the gradients of all weights, by name, from that of the logits (B, T, V). (Nothing to write here.)"""
    w, inputs, x, q, k, v, attention, h = kept
    dh = dlogits @ w["output"].T
    dattention = dh @ v.swapaxes(1, 2)
    dscores = attention * (dattention - (attention * dattention).sum(axis=-1, keepdims=True)) / np.sqrt(q.shape[-1])
    back = {"query": dscores @ k, "key": dscores.swapaxes(1, 2) @ q, "value": attention.swapaxes(1, 2) @ dh}
    dx = dh + sum(d @ w[name].T for name, d in back.items())
    gradients = {name: np.einsum("btd,btk->dk", x, d) for name, d in back.items()}
    gradients["output"] = np.einsum("btd,btv->dv", h, dlogits)
    gradients["embedding"] = np.zeros_like(w["embedding"])
    np.add.at(gradients["embedding"], inputs, dx)
    gradients["position"] = np.zeros_like(w["position"])
    gradients["position"][: inputs.shape[1]] = dx.sum(axis=0)
    return gradients


def loss_and_gradients(weights, rows):
    """Return the mean loss, a float, and the gradients, a dictionary."""
    # BEGIN SOLUTION
    inputs = rows[:, :-1]
    targets = rows[:, 1:, None]
    logits, kept = forward(weights, inputs)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    picked = np.take_along_axis(logs, targets, axis=-1)
    dlogits = np.exp(logs)
    np.put_along_axis(dlogits, targets, np.exp(picked) - 1, axis=-1)
    return float(-picked.mean()), backward(dlogits / targets.size, kept)
    # END SOLUTION


def clip(gradients, max_norm):
    """Return the gradients, scaled so that their joint norm is at most `max_norm`."""
    # BEGIN SOLUTION
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
    factor = max_norm / max(norm, max_norm)
    return {name: gradient * factor for name, gradient in gradients.items()}
    # END SOLUTION


def train(weights, rows, steps, rate, max_norm):
    """Return the weights after `steps` steps, and the list of losses, one before each step."""
    # BEGIN SOLUTION
    losses = []
    for _ in range(steps):
        loss, gradients = loss_and_gradients(weights, rows)
        gradients = clip(gradients, max_norm)
        weights = {name: weight - rate * gradients[name] for name, weight in weights.items()}
        losses.append(loss)
    return weights, losses
    # END SOLUTION
