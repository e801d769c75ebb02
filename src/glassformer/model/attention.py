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
        self.query_norm = nn.RMSNorm(K, eps=config.norm_eps or 1e-6) if config.qk_norm else None
        self.key_norm = nn.RMSNorm(K, eps=config.norm_eps or 1e-6) if config.qk_norm else None
        self.dropout = config.dropout_attention

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        memory: Tensor | None = None,
        rotation: Rotation | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D); keys and values come from `memory` (B, S, D) where one is given.

        Several rows may share a source, as the hypotheses of a beam do: then `memory` has one row for each B/n rows.
        """
        q = self._heads(self.query(x), self.heads, self.query_norm)  # (B, H, T, K)
        if memory is not None and cache is not None and cache.memory is not None:
            k, v = cache.memory  # (B, G, S, K) each
        else:
            source = x if memory is None else memory
            k = self._heads(self.key(source), self.kv_heads, self.key_norm)  # (B, G, S, K)
            v = self._heads(self.value(source), self.kv_heads, None)  # (B, G, S, K)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)  # (B, H, T, K), (B, G, S, K)
        if cache is not None and memory is None:
            k, v = cache.append(k, v)  # (B, G, cached + T, K)
        elif cache is not None:
            cache.memory = (k, v)
        rows, T = q.shape[0], q.shape[2]
        if rows != k.shape[0]:  # the rows of one source ask it together, as if they were one longer row
            q = q.unflatten(0, (k.shape[0], -1)).transpose(1, 2).flatten(2, 3)  # (sources, H, n T, K)
        mixed, _ = attend(q, k, v, mask, self.dropout if self.training else 0.0)  # (B, H, T, K)
        if rows != k.shape[0]:
            mixed = mixed.unflatten(2, (-1, T)).transpose(1, 2).flatten(0, 1)  # (B, H, T, K)
        return self.output(mixed.transpose(1, 2).flatten(2))  # (B, T, D)

    def _heads(self, x: Tensor, heads: int, norm: nn.RMSNorm | None) -> Tensor:
        """(B, T, heads K) -> (B, heads, T, K), each head normalised where there is a norm."""
        x = x.unflatten(-1, (heads, -1)).transpose(1, 2)  # (B, heads, T, K)
        if norm is not None:  # norms keep their precision under autocast
            x = norm(x.to(norm.weight.dtype)).to(x.dtype)  # (B, heads, T, K)
        return x
