"""Attention: one pure function, and the layer that projects into it. Vaswani et al. 2017, section 3.2."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import ModelConfig
from glassformer.model.cache import LayerCache
from glassformer.model.masks import Mask
from glassformer.model.positions import Rotation, rotate

SHORT = 256  # most tokens for which keeping the weights is faster than the fused kernel in bfloat16 on a processor


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float = 0.0, explicit: bool = False
) -> tuple[Tensor, Tensor | None]:
    """softmax(q kᵀ / √K + bias, over the allowed keys) v: equation 1 of Vaswani et al. 2017.

    Args:
        q: (B, H, T, K) queries.
        k: (B, G, S, K) keys; G divides H, each key head serves H / G query heads.
        v: (B, G, S, any width) values.
        mask: hidden scores are -inf, so hidden weights are exactly 0; a query that may see nothing gets zeros.
        dropout: share of weights dropped.
        explicit: also return the weights, computed step by step. Both ways give the same output.

    Returns:
        The mixed values (B, H, T, width of v), and the weights (B, H, T, S) if `explicit`, else None.
    """
    weights, fused_is_slow = None, q.dtype == torch.bfloat16 and q.is_cpu and max(q.shape[2], k.shape[2]) <= SHORT
    if explicit or fused_is_slow:
        group = q.shape[1] // max(1, k.shape[1])
        k, v = (each.repeat_interleave(group, dim=1) if group > 1 else each for each in (k, v))  # (B, H, S, K)
        scores = q / math.sqrt(q.shape[-1]) @ k.transpose(-2, -1)  # (B, H, T, S)
        bias = scores.new_zeros(()).where(mask.full(scores), -math.inf) if mask.bias is None else mask.bias
        weights = (scores + bias.to(q.dtype)).softmax(dim=-1)  # (B, H, T, S)
        out = F.dropout(weights, dropout, training=dropout > 0) @ v  # (B, H, T, K)
    else:
        hidden = mask.allowed if mask.bias is None else mask.bias.to(q.dtype)  # (B, 1 or H, T, S)
        shared = k.shape[1] != q.shape[1]
        out = F.scaled_dot_product_attention(q, k, v, hidden, dropout, mask.triangle, enable_gqa=shared)
    if mask.dead is not None:
        out = out.masked_fill(mask.dead, 0.0)  # (B, H, T, K)
        weights = None if weights is None else weights.masked_fill(mask.dead, 0.0)  # (B, H, T, S)
    return out, weights if explicit else None


class Attention(nn.Module):
    """Multi-head, grouped-query or multi-query attention, of a sequence to itself or to a memory."""

    def __init__(self, config: ModelConfig, site: str) -> None:
        super().__init__()
        self.kept, served = config.kept_heads(site), config.kept_kv_heads(site)
        self.asks = [served.index(head * config.G // config.heads) for head in self.kept]  # the key head of each
        self.even = all(self.asks.count(head) * len(served) == len(self.kept) for head in self.asks)
        D, H, G, K = config.width, len(self.kept), len(served), config.K
        self.heads, self.kv_heads, self.head_width = H, G, K
        self.query = nn.Linear(D, H * K, bias=config.attention_bias)
        self.key = nn.Linear(D, G * K, bias=config.attention_bias)
        self.value = nn.Linear(D, G * K, bias=config.attention_bias)
        self.output = nn.Linear(H * K, D, bias=config.attention_bias)
        normed, whole, eps = config.qk_norm != "none" and H > 0, config.qk_norm == "whole", config.norm_eps or 1e-6
        self.query_norm = nn.RMSNorm(H * K if whole else K, eps) if normed else None
        self.key_norm = nn.RMSNorm(G * K if whole else K, eps) if normed else None
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
            k, v = (each.to(q.dtype) for each in cache.memory)  # (B, G, S, K) each
        else:
            source = x if memory is None else memory
            k = self._heads(self.key(source), self.kv_heads, self.key_norm)  # (B, G, S, K)
            v = self._heads(self.value(source), self.kv_heads, None)  # (B, G, S, K)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)  # (B, H, T, K), (B, G, S, K)
        if cache is not None and memory is None:
            k, v = (each.to(q.dtype) for each in cache.append(k, v))  # (B, G, cached + T, K) each
        elif cache is not None:
            cache.memory = (k, v)
        if not self.even:  # after some heads were removed
            k, v = (torch.stack([x[:, head] for head in self.asks], dim=1) for x in (k, v))  # (B, H, S, K) each
        rows, T = q.shape[0], q.shape[2]
        if rows != k.shape[0]:  # the rows of one source ask it together, as if they were one longer row
            q = q.unflatten(0, (k.shape[0], -1)).transpose(1, 2).flatten(2, 3)  # (sources, H, n T, K)
        mixed, _ = attend(q, k, v, mask.of_heads(self.kept), self.dropout if self.training else 0.0)  # (B, H, T, K)
        if rows != k.shape[0]:
            mixed = mixed.unflatten(2, (-1, T)).transpose(1, 2).flatten(0, 1)  # (B, H, T, K)
        flat = mixed.transpose(1, 2).flatten(2) if self.heads else x[..., :0]  # (B, T, H K); ONNX cannot reshape to 0
        return self.output(flat)  # (B, T, D)

    def _heads(self, x: Tensor, heads: int, norm: nn.RMSNorm | None) -> Tensor:
        """(B, T, heads K) -> (B, heads, T, K), normalised where there is a norm, of each head or of all as one."""
        if norm is not None:  # norms keep their precision under autocast
            parts = x.unflatten(-1, (-1, len(norm.weight)))  # (B, T, heads, K) or (B, T, 1, heads K)
            x = norm(parts.to(norm.weight.dtype)).to(x.dtype).flatten(2)  # (B, T, heads K)
        return x.unflatten(-1, (heads, self.head_width)).transpose(1, 2)  # (B, heads, T, K)
