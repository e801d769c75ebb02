"""Logits of one more token for each row, with fewer and larger kernels than the model itself needs.

A step of decoding does little arithmetic; it waits for the weights to come from memory and for kernels to start. Equal
to the model on one column of tokens but for rounding, with the model's own parts wherever they cost little:

* **Matrix multiplications.** One computes queries, keys and values, and one a gate and the layer that it gates: of
  copies of their weights, side by side. The last one of a part adds to the residual stream in the same kernel. On a
  processor all weights are laid out for the kernels of oneDNN (by operators that `torch.compile` uses too) where that
  repays and this torch has them: a second copy, kept as long as the decoder.
* **Masks.** The last token of a row may attend to every key inside the window that is not masked: mostly to all.
* **Query heads that share a key head** attend to it as if they were several tokens, and so do rows that share a memory.
* **The cache** is in float32 on a processor, whose attention kernel is slow with one bfloat16 query.

`fast_decoder` returns None where a model has parts that are not known here, or where a hook is registered on one of its
parts, hook points of attention included: then the model itself has to run.
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
from glassformer.model.attention import Attention
from glassformer.model.cache import Cache, LayerCache
from glassformer.model.positions import (
    AddedPositions,
    RotaryPositions,
    Rotation,
    ScorePositions,
    rotate,
)
from glassformer.model.pruned_attention import PrunedAttention, head_numbers
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

KNOWN = {
    Stack,
    PreNormBlock,
    PostNormBlock,
    OutputNormBlock,
    Attention,
    PrunedAttention,
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
    nn.Dropout,
}
"""The parts that `FastDecoder` knows. Their subclasses may compute something else, so they are not among them.

Position methods that add vectors or biases are called as they are, so any of them is supported.
"""
PRODUCTS = 64
"""Number of rows times key heads from which on a CPU attends by batched matrix multiplications. PyTorch's attention
kernel is made for many queries and took up to 4 times as long; below this number it is faster."""
LAYOUT_STEPS = 16  # steps after which a new layout of the weights has saved its cost
KERNELS = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")  # private: torch may lose them
KERNEL_ACTIVATIONS = {"relu": ("relu", ""), "gelu": ("gelu", "none"), "gelu_tanh": ("gelu", "tanh")}  # oneDNN's names


def fast_decoder(model: Decoder | EncoderDecoder, steps: int) -> FastDecoder | None:
    """Return a decoder that replaces the model for about `steps` steps; None where the model has to run itself."""
    if unknown_part(model) is not None:
        return None
    stack = model.stack if isinstance(model, Decoder) else model.decoder
    layout = layout_pays(model.embedding.tokens.weight, steps)
    fast = FastDecoder(model.embedding, stack, model.head, layout)
    fast.hooks = hooks_of(model)
    return fast if fast.applies() else None


def unknown_part(model: Decoder | EncoderDecoder) -> str | None:
    """Return the type of a part of a decoder that is not known here; None: all are."""
    for part in _decoding_parts(model):
        if not (type(part) in KNOWN or isinstance(part, AddedPositions | ScorePositions)):
            return type(part).__name__
    return None


def hooks_of(model: Decoder | EncoderDecoder) -> list[dict[int, Callable[..., object]]]:
    """Return the dictionaries of all forward hooks that a step calls; those registered later appear in them."""
    parts = [model, *_decoding_parts(model)]
    hooks = [hooks for part in parts for hooks in (part._forward_hooks, part._forward_pre_hooks)]
    return [*hooks, any_module._global_forward_hooks, any_module._global_forward_pre_hooks]


def _decoding_parts(model: Decoder | EncoderDecoder) -> list[nn.Module]:
    """Return all modules that read a token in a decoder, or in the decoder of an encoder-decoder."""
    stack = model.stack if isinstance(model, Decoder) else model.decoder
    return [part for whole in (model.embedding, stack, model.head) for part in whole.modules()]


def layout_pays(weight: Tensor, steps: int) -> bool:
    """Return whether oneDNN can have its own layout of weights like this one, and repays it."""
    if weight.device.type != "cpu" or steps < LAYOUT_STEPS or not torch.backends.mkldnn.is_available():
        return False
    if not all(hasattr(torch.ops.mkldnn, name) for name in KERNELS):
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32


class FastDecoder:
    """A decoder, or the decoder of an encoder-decoder, for one new token of each row.

    It uses the weights that the parts have now; later changes do not reach all of its copies.

    Args:
        embedding, stack, head: of the model.
        layout: whether to lay out the weights for oneDNN.
    """

    def __init__(self, embedding: Embedding, stack: Stack, head: Head, layout: bool) -> None:
        self.embedding = embedding
        self.embedding_norm = _norm(embedding.norm)
        self.stack = stack
        self.head = head
        blocks = [block for block in stack.blocks if isinstance(block, Block)]
        self.blocks = [_parts(block, layout) for block in blocks]
        self.add = ORDERS[blocks[0].norm_order]
        self.norm = _norm(stack.norm)
        matrix = embedding.tokens.weight if head.weight is None else head.weight  # (V, D)
        self.logits = _linear(matrix, head.bias, layout) if head.transform is None else None
        self.hooks: list[dict[int, Callable[..., object]]] = []
        self.device = matrix.device.type
        wide = torch.promote_types(matrix.dtype, torch.float32)
        self.cache_type = wide if self.device == "cpu" else matrix.dtype

    def applies(self) -> bool:
        """Return whether no hook is registered on the model, and no autocast asks for another precision."""
        return not any(self.hooks) and not torch.is_autocast_enabled(self.device)

    def __call__(self, tokens: Tensor, cache: Cache, memory_mask: Tensor | None = None) -> Tensor:
        """Ids (B,) -> logits (B, V) of the next tokens.

        Args:
            cache: holds the tokens before these, and the memory's keys and values; it is filled with these.
            memory_mask: (sources, S) bool, False at padding of the memories; None: no padding.
        """
        positions, key_positions, attention_mask = cache.extend(1)  # (B or 1, 1), (B or 1, S), (B, S)
        rotation = None if self.stack.rotary is None else self.stack.rotary(positions)
        added = None if memory_mask is None else _added(memory_mask[:, None, None, :], self.cache_type)
        shared = _StepInputs(self._mask(positions, key_positions, attention_mask), rotation, added)
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
        """Return the mask to add to the scores (B or 1, 1 or H, 1, S); None: nothing. No key is in the future."""
        allowed = None if attention_mask is None else attention_mask[:, None, None, :]  # (B, 1, 1, S)
        window = self.stack.window
        if window is not None and key_positions.shape[1] > window:
            near = (positions - key_positions < window)[:, None, None, :]  # (B or 1, 1, 1, S)
            allowed = near if allowed is None else allowed & near  # (B or 1, 1, 1, S)
        mask = None if allowed is None else _added(allowed, self.cache_type)  # (B or 1, 1, 1, S)
        if self.stack.score_positions is None:
            return mask
        bias = self.stack.score_positions(positions, key_positions).to(self.cache_type)  # (B or 1, H, 1, S)
        return bias if mask is None else bias + mask  # (B or 1, H, 1, S)


@dataclass(frozen=True, slots=True)
class _StepInputs:
    """Masks and positions that are the same for every layer; the masks are added to scores."""

    mask: Tensor | None  # (B or 1, 1 or H, 1, S)
    rotation: Rotation | None
    memory_mask: Tensor | None  # (sources, 1, 1, S)


Norm = Callable[[Tensor], Tensor]
Part = Callable[[Tensor, Tensor | None, LayerCache, _StepInputs], Tensor]
"""A function that returns its output (B, D) plus the stream (B, D); the output alone without a stream."""


def _pre(x: Tensor, part: Part, norm: Norm, cache: LayerCache, shared: _StepInputs) -> Tensor:
    return part(norm(x), x, cache, shared)


def _post(x: Tensor, part: Part, norm: Norm, cache: LayerCache, shared: _StepInputs) -> Tensor:
    return norm(part(x, x, cache, shared))


def _output(x: Tensor, part: Part, norm: Norm, cache: LayerCache, shared: _StepInputs) -> Tensor:
    return x + norm(part(x, None, cache, shared))


ORDERS = {"pre": _pre, "post": _post, "output": _output}


def _parts(block: Block, layout: bool) -> list[tuple[Part, Norm]]:
    """Return the parts of a block in their order, each with its norm."""
    parts: list[tuple[Part, Norm]] = [(_SelfAttention(block.attention, layout), _norm(block.attention_norm))]
    if block.cross is not None and block.cross_norm is not None:
        parts.append((_CrossAttention(block.cross, layout), _norm(block.cross_norm)))
    return [*parts, (_FastFeedForward(block.feedforward, layout), _norm(block.feedforward_norm))]


def _norm(norm: nn.Module) -> Norm:
    """Return the function of a norm, without the cost of calling a module."""
    if isinstance(norm, nn.LayerNorm):
        shape = norm.normalized_shape
        weight = norm.weight
        bias = norm.bias
        eps = norm.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    return (lambda x: x) if isinstance(norm, nn.Identity) else norm


class _SelfAttention:
    """`Attention` to the tokens of the same row."""

    def __init__(self, layer: Attention, layout: bool) -> None:
        self.layer = layer
        self.heads = [layer.heads, layer.kv_heads, layer.kv_heads]
        self.inputs = _side_by_side([layer.query, layer.key, layer.value], layout)
        self.output = _side_by_side([layer.output], layout)

    def __call__(self, x: Tensor, stream: Tensor | None, cache: LayerCache, shared: _StepInputs) -> Tensor:
        layer = self.layer
        mask = shared.mask
        heads = self.inputs(x).view(x.shape[0], sum(self.heads), 1, layer.head_width)  # (B, H + 2 G, 1, K)
        q, k, v = heads.split_with_sizes(self.heads, 1)  # (B, H or G, 1, K) each
        q = _normed(q, layer.query_norm)  # (B, H, 1, K)
        k = _normed(k, layer.key_norm)  # (B, G, 1, K)
        if shared.rotation is not None:
            both = rotate(torch.cat([q, k], dim=1), shared.rotation)  # (B, H + G, 1, K)
            q, k = both.split_with_sizes(self.heads[:2], 1)  # (B, H, 1, K), (B, G, 1, K)
        k, v = cache.append(k, v)  # (B, G, S, K) each
        if mask is not None and mask.shape[1] > layer.heads:
            mask = mask[:, head_numbers(layer)]  # (B or 1, H, 1, S)
        return self.output(_attend(layer, q, k, v, mask), stream)  # (B, D)


class _CrossAttention:
    """`Attention` to a memory, whose keys and values the cache holds."""

    def __init__(self, layer: Attention, layout: bool) -> None:
        self.layer = layer
        self.query = _side_by_side([layer.query], layout)
        self.output = _side_by_side([layer.output], layout)

    def __call__(self, x: Tensor, stream: Tensor | None, cache: LayerCache, shared: _StepInputs) -> Tensor:
        assert cache.memory is not None  # the first read put it there
        k, v = cache.memory  # (sources, G, S, K) each
        if k.dtype != cache.keys.dtype:
            k = k.to(cache.keys.dtype)  # (sources, G, S, K)
            v = v.to(cache.keys.dtype)  # (sources, G, S, K)
            cache.memory = (k, v)
        q = self.query(x).view(x.shape[0], self.layer.heads, 1, self.layer.head_width)  # (B, H, 1, K)
        q = _normed(q, self.layer.query_norm)  # (B, H, 1, K)
        return self.output(_attend(self.layer, q, k, v, shared.memory_mask), stream)  # (B, D)


def _normed(x: Tensor, norm: nn.RMSNorm | None) -> Tensor:
    """Queries or keys (B, heads, 1, K), normalised where there is a norm: each head, or all as one vector."""
    if norm is None:
        return x
    rows = x.reshape(x.shape[0], -1, norm.weight.shape[0])
    return norm(rows).view(x.shape)  # (B, heads, 1, K)


def _attend(layer: Attention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Return z (B, H K) of queries (B, H, 1, K), with keys and values (sources, G, S, K).

    The H/G query heads of a key head, and the n = B/sources rows of a memory, attend as if they were tokens of one row.
    """
    if isinstance(layer, PrunedAttention) and not layer.uniform_groups:
        k = k[:, layer.kv_index]  # (sources, H, S, K)
        v = v[:, layer.kv_index]  # (sources, H, S, K)
    B = q.shape[0]
    H = layer.heads
    K = layer.head_width
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
    z = _weighted_values(q, k, v, mask).to(dtype)  # (sources, G, H/G n, K)
    if n > 1:
        z = z.view(sources, G, group, n, K).permute(0, 3, 1, 2, 4)  # (sources, n, G, H/G, K)
    return z.reshape(B, H * K)  # (B, H K)


def _weighted_values(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Return z (B, G, n, K) of queries (B, G, n, K), keys and values (B, G, S, K) and a mask to add to the scores."""
    if q.device.type != "cpu" or q.shape[0] * q.shape[1] < PRODUCTS:
        return F.scaled_dot_product_attention(q, k, v, mask)  # (B, G, n, K)
    q = q / math.sqrt(q.shape[-1])  # (B, G, n, K)
    if q.shape[2] == 1:  # keys first: the same numbers, and MKL reads a long cache up to 1.5 times as fast
        scores = torch.matmul(k, q.transpose(-1, -2)).transpose(-1, -2)  # (B, G, 1, S)
    else:
        scores = torch.matmul(q, k.transpose(-1, -2))  # (B, G, n, S)
    if mask is not None:
        scores = scores + mask  # (B, G, n, S)
    return torch.matmul(scores.softmax(dim=-1), v)  # (B, G, n, K)


class _FastFeedForward:
    """`FeedForward`, with gate and up-projection in one matrix multiplication."""

    def __init__(self, layer: FeedForward, layout: bool) -> None:
        self.activation = layer.activation
        self.gated = layer.gate is not None
        self.up = _side_by_side([layer.up] if layer.gate is None else [layer.gate, layer.up], layout)
        self.down = _side_by_side([layer.down], layout)

    def __call__(self, x: Tensor, stream: Tensor | None, cache: LayerCache, shared: _StepInputs) -> Tensor:
        if not self.gated:
            return self.down(self.up.activated(x, self.activation), stream)  # (B, D)
        gate, up = self.up(x).chunk(2, dim=-1)  # (B, F) each
        return self.down(activate(gate, self.activation) * up, stream)  # (B, D)


class _Linear:
    """Compute x Wᵀ + b by PyTorch's own kernels."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight  # (outputs, inputs)
        self.transposed = weight.T  # (inputs, outputs)
        self.bias = bias  # (outputs)

    def __call__(self, x: Tensor, stream: Tensor | None = None) -> Tensor:
        """(B, inputs) -> (B, outputs), with `stream` (B, outputs) added if given."""
        if stream is None:
            return F.linear(x, self.weight, self.bias)  # (B, outputs)
        return torch.addmm(stream if self.bias is None else stream + self.bias, x, self.transposed)  # (B, outputs)

    def activated(self, x: Tensor, activation: Activation) -> Tensor:
        """(B, inputs) -> (B, outputs), with an activation that is not gated."""
        return activate(self(x), activation)  # (B, outputs)


class _LaidOutLinear(_Linear):
    """Compute x Wᵀ + b by oneDNN's kernels, with the weights in their layout."""

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


def _linear(weight: Tensor, bias: Tensor | None, layout: bool) -> _Linear:
    """Return the layer of a matrix (outputs, inputs) and a bias (outputs); oneDNN has no layout of an empty one."""
    bias = None if bias is None else bias.detach()
    return (_LaidOutLinear if layout and weight.numel() else _Linear)(weight.detach(), bias)


def _side_by_side(layers: Sequence[nn.Linear], layout: bool) -> _Linear:
    """Return one linear layer with the outputs of several, one after the other."""
    if len(layers) == 1:
        return _linear(layers[0].weight, layers[0].bias, layout)
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]  # all have one, or none has
    weights: list[Tensor] = [layer.weight for layer in layers]
    return _linear(torch.cat(weights), torch.cat(biases) if biases else None, layout)


def _added(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 0 where allowed, else -inf, to add to scores. Any shape."""
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(~allowed, -math.inf)
