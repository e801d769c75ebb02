"""Copying: does a head raise the logits of the tokens that it attends to? What it writes, not where it looks.

Both measures read the direct path from the head to the logits, which is linear where the final norm's scale is held:
only in pre-norm models, and only for stacks whose vectors become logits.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.inspection.heads.attention_arrays import Bools, Floats, Looks
from glassformer.inspection.heads.role_scores import RoleTally
from glassformer.inspection.traced import AttentionTrace
from glassformer.model.attention import Attention
from glassformer.model.pruned_attention import kv_index
from glassformer.model.transformer import Block, Classifier, EncoderDecoder, Model

COPIES = 0.2
"""Score of `copying` from which a head copies."""
COPIES_BY_WEIGHTS = 0.5
"""Share of positive eigenvalues from which a head's weights copy."""


def no_direct_path(model: Model, stack: str, part: str) -> str | None:
    """Return the reason why these heads have no measurable direct path from a token to its logit; None if they have."""
    if isinstance(model, Classifier):
        return "its logits are of labels, not of tokens"
    if isinstance(model, EncoderDecoder) and stack == "enc":
        return "what an encoder's heads write reaches no logit directly"
    if part == "cross" and getattr(model, "source_embedding", None) is not None:
        return "source and target have a vocabulary each"
    if model.config.norm_order != "pre":
        return f"model.norm_order = {model.config.norm_order}: what a head writes passes through more norms"
    if getattr(model.config, "head_transform", False):
        return "model.head_transform = true: a layer stands between the vectors and the logits"
    return None


def copying(looks: Looks, raised: Floats) -> RoleTally:
    """Olsson et al. 2022, copying score: between -1 and 1, measured on tokens that do not repeat.

    A head's output gives each token of the sequence a logit; what is above the mean over the vocabulary is what it
    raises the token by. With a_j the raise of the token at place j, and R the sum over the sequence's tokens,
    r_j = a_j / (a_j + R), which is 1/2 where nothing else is raised. The score of a query is 4 r - 1, where r is the
    mean of r_j over the keys that it looks at; chance is the mean over all keys that it may see.

    Args:
        looks: of the layer.
        raised: (N, H, T, S) raise of the token at each key by the head's output at each query.
    """
    text: Bools = looks.allowed.any(axis=1) & ~looks.special_keys  # (N, S)
    up = np.where(text[:, None, None, :], np.maximum(raised, 0.0), 0.0)  # (N, H, T, S)
    both = up + up.sum(axis=-1, keepdims=True)  # (N, H, T, S)
    ratio = np.divide(up, both, out=np.zeros_like(up), where=both > 0)  # (N, H, T, S)
    rows = looks.rows.astype(np.float64)  # (N, T)
    even: Floats = looks.allowed / np.maximum(looks.visible, 1)[..., None]  # (N, T, S)
    score = np.einsum("nhts,nhts,nt->nh", looks.weights, ratio, rows)  # (N, H)
    chance = np.einsum("nts,nhts,nt->nh", even, ratio, rows)  # (N, H)
    count = rows.sum(axis=-1)  # (N,)
    return RoleTally(4 * score - count[:, None], 4 * chance - count[:, None], count)


def raised_logits(model: Model, made: AttentionTrace, keys: Tensor) -> Floats:
    """(N, H, T, S): the logit that each head's output gives the token at each key, over the vocabulary's mean.

    Up to the final norm's scale, which is the same for all tokens of a query.

    Args:
        model: with a direct path.
        made: the traced layer.
        keys: (N, S) ids of the tokens.
    """
    read = _reading(model)  # (V, D)
    wanted = read[keys] - read.mean(dim=0)  # (N, S, D)
    logits = torch.einsum("nhtd,nsd->nhts", made.head_outputs.cpu().double(), wanted)  # (N, H, T, S)
    found: Floats = logits.numpy()
    return found


def copying_by_weights(model: Model, block: Block) -> list[float]:
    """Return Σ λ / Σ |λ| of each self-attention head, λ the eigenvalues of W_U W_O W_V W_E (Elhage et al. 2021).

    1: every token raises its own logit most, -1: lowers it. The matrix is (V, V) of rank K, so its eigenvalues other
    than 0 are those of the K by K product in another order. Gains of the norms before the head and before the logits
    belong to W_V and W_U.
    """
    layer = block.attention
    assert isinstance(layer, Attention)
    read = _reading(model)  # (V, D)
    written = model.embedding.tokens.weight.detach().cpu().double()  # (V, D)
    norm = block.attention_norm
    inner = (_centred(written, norm) * _gain(norm)).T @ read  # (D, D)
    value = layer.value.weight.detach().cpu().double().unflatten(0, (layer.kv_heads, layer.head_width))  # (G, K, D)
    value = value[kv_index(layer)]  # (H, K, D)
    output = layer.output.weight.detach().cpu().double().unflatten(1, (layer.heads, layer.head_width))  # (D, H, K)
    products = torch.einsum("hkd,de,ehj->hkj", value, inner, output)  # (H, K, K)
    values = np.linalg.eigvals(products.numpy())  # (H, K)
    size = np.abs(values).sum(axis=-1)  # (H,)
    return [float(each.real.sum() / most) if most > 0 else 0.0 for each, most in zip(values, size, strict=True)]


def _reading(model: Model) -> Tensor:
    """(V, D): what of a stream's vector each token's logit is, with the final norm's gain and centring."""
    assert not isinstance(model, Classifier)
    own = model.head.weight  # (V, D), or None where the embedding's is used
    matrix = (model.embedding.tokens.weight if own is None else own).detach().cpu().double()  # (V, D)
    norm = (model.decoder if isinstance(model, EncoderDecoder) else model.stack).norm
    return _centred(matrix * _gain(norm), norm)


def _gain(norm: nn.Module) -> Tensor:
    """(D,) of a norm, or 1."""
    gain = getattr(norm, "weight", None)
    return torch.ones((), dtype=torch.float64) if gain is None else gain.detach().cpu().double()


def _centred(rows: Tensor, norm: nn.Module) -> Tensor:
    """LayerNorm takes the mean off what it is given; taking it off what reads its output is the same."""
    return rows - rows.mean(dim=-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else rows
