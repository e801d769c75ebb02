"""Attention: masks, softmax(q kᵀ / √K) v, and the attention layer with its projections.

Vaswani et al. 2017, section 3.2. `glassformer.base.shapes` defines the letters of the shapes.

The hook points of an `Attention` are `nn.Identity` modules that its tensors pass through. PyTorch's forward hooks can
read a tensor there, or replace it by returning another tensor. Hook points have no parameters and change no values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.base.config import ModelConfig
from glassformer.model.cache import LayerCache
from glassformer.model.dropout import Dropout, device_seeded_from, dropped
from glassformer.model.positions import Rotation, rotate
from glassformer.model.thread_hooks import applies_here

EXPLICIT_BF16_TOKENS = 256
"""Maximum number of tokens for which explicit attention is faster than the fused kernel, in bfloat16 on a CPU."""


@dataclass(frozen=True)
class Mask:
    """Attention mask and score bias, shared by all layers of a stack.

    Attributes:
        allowed: (B or 1, 1, T or 1, S) bool, True where a query may attend to a key; None: everywhere, unless
            `is_causal`. A row without an allowed key is set to True for all keys, so that its softmax is finite; its z
            is zeroed later, with `fully_masked`.
        is_causal: True for a causal mask without a tensor, which the fused kernel applies by itself: query t attends to
            keys 0 … t. With cached keys, padding, a window shorter than T, or a bias, a causal mask is a tensor in
            `allowed` instead, and `is_causal` is False.
        fully_masked: (B or 1, 1, T or 1, 1) bool, True for queries without an allowed key, whose z is zero; None: every
            query has an allowed key.
        bias: (B or 1, H, T, S) bias added to the scores, -inf at masked keys; None: no bias.
    """

    allowed: Tensor | None = None
    is_causal: bool = False
    fully_masked: Tensor | None = None
    bias: Tensor | None = None

    @classmethod
    def of(cls, allowed: Tensor) -> Mask:
        """Return the mask for a boolean tensor (B or 1, 1, T or 1, S); rows may be entirely False."""
        fully_masked = ~allowed.any(dim=-1, keepdim=True)  # (B, 1, T or 1, 1)
        return cls(allowed=allowed | fully_masked, fully_masked=fully_masked)

    def allowed_tensor(self, like: Tensor) -> Tensor:
        """Return `allowed` as a bool tensor that broadcasts to scores of the shape of `like`, (..., T, S)."""
        if self.allowed is not None:
            return self.allowed  # (B or 1, 1, T or 1, S)
        ones = like.new_ones((1, 1, *like.shape[-2:]), dtype=torch.bool)  # (1, 1, T, S)
        return ones.tril() if self.is_causal else ones  # causal: query t attends to keys 0 … t

    def with_bias(self, bias: Tensor) -> Mask:
        """Return this mask with a bias (B or 1, H, T, S) added to the scores of the allowed keys."""
        allowed = self.allowed_tensor(bias)  # (B or 1, 1, T or 1, S)
        bias = bias.masked_fill(~allowed, -math.inf)  # (B or 1, H, T, S)
        return replace(self, bias=bias, allowed=allowed, is_causal=False)


EVERY_KEY = Mask()
"""Mask that allows every query to attend to every key."""


def self_attention_mask(
    positions: Tensor, key_positions: Tensor, attention_mask: Tensor | None, causal: bool, window: int | None
) -> Mask:
    """Return the self-attention mask; without padding, window and cached keys, it contains no tensor.

    Args:
        positions: (B or 1, T) positions of the queries.
        key_positions: (B or 1, S) positions of the keys.
        attention_mask: (B, S) bool, False at keys that are padding; None: no padding.
        causal: whether a token attends only to itself and to earlier tokens; if not, to both sides.
        window: number of tokens that a token attends to on the left (and, if not causal, on the right), itself
            included; None: all. Beltagy et al. 2020, section 3.1.
    """
    no_padding = attention_mask is None
    no_cached_keys = positions.shape == key_positions.shape
    window_covers_all = window is None or window >= positions.shape[1]
    if causal and no_cached_keys and window_covers_all and no_padding:
        return Mask(is_causal=True)
    if not causal and window is None:
        return EVERY_KEY if attention_mask is None else Mask.of(attention_mask[:, None, None, :])  # (B, 1, 1, S)
    query = positions[:, None, :, None]  # (B or 1, 1, T, 1)
    key = key_positions[:, None, None, :]  # (B or 1, 1, 1, S)
    if window is None:  # causal: the bidirectional case without a window has returned above
        allowed = key <= query  # (B or 1, 1, T, S): query t attends to keys 0 … t
    elif causal:
        allowed = (key > query - window) & (key <= query)  # (B or 1, 1, T, S)
    else:
        allowed = (key > query - window) & (key < query + window)  # (B or 1, 1, T, S)
    if attention_mask is None:
        return Mask(allowed=allowed)  # without padding every query may attend to itself
    return Mask.of(allowed & attention_mask[:, None, None, :])  # (B, 1, T, S)


def unchanged(x: Tensor) -> Tensor:
    """Return `x` unchanged (the default hook)."""
    return x


class ScoreHooks(NamedTuple):
    """Functions applied to tensors of the explicit computation, (B, H, T, S) each.

    Attributes:
        products: receives q kᵀ / √K, masked keys included.
        scores: receives the scores before the softmax: q kᵀ / √K + bias, -inf at masked keys.
        pattern: receives the output of the softmax, before dropout; zeros for fully masked queries.
    """

    products: Callable[[Tensor], Tensor] = unchanged
    scores: Callable[[Tensor], Tensor] = unchanged
    pattern: Callable[[Tensor], Tensor] = unchanged


NO_HOOKS = ScoreHooks()
"""Hooks that change nothing."""


def is_observed(hook_point: nn.Module) -> bool:
    """Return whether a hook that applies to the calling thread is registered on a hook point, forward or backward.

    Hooks for all modules of a process (`torch.nn.modules.module.register_module_forward_hook`) do not count.
    """
    return applies_here(
        hook_point._forward_hooks,
        hook_point._forward_pre_hooks,
        hook_point._backward_hooks,
        hook_point._backward_pre_hooks,
    )


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    dropout: float = 0.0,
    explicit: bool = False,
    hooks: ScoreHooks = NO_HOOKS,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return z = softmax(q kᵀ / √K + bias) v over the allowed keys: equation 1 of Vaswani et al. 2017.

    The fused kernel or the explicit computation is used; without dropout and hooks, both give the same z up to
    rounding. Scores of masked keys are -inf, so their weights are exactly 0; z of a fully masked query is zero.
    `generation/fast.py` computes the same z faster when decoding one token at a time.

    Args:
        q: (B, H, T, K) queries.
        k: (B, G, S, K) keys; G divides H, and each key head serves H / G query heads.
        v: (B, G, S, U) values.
        mask: see `Mask`.
        dropout: dropout probability of the pattern's entries.
        explicit: whether to compute step by step, pass each step to `hooks`, and also return the pattern.
        hooks: functions that read and may replace the tensors of the explicit computation; used only if `explicit`.
        generator: generator of the dropout masks, on the CPU; None: PyTorch's generator.

    Returns:
        z (B, H, T, U), and the pattern (B, H, T, S) if `explicit`, else None.
    """
    tokens = max(q.shape[2], k.shape[2])
    explicit_is_faster = q.dtype == torch.bfloat16 and q.is_cpu and tokens <= EXPLICIT_BF16_TOKENS
    masks_are_ours = q.is_cpu and dropout > 0 and generator is not None  # the kernel draws from PyTorch's generator
    if explicit:
        return explicit_attention(q, k, v, mask, dropout, True, hooks, generator)  # (B, H, T, U), (B, H, T, S)
    if explicit_is_faster or masks_are_ours:
        z, _ = explicit_attention(q, k, v, mask, dropout, generator=generator)  # (B, H, T, U)
    elif dropout > 0 and generator is not None:
        with device_seeded_from(generator, q.device):
            z = fused_attention(q, k, v, mask, dropout)  # (B, H, T, U)
    else:
        z = fused_attention(q, k, v, mask, dropout)  # (B, H, T, U)
    if mask.fully_masked is not None:
        z = z.masked_fill(mask.fully_masked, 0.0)  # (B, H, T, U)
    return z, None


def explicit_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    dropout: float = 0.0,
    zero_fully_masked: bool = False,
    hooks: ScoreHooks = NO_HOOKS,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute z (B, H, T, U) and the pattern (B, H, T, S) step by step; other arguments as in `attend`.

    Args:
        zero_fully_masked: whether to zero the pattern and z of queries without an allowed key. If not, the caller must
            zero their z, which is cheaper if the pattern is not used.
    """
    if q.shape[1] != k.shape[1]:
        group = q.shape[1] // k.shape[1]
        k = k.repeat_interleave(group, dim=1)  # (B, H, S, K)
        v = v.repeat_interleave(group, dim=1)  # (B, H, S, U)
    products = hooks.products(q / math.sqrt(q.shape[-1]) @ k.transpose(-2, -1))  # (B, H, T, S)
    if mask.bias is None:
        allowed = mask.allowed_tensor(products)  # (B or 1, 1, T or 1, S); causal: query t attends to keys 0 … t
        # Add -inf instead of using masked_fill: the backward pass of an addition needs no mask.
        zero = products.new_zeros(())  # ()
        mask_bias = zero.where(allowed, -math.inf)  # (B or 1, 1, T or 1, S): 0 where allowed, else -inf
        scores = products + mask_bias  # (B, H, T, S)
    else:
        scores = products + mask.bias.to(q.dtype)  # (B, H, T, S); the bias is -inf at masked keys
    fully_masked = mask.fully_masked if zero_fully_masked else None  # (B or 1, 1, T or 1, 1)
    if fully_masked is None:
        pattern = hooks.pattern(hooks.scores(scores).softmax(dim=-1))  # (B, H, T, S)
    else:  # a softmax over -inf alone would be NaN, and its gradient too
        scores = hooks.scores(scores.masked_fill(fully_masked, -math.inf))  # (B, H, T, S)
        pattern = scores.masked_fill(fully_masked, 0.0).softmax(dim=-1)  # (B, H, T, S)
        pattern = hooks.pattern(pattern.masked_fill(fully_masked, 0.0))  # (B, H, T, S)
    z = dropped(pattern, dropout, generator) @ v  # (B, H, T, U)
    return z, pattern


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float = 0.0) -> Tensor:
    """Compute z (B, H, T, U) with PyTorch's `scaled_dot_product_attention`; arguments as in `attend`.

    PyTorch chooses a fused kernel, which does not store the pattern, if there is one for these inputs.
    """
    if q.shape[1] == 0:  # all heads were removed; the GPU kernels would divide by zero
        return q.new_empty(*q.shape[:3], v.shape[3])  # (B, 0, T, U)
    attn_mask = mask.allowed  # (B or 1, 1, T or 1, S) bool, True where allowed, or None
    if mask.bias is not None:
        attn_mask = mask.bias.to(q.dtype)  # (B or 1, H, T, S), -inf at masked keys
    grouped = k.shape[1] != q.shape[1]
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=attn_mask, dropout_p=dropout, is_causal=mask.is_causal, enable_gqa=grouped
    )


class NoProjection(nn.Module):
    """The concatenated heads as the output of attention, without an output projection.

    `weight` and `bias` are those of the linear layer that would give the same output; neither is a parameter.

    Args:
        width: D.
        channels: (H U) the channel of the residual stream to which each channel of the heads is added.
    """

    bias: None = None

    def __init__(self, width: int, channels: Sequence[int]) -> None:
        super().__init__()
        self.weight = nn.Buffer(torch.eye(width)[:, list(channels)], persistent=False)  # (D, H U)

    def forward(self, z: Tensor) -> Tensor:
        """Map (B, T, H U) -> (B, T, D): unchanged, or with zeros in the channels of removed heads."""
        return z if z.shape[-1] == len(self.weight) else F.linear(z, self.weight.to(z.dtype))  # (B, T, D)


class Attention(nn.Module):
    """Multi-head, grouped-query (Ainslie et al. 2023) or multi-query attention: self-attention or cross-attention.

    Hook points, in the order of the forward pass: `hook_q` (B, H, T, K), `hook_k` (B, G, S, K) and `hook_v` (B, G, S,
    U), after norms and rotation and with the cached keys and values; `hook_products`, `hook_scores` and `hook_pattern`
    (B, H, T, S, see `ScoreHooks`); `hook_z` (B, H, T, U). The three hook points of shape (B, H, T, S) run only while a
    hook is registered on any of them, and attention is then computed explicitly; the other hook points always run.

    Args:
        config: model settings.
        heads: H; None: from `config`.
        kv_heads: G; None: from `config`.
    """

    def __init__(self, config: ModelConfig, heads: int | None = None, kv_heads: int | None = None) -> None:
        super().__init__()
        D = config.width
        K = config.K
        H = config.heads if heads is None else heads
        G = config.G if kv_heads is None else kv_heads
        U = config.U
        self.heads = H
        self.kv_heads = G
        self.head_width = K
        self.value_width = U
        self.query = nn.Linear(D, H * K, bias=config.attention_bias)
        self.key = nn.Linear(D, G * K, bias=config.attention_bias)
        self.value = nn.Linear(D, G * U, bias=config.attention_bias)
        self.output: nn.Linear | NoProjection
        if config.output_projection:
            self.output = nn.Linear(H * U, D, bias=config.attention_bias)
        else:
            self.output = NoProjection(D, range(H * U))
        self.query_norm = make_qk_norm(config, H)
        self.key_norm = make_qk_norm(config, G)
        self.dropout = Dropout(config.dropout_attention)
        self.hook_q = nn.Identity()
        self.hook_k = nn.Identity()
        self.hook_v = nn.Identity()
        self.hook_products = nn.Identity()
        self.hook_scores = nn.Identity()
        self.hook_pattern = nn.Identity()
        self.hook_z = nn.Identity()

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        rotation: Rotation | None = None,
        memory: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """Map (B, T, D) -> (B, T, D); keys and values come from `memory` (B, S, D) if given, else from x.

        Args:
            mask: mask for T queries and S keys.
            rotation: rotation of queries and keys; None: no rotation.
            cache: keys and values of earlier tokens, or of the memory; new keys and values are added to it. None: no
                cache.
        """
        q = self.split_heads(self.query(x), self.heads, self.query_norm)  # (B, H, T, K)
        if memory is not None and cache is not None and cache.memory is not None:
            k, v = cache.memory  # (B, G, S, K), (B, G, S, U)
        else:
            source = x if memory is None else memory  # (B, S, D)
            k = self.split_heads(self.key(source), self.kv_heads, self.key_norm)  # (B, G, S, K)
            v = self.value(source).unflatten(-1, (self.kv_heads, self.value_width)).transpose(1, 2)  # (B, G, S, U)
        if rotation is not None:
            q = rotate(q, rotation)  # (B, H, T, K)
            k = rotate(k, rotation)  # (B, G, S, K)
        if cache is not None and memory is None:
            k, v = cache.append(k, v)  # (B, G, S, K), (B, G, S, U); S now includes the cached tokens
        elif cache is not None:
            cache.memory = (k, v)
        q = self.hook_q(q)  # (B, H, T, K)
        k = self.hook_k(k.to(q.dtype))  # (B, G, S, K); the cache may have another data type
        v = self.hook_v(v.to(q.dtype))  # (B, G, S, U)
        z = self.hook_z(self.compute_z(q, k, v, mask))  # (B, H, T, U)
        return self.output(z.transpose(1, 2).flatten(2))  # (B, T, D)

    def compute_z(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Compute z (B, H, T, U) from queries, keys (B, G, S, K) and values (B, G, S, U); run score hooks, if any."""
        dropout = self.dropout.p if self.training else 0.0
        generator = self.dropout.generator
        if is_observed(self.hook_products) or is_observed(self.hook_scores) or is_observed(self.hook_pattern):
            hooks = ScoreHooks(self.hook_products, self.hook_scores, self.hook_pattern)
            z, _ = attend(q, k, v, mask, dropout, explicit=True, hooks=hooks, generator=generator)  # (B, H, T, U)
        else:
            z, _ = attend(q, k, v, mask, dropout, generator=generator)  # (B, H, T, U)
        return z

    def split_heads(self, x: Tensor, heads: int, norm: nn.RMSNorm | None = None) -> Tensor:
        """Reshape (B, T, heads K) -> (B, heads, T, K); `norm` normalizes each head, or all heads as one vector."""
        if norm is not None:  # compute in the norm's own precision under autocast
            parts = x.unflatten(-1, (-1, len(norm.weight)))  # (B, T, heads, K) or (B, T, 1, heads K)
            x = norm(parts.to(norm.weight.dtype)).to(x.dtype).flatten(2)  # (B, T, heads K)
        return x.unflatten(-1, (heads, self.head_width)).transpose(1, 2)  # (B, heads, T, K)


def make_qk_norm(config: ModelConfig, heads: int) -> nn.RMSNorm | None:
    """Return the QK-norm of queries or keys (Henry et al. 2020; Dehghani et al. 2023); None without QK-norm."""
    eps = config.norm_eps or 1e-6
    match config.qk_norm:
        case "none":
            return None
        case "head":
            return nn.RMSNorm(config.K, eps)
        case "whole":
            return nn.RMSNorm(heads * config.K, eps)
