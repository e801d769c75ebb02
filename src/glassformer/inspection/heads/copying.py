"""Copying scores: measure whether a head raises the logits of the tokens that it attends to.

Both scores use the direct path from the head to the logits, which is linear if the scale of the final norm is held
fixed. The scores are defined only for pre-norm models and for the stack that yields the logits; `no_direct_path` checks
further conditions.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.inspection.heads.attention_arrays import AttentionArrays, Bools, Floats
from glassformer.inspection.heads.role_scores import RoleTally
from glassformer.inspection.traced import AttentionTrace
from glassformer.model.attention import Attention
from glassformer.model.pruned_attention import kv_index
from glassformer.model.transformer import Block, Classifier, EncoderDecoder, Model

COPYING_THRESHOLD = 0.2
"""Minimum score in `copying` for a copying head."""
COPYING_BY_WEIGHTS_THRESHOLD = 0.5
"""Minimum score in `copying_by_weights` for a copying head."""


def no_direct_path(model: Model, stack: str, part: str) -> str | None:
    """Return the reason why heads have no measurable direct path from a token to its logit; None if they have one."""
    if isinstance(model, Classifier):
        return "the model's logits are of labels, not of tokens"
    if isinstance(model, EncoderDecoder) and stack == "enc":
        return "the output of the encoder's heads reaches no logit directly"
    if part == "cross" and getattr(model, "source_embedding", None) is not None:
        return "source and target have separate embeddings"
    if model.config.norm_order != "pre":
        return f"model.norm_order = {model.config.norm_order}: the output of a head passes through more norms"
    if getattr(model.config, "head_transform", False):
        return "model.head_transform = true: a layer lies between the heads and the logits"
    return None


def copying(arrays: AttentionArrays, raised: Floats) -> RoleTally:
    """Compute the copying score of Olsson et al. (2022), between -1 and 1, on tokens that do not repeat.

    The raise of a token is the head's contribution to its logit minus the mean contribution over the vocabulary, or 0
    if this difference is negative or the token is special. Let a_j be the raise of the token at position j, and let R
    be the sum of the raises of all tokens of the sequence. Then r_j = a_j / (a_j + R) is 1/2 if only token j is raised,
    and 0 if a_j is 0. The score of a query is 4 r - 1, where r is the mean of r_j over keys, weighted by attention; for
    the chance level, all visible keys have equal weights.

    Args:
        arrays: attention of the layer.
        raised: (N, H, T, S) result of `raised_logits`; negative values count as 0.
    """
    text: Bools = arrays.allowed.any(axis=1) & ~arrays.special_keys  # (N, S)
    positive = np.where(text[:, None, None, :], np.maximum(raised, 0.0), 0.0)  # (N, H, T, S)
    denominator = positive + positive.sum(axis=-1, keepdims=True)  # (N, H, T, S)
    ratio = np.divide(positive, denominator, out=np.zeros_like(positive), where=denominator > 0)  # (N, H, T, S)
    rows = arrays.rows.astype(np.float64)  # (N, T)
    uniform: Floats = arrays.allowed / np.maximum(arrays.visible, 1)[..., None]  # (N, T, S)
    score = np.einsum("nhts,nhts,nt->nh", arrays.weights, ratio, rows)  # (N, H)
    chance = np.einsum("nts,nhts,nt->nh", uniform, ratio, rows)  # (N, H)
    count = rows.sum(axis=-1)  # (N,)
    return RoleTally(4 * score - count[:, None], 4 * chance - count[:, None], count)


def raised_logits(model: Model, attention_trace: AttentionTrace, keys: Tensor) -> Floats:
    """Return each head's contribution to the logit of each key's token, minus the mean over the vocabulary.

    The shape is (N, H, T, S). The contributions are not divided by the scale of the final norm, which is the same for
    all tokens of a query.

    Args:
        model: a model with a direct path (see `no_direct_path`).
        attention_trace: the traced layer.
        keys: (N, S) ids of the key tokens.
    """
    unembedding = _unembedding(model)  # (V, D)
    directions = unembedding[keys] - unembedding.mean(dim=0)  # (N, S, D)
    logits = torch.einsum("nhtd,nsd->nhts", attention_trace.head_outputs.cpu().double(), directions)  # (N, H, T, S)
    raised: Floats = logits.numpy()
    return raised


def copying_by_weights(model: Model, block: Block) -> list[float]:
    """Return Σ λ / Σ |λ| of each self-attention head, where λ are the eigenvalues of W_U W_O W_V W_E.

    The score is 1 if all nonzero eigenvalues are positive (tokens raise their own logits), -1 if all are negative, and
    0 if all eigenvalues are 0 (Elhage et al. 2021). The matrix is (V, V) of rank at most U, so its nonzero eigenvalues
    are those of the (U, U) product in cyclic order. Gain and centring of the norms before the head and before the
    logits are included in W_E and W_U.
    """
    layer = block.attention
    assert isinstance(layer, Attention)
    unembedding = _unembedding(model)  # (V, D)
    embedding = model.embedding.tokens.weight.detach().cpu().double()  # (V, D)
    norm = block.attention_norm
    inner = (_centred(embedding, norm) * _gain(norm)).T @ unembedding  # (D, D)
    value = layer.value.weight.detach().cpu().double().unflatten(0, (layer.kv_heads, layer.value_width))  # (G, U, D)
    value = value[kv_index(layer)]  # (H, U, D)
    output = layer.output.weight.detach().cpu().double().unflatten(1, (layer.heads, layer.value_width))  # (D, H, U)
    products = torch.einsum("hud,de,ehj->huj", value, inner, output)  # (H, U, U)
    eigenvalues = np.linalg.eigvals(products.numpy())  # (H, U)
    magnitudes = np.abs(eigenvalues).sum(axis=-1)  # (H,)
    return [
        float(head_eigenvalues.real.sum() / magnitude) if magnitude > 0 else 0.0
        for head_eigenvalues, magnitude in zip(eigenvalues, magnitudes, strict=True)
    ]


def _unembedding(model: Model) -> Tensor:
    """Return the matrix (V, D) from the residual stream to the logits, including the final norm's gain and centring."""
    assert not isinstance(model, Classifier)
    head_weight = model.head.weight  # (V, D), or None for tied embeddings
    matrix = (model.embedding.tokens.weight if head_weight is None else head_weight).detach().cpu().double()  # (V, D)
    norm = (model.decoder if isinstance(model, EncoderDecoder) else model.stack).norm
    return _centred(matrix * _gain(norm), norm)


def _gain(norm: nn.Module) -> Tensor:
    """Return the gain of a norm, (D,), or 1 if it has none."""
    gain = getattr(norm, "weight", None)
    return torch.ones((), dtype=torch.float64) if gain is None else gain.detach().cpu().double()


def _centred(rows: Tensor, norm: nn.Module) -> Tensor:
    """Subtract the mean of each row if the norm is a LayerNorm: equivalent to centring the norm's input."""
    return rows - rows.mean(dim=-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else rows
