# %% [markdown]
# # Direct logit attribution
#
# At the last position of a decoder, the residual stream is a sum: the embedding, plus the outputs of all heads and
# feed-forward layers. `parts` (N, D) are these vectors. Their sum $x$ goes through the final LayerNorm and the output
# layer:
#
# $$x = \sum_n p_n \qquad \sigma = \sqrt{\mathrm{var}(x) + \varepsilon}$$
#
# $$\mathrm{logit}_t =
# \left(\frac{x - \mathrm{mean}(x)}{\sigma} \odot \mathrm{gain} + \mathrm{bias}\right) \cdot U_{:,t}$$
#
# Write `attribution`: the contribution of each part to the logit of token t. With $\sigma$ **frozen** at its value for
# the whole stream, every step is linear, so the logit is exactly the sum of the contributions:
#
# $$c_n = \left(\frac{p_n - \mathrm{mean}(p_n)}{\sigma} \odot \mathrm{gain}\right) \cdot U_{:,t} \qquad
# c_{\mathrm{bias}} = \mathrm{bias} \cdot U_{:,t} \qquad \mathrm{logit}_t = \sum_n c_n + c_{\mathrm{bias}}$$
#
# - mean and var are over the D channels; var divides by D.
# - `unembedding` is $U$, (D, V). All arrays are float64. Do not change the arguments.
# - Return the contributions of the parts, (N,), and the contribution of the bias, a `float`.

# %%
import numpy as np


def attribution(parts, gain, bias, unembedding, token, eps):
    """Return the contributions of parts and bias: (N, D), (D,), (D,), (D, V), token id, eps -> (N,), float."""
    # BEGIN SOLUTION
    sigma = np.sqrt(parts.sum(axis=0).var() + eps)
    centered = parts - parts.mean(axis=-1, keepdims=True)
    direction = unembedding[:, token]
    return centered / sigma * gain @ direction, float(bias @ direction)
    # END SOLUTION
