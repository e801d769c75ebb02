"""Attention: one pure function, and the layer that projects into it. Vaswani et al. 2017, section 3.2."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.model.cache import LayerCache
from glassformer.model.masks import Mask
from glassformer.model.positions import Rotation, rotate


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float = 0.0, explicit: bool = False
) -> tuple[Tensor, Tensor | None]:
    """softmax(q kᵀ / √K + bias, over the allowed keys) v: equation 1 of Vaswani et al. 2017.

    Args:
        q: (B, H, T, K) queries.
        k: (B, G, S, K) keys; G divides H, each key head serves H / G query heads.
        v: (B, G, S, any width) values.
        mask: which keys each query may see. Hidden scores are -inf, so hidden weights are exactly 0;
            a query that may see nothing gets zeros.
        dropout: share of weights dropped.
        explicit: also return the weights, computed step by step. Both ways give the same output.

    Returns:
        The mixed values (B, H, T, width of v), and the weights (B, H, T, S) if `explicit`, else None.
    """
    weights = None
    if explicit:
        out, weights = _attend_explicit(q, k, v, mask, dropout)
    else:
        hidden = mask.allowed if mask.bias is None else mask.bias.to(q.dtype)  # (B, 1 or H, T, S)
        grouped = k.shape[1] != q.shape[1]
        out = F.scaled_dot_product_attention(q, k, v, hidden, dropout, mask.triangle, enable_gqa=grouped)
    if mask.dead is not None:
        out = out.masked_fill(mask.dead, 0.0)  # (B, H, T, K)
        weights = None if weights is None else weights.masked_fill(mask.dead, 0.0)  # (B, H, T, S)
    return out, weights


def _attend_explicit(q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float) -> tuple[Tensor, Tensor]:
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)  # (B, H, S, K)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, S)
    if mask.bias is not None:
        scores = scores + mask.bias  # (B, H, T, S)
    weights = scores.masked_fill(~mask.full(scores), -math.inf).softmax(dim=-1)  # (B, H, T, S)
    return F.dropout(weights, dropout, training=dropout > 0) @ v, weights  # (B, H, T, K)


class Attention(nn.Module):
    """Multi-head, grouped-query or multi-query attention, of a sequence to itself or to a memory."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        D, H, G, K = config.width, config.heads, config.G, config.K
        self.heads, self.kv_heads = H, G
        self.query = nn.Linear(D, H * K, bias=config.attention_bias)
        self.key = nn.Linear(D, G * K, bias=config.attention_bias)
        self.value = nn.Linear(D, G * K, bias=config.attention_bias)
        self.output = nn.Linear(H * K, D, bias=config.attention_bias)
        self.query_norm = nn.RMSNorm(K, eps=1e-6) if config.qk_norm else None
        self.key_norm = nn.RMSNorm(K, eps=1e-6) if config.qk_norm else None
        self.dropout = config.dropout_attention

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        memory: Tensor | None = None,
        rotation: Rotation | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D); keys and values come from `memory` (B, S, D) where one is given."""
        source = x if memory is None else memory
        q = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, K)
        k = self.key(source).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2)  # (B, G, S, K)
        v = self.value(source).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2)  # (B, G, S, K)
        if self.query_norm is not None and self.key_norm is not None:
            gain = self.query_norm.weight.dtype  # norms keep their precision under autocast
            q, k = self.query_norm(q.to(gain)).to(v.dtype), self.key_norm(k.to(gain)).to(v.dtype)  # (B, H, T, K)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)  # (B, H, T, K), (B, G, S, K)
        if cache is not None:
            k, v = cache.append(k, v)  # (B, G, cached + T, K)
        mixed, _ = attend(q, k, v, mask, self.dropout if self.training else 0.0)  # (B, H, T, K)
        return self.output(mixed.transpose(1, 2).flatten(2))  # (B, T, D)
