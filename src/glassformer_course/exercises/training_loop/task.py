# %% [markdown]
# # The training loop
#
# Train a tiny decoder, by hand. The decoder is given, forward and backward: embedding and position, causal attention
# with one head, a residual, an output layer. Write what teaches it.
#
# `weights` is a dictionary of float64 arrays: `"embedding"` (V, D), `"position"` (places, D), `"query"` and `"key"`
# (D, K), `"value"` (D, D), `"output"` (D, V). Gradients are a dictionary with the same names and shapes.
#
# **1. `loss_and_gradients`**. `rows` is an int64 array (B, T + 1) of token ids. The model reads all but the last
# token of each row; its target at each place is the *next* token. With $p$ the softmax of the logits, the loss is the
# mean over all $n = B \cdot T$ places, and its gradient with respect to the logits follows:
#
# $$L = -\frac1n \sum_{places} \ln p_{target} \qquad dlogits = \frac{p - onehot(target)}{n}$$
#
# Give back the loss (a float) and the dictionary of gradients, which `backward` computes from dlogits.
#
# **2. `clip`**. The length of all gradients together is the root of the sum of all squares, over *all* arrays. If it
# is larger than `longest`, multiply every array by `longest / length`; if not, the numbers stay as they are.
#
# **3. `train`**. Make `steps` plain steps on the same rows: loss and gradients, clip, then
# $w \leftarrow w - rate \cdot g$ for every array. Give back the tuple (weights, losses): the dictionary after the last
# step, and the list of the losses, each from *before* its step.
#
# - `longest` and `rate` are positive floats. All gradients may be 0: then `clip` leaves them 0. With `steps` 0 the
#   weights come back as they are, with an empty list.
# - No argument is changed, neither dictionary nor array: make new ones at each step.

# %%
import numpy as np


def forward(weights, inputs):
    """Given. Ids (B, T) -> logits (B, T, V), and what `backward` needs."""
    w = weights
    T = inputs.shape[1]
    x = w["embedding"][inputs] + w["position"][:T]
    q = x @ w["query"]
    k = x @ w["key"]
    v = x @ w["value"]
    scores = np.where(np.tri(T, dtype=bool), q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]), -np.inf)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares = shares / shares.sum(axis=-1, keepdims=True)
    h = x + shares @ v
    return h @ w["output"], (weights, inputs, x, q, k, v, shares, h)


def backward(dlogits, kept):
    """Given. The gradient of the logits (B, T, V) -> the gradients of all weights, by name."""
    w, inputs, x, q, k, v, shares, h = kept
    dh = dlogits @ w["output"].T
    dshares = dh @ v.swapaxes(1, 2)
    dscores = shares * (dshares - (shares * dshares).sum(axis=-1, keepdims=True)) / np.sqrt(q.shape[-1])
    back = {"query": dscores @ k, "key": dscores.swapaxes(1, 2) @ q, "value": shares.swapaxes(1, 2) @ dh}
    dx = dh + sum(d @ w[name].T for name, d in back.items())
    gradients = {name: np.einsum("btd,btk->dk", x, d) for name, d in back.items()}
    gradients["output"] = np.einsum("btd,btv->dv", h, dlogits)
    gradients["embedding"] = np.zeros_like(w["embedding"])
    np.add.at(gradients["embedding"], inputs, dx)
    gradients["position"] = np.zeros_like(w["position"])
    gradients["position"][: inputs.shape[1]] = dx.sum(axis=0)
    return gradients


def loss_and_gradients(weights, rows):
    """The tuple of the mean loss, a float, and the gradients, a dictionary."""
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


def clip(gradients, longest):
    """Gradients of the same names, together at most `longest` long."""
    # BEGIN SOLUTION
    length = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
    factor = longest / max(length, longest)
    return {name: gradient * factor for name, gradient in gradients.items()}
    # END SOLUTION


def train(weights, rows, steps, rate, longest):
    """The tuple of the weights after `steps` steps, and the list of the loss before each."""
    # BEGIN SOLUTION
    losses = []
    for _ in range(steps):
        loss, gradients = loss_and_gradients(weights, rows)
        gradients = clip(gradients, longest)
        weights = {name: weight - rate * gradients[name] for name, weight in weights.items()}
        losses.append(loss)
    return weights, losses
    # END SOLUTION
