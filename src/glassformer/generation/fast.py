"""Fast decoding: compute the logits of one more token per row with fewer and larger kernels than the model itself.

A decoding step does little arithmetic; it waits for weights to arrive from memory and for kernels to start. The results
equal the model's up to rounding. The model's own modules are used wherever they cost little:

* **Matrix multiplications.** Queries, keys and values are one multiplication with concatenated copies of their weights,
  and so are the gate and the up-projection. The last multiplication of a sublayer adds to the residual stream in the
  same kernel, unless a norm comes in between. On a CPU, weights are reordered for oneDNN's kernels (with operators that
  `torch.compile` uses too) if that saves time and this version of torch has the operators. The reordered copy exists
  as long as the decoder.
* **Masks.** The last token of a row may attend to every key in the window except padding: usually to all keys.
* **Grouped query attention.** The query heads of a key head attend as if they were several tokens of one row, and so do
  the rows that share a memory.
* **Cache.** On a CPU it is at least float32, because the attention kernel there is slow with a single bfloat16 query.

`fast_decoder` returns None if the decoder has unsupported modules, if a step must call hooks (including those on the
hook points of attention), or if autocast is on; the model itself must then run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as any_module

from glassformer.base.config import Activation
from glassformer.model.attention import Attention, NoProjection
from glassformer.model.cache import Cache, LayerCache
from glassformer.model.dropout import Dropout
from glassformer.model.positions import (
    AddedPositions,
    RotaryPositions,
    Rotation,
    ScorePositions,
    rotate,
)
from glassformer.model.pruned_attention import PrunedAttention, head_numbers
from glassformer.model.thread_hooks import applies_here
from glassformer.model.transformer import (
    Block,
    Decoder,
    Embedding,
    EncoderDecoder,
    FeedForward,
    Head,
    OutputNormBlock,
    PostNormBlock,
    PreNormBlock,
    Stack,
    activate,
)

SUPPORTED_MODULES = {
    Stack,
    PreNormBlock,
    PostNormBlock,
    OutputNormBlock,
    Attention,
    PrunedAttention,
    NoProjection,
    FeedForward,
    Embedding,
    Head,
    RotaryPositions,
    nn.ModuleList,
    nn.Linear,
    nn.LayerNorm,
    nn.RMSNorm,
    nn.Embedding,
    nn.Identity,
    Dropout,
}
"""Module types that `FastDecoder` supports. Subclasses may compute something else, so they are not supported.

Position methods that add vectors or biases are called unchanged, so all of them are supported.
"""
BATCHED_ROWS = 64
"""Minimum number of rows times key heads for which attention on a CPU uses batched matrix multiplications. From
this number on, PyTorch's attention kernel, which is made for many queries, took up to 4 times as long; below it, the
kernel is faster."""
MIN_REORDER_STEPS = 16  # number of steps after which reordering the weights has saved its cost
KERNELS = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")  # private in torch
KERNEL_ACTIVATIONS = {"relu": ("relu", ""), "gelu": ("gelu", "none"), "gelu_tanh": ("gelu", "tanh")}  # names in oneDNN


def fast_decoder(model: Decoder | EncoderDecoder, steps: int) -> FastDecoder | None:
    """Return a fast decoder that replaces the model for about `steps` steps; None if the model itself must run."""
    if unsupported_module(model) is not None:
        return None
    stack = model.stack if isinstance(model, Decoder) else model.decoder
    reorder = reordering_pays_off(model.embedding.tokens.weight, steps)
    fast = FastDecoder(model.embedding, stack, model.head, reorder)
    fast.hooks = hooks_of(model)
    return fast if fast.applies() else None


def unsupported_module(model: Decoder | EncoderDecoder) -> str | None:
    """Return the type name of a module that is not supported; None if all modules of the decoder are supported."""
    for part in _decoding_parts(model):
        if not (type(part) in SUPPORTED_MODULES or isinstance(part, AddedPositions | ScorePositions)):
            return type(part).__name__
    return None


def hooks_of(model: Decoder | EncoderDecoder) -> list[dict[int, Callable[..., object]]]:
    """Return the dictionaries of all forward hooks and forward pre-hooks that a step calls.

    Hooks that are registered later appear in the same dictionaries.
    """
    parts = [model, *_decoding_parts(model)]
    hooks = [hooks for part in parts for hooks in (part._forward_hooks, part._forward_pre_hooks)]
    return [*hooks, any_module._global_forward_hooks, any_module._global_forward_pre_hooks]


def _decoding_parts(model: Decoder | EncoderDecoder) -> list[nn.Module]:
    """Return all modules of a decoder, or of the decoder of an encoder-decoder."""
    stack = model.stack if isinstance(model, Decoder) else model.decoder
    return [submodule for module in (model.embedding, stack, model.head) for submodule in module.modules()]


def reordering_pays_off(weight: Tensor, steps: int) -> bool:
    """Return whether oneDNN can reorder weights like `weight`, and `steps` steps save more time than this takes."""
    if weight.device.type != "cpu" or steps < MIN_REORDER_STEPS or not torch.backends.mkldnn.is_available():
        return False
    if not all(hasattr(torch.ops.mkldnn, name) for name in KERNELS):
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32


class FastDecoder:
    """Fast decoder for one new token per row; replaces a decoder or the decoder of an encoder-decoder.

    It copies some weights when it is created, and later changes of those weights do not affect it.

    Args:
        embedding, stack, head: modules of the model.
        reorder: whether to reorder the weights for oneDNN.
    """

    def __init__(self, embedding: Embedding, stack: Stack, head: Head, reorder: bool) -> None:
        self.embedding = embedding
        self.embedding_norm = _norm(embedding.norm)
        self.stack = stack
        self.head = head
        blocks = [block for block in stack.blocks if isinstance(block, Block)]
        self.blocks = [_sublayers(block, reorder) for block in blocks]
        self.add = ORDERS[blocks[0].norm_order]
        self.norm = _norm(stack.norm)
        matrix = embedding.tokens.weight if head.weight is None else head.weight  # (V, D)
        self.logits = _linear(matrix, head.bias, reorder) if head.transform is None else None
        self.hooks: list[dict[int, Callable[..., object]]] = []
        self.device = matrix.device.type
        at_least_float32 = torch.promote_types(matrix.dtype, torch.float32)
        self.cache_type = at_least_float32 if self.device == "cpu" else matrix.dtype

    def applies(self) -> bool:
        """Return whether no hook of the model applies to the calling thread, and autocast is off."""
        return not applies_here(*self.hooks) and not torch.is_autocast_enabled(self.device)

    def __call__(self, tokens: Tensor, cache: Cache, memory_mask: Tensor | None = None) -> Tensor:
        """Return next-token logits (B, V) for ids (B,).

        Args:
            cache: cache of the earlier tokens, and of the memory's keys and values; the new tokens are added to it.
            memory_mask: (sources, S) bool, False at padding of the memories; None: no padding.
        """
        positions, key_positions, attention_mask = cache.extend(1)  # (B or 1, 1), (B or 1, S), (B, S)
        rotation = None if self.stack.rotary is None else self.stack.rotary(positions)
        memory_bias = None if memory_mask is None else _mask_bias(memory_mask[:, None, None, :], self.cache_type)
        shared = _StepInputs(self._mask(positions, key_positions, attention_mask), rotation, memory_bias)
        x = self._embedded(tokens, positions)  # (B, D)
        for block, layer in zip(self.blocks, cache.layers, strict=True):
            for part, norm in block:
                x = self.add(x, part, norm, layer, shared)  # (B, D)
        x = self.norm(x)  # (B, D)
        return self.head(x, self.embedding) if self.logits is None else self.logits(x)  # (B, V)

    def _embedded(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return the output of `Embedding` for ids (B,) at positions (B or 1, 1): (B, D)."""
        x = torch.embedding(self.embedding.tokens.weight, tokens)  # (B, D)
        if self.embedding.scale != 1:
            x = x * self.embedding.scale  # (B, D)
        if self.embedding.positions is not None:
            x = x + self.embedding.positions(positions)[:, 0].to(x.dtype)  # (B, D)
        return self.embedding_norm(x)  # (B, D)

    def _mask(self, positions: Tensor, key_positions: Tensor, attention_mask: Tensor | None) -> Tensor | None:
        """Return the bias of the scores (B or 1, 1 or H, 1, S), -inf at masked keys; None if no bias is needed.

        A causal mask is not needed, because no key comes after the query.
        """
        allowed = None if attention_mask is None else attention_mask[:, None, None, :]  # (B, 1, 1, S)
        window = self.stack.window
        if window is not None and key_positions.shape[1] > window:
            near = (positions - key_positions < window)[:, None, None, :]  # (B or 1, 1, 1, S)
            allowed = near if allowed is None else allowed & near  # (B or 1, 1, 1, S)
        mask = None if allowed is None else _mask_bias(allowed, self.cache_type)  # (B or 1, 1, 1, S)
        if self.stack.score_positions is None:
            return mask
        bias = self.stack.score_positions(positions, key_positions).to(self.cache_type)  # (B or 1, H, 1, S)
        return bias if mask is None else bias + mask  # (B or 1, H, 1, S)


@dataclass(frozen=True, slots=True)
class _StepInputs:
    """Masks and rotation of one step, shared by all layers; the masks are added to the scores."""

    mask: Tensor | None  # (B or 1, 1 or H, 1, S)
    rotation: Rotation | None
    memory_mask: Tensor | None  # (sources, 1, 1, S)


Norm = Callable[[Tensor], Tensor]
Sublayer = Callable[[Tensor, Tensor | None, LayerCache, _StepInputs], Tensor]
"""Sublayer of a block: a function that returns its output (B, D), plus the residual stream (B, D) if given."""


def _pre_norm(x: Tensor, part: Sublayer, norm: Norm, cache: LayerCache, shared: _StepInputs) -> Tensor:
    return part(norm(x), x, cache, shared)


def _post_norm(x: Tensor, part: Sublayer, norm: Norm, cache: LayerCache, shared: _StepInputs) -> Tensor:
    return norm(part(x, x, cache, shared))


def _output_norm(x: Tensor, part: Sublayer, norm: Norm, cache: LayerCache, shared: _StepInputs) -> Tensor:
    return x + norm(part(x, None, cache, shared))


ORDERS = {"pre": _pre_norm, "post": _post_norm, "output": _output_norm}


def _sublayers(block: Block, reorder: bool) -> list[tuple[Sublayer, Norm]]:
    """Return the sublayers of a block in the order of the forward pass, each with its norm."""
    sublayers: list[tuple[Sublayer, Norm]] = [(_SelfAttention(block.attention, reorder), _norm(block.attention_norm))]
    if block.cross is not None and block.cross_norm is not None:
        sublayers.append((_CrossAttention(block.cross, reorder), _norm(block.cross_norm)))
    return [*sublayers, (_FastFeedForward(block.feedforward, reorder), _norm(block.feedforward_norm))]


def _norm(norm: nn.Module) -> Norm:
    """Return a norm as a function; for a LayerNorm this avoids the overhead of a module call."""
    if isinstance(norm, nn.LayerNorm):
        shape = norm.normalized_shape
        weight = norm.weight
        bias = norm.bias
        eps = norm.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    return (lambda x: x) if isinstance(norm, nn.Identity) else norm


class _SelfAttention:
    """Self-attention for one new token per row."""

    def __init__(self, layer: Attention, reorder: bool) -> None:
        self.layer = layer
        G = layer.kv_heads
        self.widths = [layer.heads * layer.head_width, G * layer.head_width, G * layer.value_width]
        self.inputs = _concatenated([layer.query, layer.key, layer.value], reorder)
        self.output = _linear(layer.output.weight, layer.output.bias, reorder)

    def __call__(self, x: Tensor, stream: Tensor | None, cache: LayerCache, shared: _StepInputs) -> Tensor:
        layer = self.layer
        mask = shared.mask
        B = x.shape[0]
        q, k, v = self.inputs(x).split_with_sizes(self.widths, 1)  # (B, H K), (B, G K), (B, G U)
        q = q.view(B, layer.heads, 1, layer.head_width)  # (B, H, 1, K)
        k = k.view(B, layer.kv_heads, 1, layer.head_width)  # (B, G, 1, K)
        v = v.view(B, layer.kv_heads, 1, layer.value_width)  # (B, G, 1, U)
        q = _normed(q, layer.query_norm)  # (B, H, 1, K)
        k = _normed(k, layer.key_norm)  # (B, G, 1, K)
        if shared.rotation is not None:
            rotated = rotate(torch.cat([q, k], dim=1), shared.rotation)  # (B, H + G, 1, K)
            q, k = rotated.split_with_sizes([layer.heads, layer.kv_heads], 1)  # (B, H, 1, K), (B, G, 1, K)
        k, v = cache.append(k, v)  # (B, G, S, K), (B, G, S, U)
        if mask is not None and mask.shape[1] > layer.heads:
            mask = mask[:, head_numbers(layer)]  # (B or 1, H, 1, S)
        return self.output(_attend(layer, q, k, v, mask), stream)  # (B, D)


class _CrossAttention:
    """Cross-attention for one new token per row; the cache contains the memory's keys and values."""

    def __init__(self, layer: Attention, reorder: bool) -> None:
        self.layer = layer
        self.query = _concatenated([layer.query], reorder)
        self.output = _linear(layer.output.weight, layer.output.bias, reorder)

    def __call__(self, x: Tensor, stream: Tensor | None, cache: LayerCache, shared: _StepInputs) -> Tensor:
        assert cache.memory is not None  # set by `read_targets`
        k, v = cache.memory  # (sources, G, S, K), (sources, G, S, U)
        if k.dtype != cache.keys.dtype:
            k = k.to(cache.keys.dtype)  # (sources, G, S, K)
            v = v.to(cache.keys.dtype)  # (sources, G, S, U)
            cache.memory = (k, v)
        q = self.query(x).view(x.shape[0], self.layer.heads, 1, self.layer.head_width)  # (B, H, 1, K)
        q = _normed(q, self.layer.query_norm)  # (B, H, 1, K)
        return self.output(_attend(self.layer, q, k, v, shared.memory_mask), stream)  # (B, D)


def _normed(x: Tensor, norm: nn.RMSNorm | None) -> Tensor:
    """Apply QK-norm, if any, to queries or keys (B, heads, 1, K): over each head, or over all heads as one vector."""
    if norm is None:
        return x
    rows = x.reshape(x.shape[0], -1, norm.weight.shape[0])
    return norm(rows).view(x.shape)  # (B, heads, 1, K)


def _attend(layer: Attention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Return z (B, H U) for queries (B, H, 1, K), keys (sources, G, S, K) and values (sources, G, S, U).

    The H/G query heads of a key head, and the n = B/sources rows of a memory, attend as if they were tokens of one row.
    """
    if isinstance(layer, PrunedAttention) and not layer.uniform_groups:
        k = k[:, layer.kv_index]  # (sources, H, S, K)
        v = v[:, layer.kv_index]  # (sources, H, S, U)
    B = q.shape[0]
    H = layer.heads
    K = layer.head_width
    U = layer.value_width
    dtype = q.dtype
    sources, G = k.shape[:2]
    if not H:
        return q.new_empty(B, 0)
    group = H // G
    n = B // sources
    if n > 1:
        q = q.reshape(sources, n, G, group, K).permute(0, 2, 3, 1, 4)  # (sources, G, H/G, n, K)
    q = q.reshape(sources, G, group * n, K).to(k.dtype)  # (sources, G, H/G n, K)
    if mask is not None and mask.shape[1] > 1:
        mask = mask.reshape(len(mask), G, group, -1)  # (B or 1, G, H/G, S)
    z = _weighted_values(q, k, v, mask).to(dtype)  # (sources, G, H/G n, U)
    if n > 1:
        z = z.view(sources, G, group, n, U).permute(0, 3, 1, 2, 4)  # (sources, n, G, H/G, U)
    return z.reshape(B, H * U)  # (B, H U)


def _weighted_values(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Return z (B, G, n, U) for queries (B, G, n, K), keys (B, G, S, K) and values (B, G, S, U), with a score mask."""
    if q.device.type != "cpu" or q.shape[0] * q.shape[1] < BATCHED_ROWS:
        return F.scaled_dot_product_attention(q, k, v, mask)  # (B, G, n, U)
    q = q / math.sqrt(q.shape[-1])  # (B, G, n, K)
    if q.shape[2] == 1:  # k qᵀ instead of q kᵀ: same values, and MKL reads a long cache up to 1.5 times as fast
        scores = torch.matmul(k, q.transpose(-1, -2)).transpose(-1, -2)  # (B, G, 1, S)
    else:
        scores = torch.matmul(q, k.transpose(-1, -2))  # (B, G, n, S)
    if mask is not None:
        scores = scores + mask  # (B, G, n, S)
    return torch.matmul(scores.softmax(dim=-1), v)  # (B, G, n, U)


class _FastFeedForward:
    """Feed-forward layer with the gate and the up-projection in one matrix multiplication."""

    def __init__(self, layer: FeedForward, reorder: bool) -> None:
        self.activation = layer.activation
        self.gated = layer.gate is not None
        self.up = _concatenated([layer.up] if layer.gate is None else [layer.gate, layer.up], reorder)
        self.down = _concatenated([layer.down], reorder)

    def __call__(self, x: Tensor, stream: Tensor | None, cache: LayerCache, shared: _StepInputs) -> Tensor:
        if not self.gated:
            return self.down(self.up.activated(x, self.activation), stream)  # (B, D)
        gate, up = self.up(x).chunk(2, dim=-1)  # (B, F) each
        return self.down(activate(gate, self.activation) * up, stream)  # (B, D)


class _Linear:
    """Linear layer x Wᵀ + b with PyTorch's kernels."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight  # (outputs, inputs)
        self.transposed = weight.T  # (inputs, outputs)
        self.bias = bias  # (outputs)

    def __call__(self, x: Tensor, stream: Tensor | None = None) -> Tensor:
        """Map (B, inputs) -> (B, outputs), and add `stream` (B, outputs) if given."""
        if stream is None:
            return F.linear(x, self.weight, self.bias)  # (B, outputs)
        return torch.addmm(stream if self.bias is None else stream + self.bias, x, self.transposed)  # (B, outputs)

    def activated(self, x: Tensor, activation: Activation) -> Tensor:
        """Map (B, inputs) -> (B, outputs), and apply an activation that is not gated."""
        return activate(self(x), activation)  # (B, outputs)


class _ReorderedLinear(_Linear):
    """Linear layer x Wᵀ + b with oneDNN's kernels and weights reordered for them."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        self.bias = bias
        self.plain = torch.ops.mkldnn._linear_pointwise.default
        self.adding = torch.ops.mkldnn._linear_pointwise.binary

    def __call__(self, x: Tensor, stream: Tensor | None = None) -> Tensor:
        if stream is None:
            return self.plain(x, self.weight, self.bias, "none", [], "")  # (B, outputs)
        return self.adding(x, stream, self.weight, self.bias, "add")  # (B, outputs)

    def activated(self, x: Tensor, activation: Activation) -> Tensor:
        if activation not in KERNEL_ACTIVATIONS:
            return super().activated(x, activation)  # (B, outputs)
        name, kind = KERNEL_ACTIVATIONS[activation]
        return self.plain(x, self.weight, self.bias, name, [], kind)  # (B, outputs)


def _linear(weight: Tensor, bias: Tensor | None, reorder: bool) -> _Linear:
    """Return the linear layer of a matrix (outputs, inputs) and a bias (outputs)."""
    bias = None if bias is None else bias.detach()
    # oneDNN cannot reorder an empty matrix.
    return (_ReorderedLinear if reorder and weight.numel() else _Linear)(weight.detach(), bias)


def _concatenated(layers: Sequence[nn.Linear], reorder: bool) -> _Linear:
    """Return one linear layer whose outputs are the concatenated outputs of several layers."""
    if len(layers) == 1:
        return _linear(layers[0].weight, layers[0].bias, reorder)
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]  # all or none have a bias
    weights: list[Tensor] = [layer.weight for layer in layers]
    return _linear(torch.cat(weights), torch.cat(biases) if biases else None, reorder)


def _mask_bias(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a score bias of the shape of `allowed`: 0 where allowed, else -inf."""
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(~allowed, -math.inf)
