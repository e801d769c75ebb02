"""Trace of a forward pass: all tensors between the ids and the logits.

The model itself runs, in evaluation mode and without gradients. Hooks record the arguments and the output of each
module. Because scores and patterns are recorded, attention is computed step by step instead of by the fused kernel; the
logits stay within 1e-4 of those of an unobserved pass (in float32).
"""

from __future__ import annotations

import inspect
import math
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.base.errors import GlassError
from glassformer.generation.decoding import check_finite
from glassformer.inspection.hooks import Tap, tapped
from glassformer.inspection.traced import AttentionTrace, BlockTrace, FeedForwardTrace, StackTrace, Trace
from glassformer.model.attention import Attention, Mask
from glassformer.model.evaluation_mode import evaluation_mode
from glassformer.model.pruned_attention import head_numbers, kv_index, mask_of_heads
from glassformer.model.transformer import (
    Block,
    Classifier,
    Embedding,
    EncoderDecoder,
    FeedForward,
    Head,
    Model,
    ModelInput,
    Stack,
    activate,
)

__all__ = ["AttentionTrace", "BlockTrace", "FeedForwardTrace", "StackTrace", "Trace", "trace"]


def trace(model: Model, tokens: Tensor, target: Tensor | None = None, real: Tensor | None = None) -> Trace:
    """Run one forward pass and record all tensors between ids and logits; the model is not modified.

    Args:
        model: a model of any family, in any mode and on any device.
        tokens: input ids, (B, T); for an encoder-decoder the source ids.
        target: target ids of an encoder-decoder, (B, T), including the tokens that start a target; otherwise None.
        real: (B, T) bool, False at padding of `tokens`; None: no padding.

    Raises:
        GlassError: the ids or `real` do not fit the model, a target is missing or not allowed, or the logits are not
            finite.
    """
    inputs = check_inputs(model, tokens, target, real)
    real = inputs.attention_mask
    # Tensors created in inference mode cannot be used with autograd later, so no_grad is used instead.
    calls = Calls(model)
    with evaluation_mode(model), torch.inference_mode(False), torch.no_grad(), calls.recorded():
        logits = model.run(inputs)  # (B, T, V) or (B, C)
    with torch.inference_mode(False), torch.no_grad():
        check_finite(logits)
        if isinstance(model, EncoderDecoder):
            source = _stack(calls, model.encoder, model.embeddings["enc"], real, call_index=0)
            target_stack = _stack(calls, model.decoder, model.embedding, None)
            return Trace(target_stack, source, None, _transformed(calls, model.head), logits)
        stack_trace = _stack(calls, model.stack, model.embedding, real)
        if isinstance(model, Classifier):
            return Trace(stack_trace, None, calls.output(model.dropout), None, logits)  # pooled: (B, D)
        return Trace(stack_trace, None, None, _transformed(calls, model.head), logits)


def _transformed(calls: Calls, head: Head) -> Tensor | None:
    """Return the final vectors after the head's transform, (B, T, D), or None if it has no transform."""
    return None if head.transform is None else calls.output(head.norm)


def check_inputs(model: Model, tokens: Tensor, target: Tensor | None, real: Tensor | None) -> ModelInput:
    """Check the arguments of `trace`, and return copies on the model's device.

    Raises:
        GlassError: the ids or `real` do not fit the model, or a target is missing or not allowed.
    """
    if (target is not None) != (len(model.stacks) == 2):
        description = "no target" if target is None else "a target"
        raise GlassError(
            f"{description} was given to the model, which is of type {type(model).__name__}",
            "Give a target if, and only if, the model is an EncoderDecoder.",
        )
    device = model.embedding.tokens.weight.device
    _check_ids(tokens, next(iter(model.embeddings.values())))
    if real is not None and (real.shape != tokens.shape or real.dtype != torch.bool):
        raise GlassError(
            f"`real` of shape {tuple(real.shape)} and type {real.dtype} was given",
            f"Give a bool tensor of shape {tuple(tokens.shape)}, False at padding.",
        )
    tokens = tokens.to(device, torch.long).clone()
    real = None if real is None else real.to(device).clone()
    if target is not None:
        _check_ids(target, model.embedding)
        target = target.to(device, torch.long).clone()
    return ModelInput(tokens, target, real)


def _check_ids(ids: Tensor, embedding: Embedding) -> None:
    if ids.dim() != 2 or not ids.numel():
        raise GlassError(
            f"ids of shape {tuple(ids.shape)} were given", "Give a shape of (rows, tokens), both at least 1."
        )
    low = int(ids.min())
    high = int(ids.max())
    vocab_size = embedding.tokens.num_embeddings
    if low < 0 or high >= vocab_size:
        invalid_id = low if low < 0 else high
        raise GlassError(f"the token {invalid_id} is outside the vocabulary", f"Give ids from 0 to {vocab_size - 1}.")


class Calls:
    """Arguments and outputs of all modules of a model, in the order of the calls."""

    def __init__(self, model: Model) -> None:
        self._values: dict[Tap, list[Any]] = {}
        self._taps = [Tap(module, side) for module in model.modules() for side in ("arguments", "output")]

    def recorded(self) -> AbstractContextManager[None]:
        """Return a context manager that records all module calls."""
        return tapped({tap: tap for tap in self._taps}, self._record)

    def _record(self, tap: Tap, value: Any) -> None:
        self._values.setdefault(tap, []).append(value)

    def output(self, module: nn.Module, call_index: int = -1) -> Tensor:
        """Return the output of a module in one of its calls, by default the last one."""
        return self._values[Tap(module)][call_index]

    def input(self, module: nn.Module) -> Tensor:
        """Return the first argument of a module in its last call, whatever its name is."""
        return self._values[Tap(module, "arguments")][-1][0][0]

    def argument(self, module: nn.Module, name: str, call_index: int = -1) -> Any:
        """Return an argument of a module's call by its name, or None if the call omitted it."""
        args, kwargs = self._values[Tap(module, "arguments")][call_index]
        return inspect.signature(module.forward).bind(*args, **kwargs).arguments.get(name)


def _stack(calls: Calls, stack: Stack, embedding: Embedding, real: Tensor | None, call_index: int = -1) -> StackTrace:
    """Return the trace of a stack.

    `call_index` selects the stack's call among all calls of its embedding, which source and target may share.
    """
    embedded = calls.output(embedding, call_index)  # (B, T, D)
    position_vectors = None
    if embedding.positions is not None:
        position_vectors = calls.output(embedding.positions, call_index).to(embedded.dtype)  # (B or 1, T, D)
    return StackTrace(
        ids=calls.argument(embedding, "tokens", call_index),
        attention_mask=real,
        positions=calls.argument(embedding, "positions", call_index),
        token_vectors=calls.output(embedding.tokens, call_index) * embedding.scale,  # (B, T, D)
        position_vectors=position_vectors,
        embedded=embedded,
        blocks=tuple(_block(calls, block) for block in stack.blocks),
        final=calls.output(stack),
    )


def _block(calls: Calls, block: nn.Module) -> BlockTrace:
    assert isinstance(block, Block)
    cross = block.cross
    norms = (block.cross_norm, block.feedforward_norm)
    parts = (cross, block.feedforward)
    # The residual stream after each part is the input of the next part, or of the norm before it.
    readers = [reader for reader in (norms if block.norm_order == "pre" else parts) if reader is not None]
    after = [calls.input(reader) for reader in readers] + [calls.output(block)]  # (B, T, D) each
    return BlockTrace(
        order=block.norm_order,
        before=calls.argument(block, "x"),
        attention_norm=calls.output(block.attention_norm),
        attention=_attention(calls, block.attention),
        after_attention=after[0],
        cross_norm=None if block.cross_norm is None else calls.output(block.cross_norm),
        cross=None if cross is None else _attention(calls, cross),
        after_cross=None if cross is None else after[1],
        feedforward_norm=calls.output(block.feedforward_norm),
        feedforward=_feedforward(calls, block.feedforward),
        after=after[-1],
    )


def _feedforward(calls: Calls, layer: nn.Module) -> FeedForwardTrace:
    if type(layer) is not FeedForward:
        return FeedForwardTrace(calls.input(layer), None, None, None, None, calls.output(layer))
    up = calls.output(layer.up)  # (B, T, F)
    gate = None if layer.gate is None else calls.output(layer.gate)  # (B, T, F)
    return FeedForwardTrace(
        input=calls.input(layer),
        up=up,
        gate=gate,
        activated=activate(up if gate is None else gate, layer.activation),  # (B, T, F)
        hidden=calls.input(layer.down),
        output=calls.output(layer),
    )


def _attention(calls: Calls, layer: Attention) -> AttentionTrace:
    x = calls.argument(layer, "x")
    memory = calls.argument(layer, "memory")
    mask: Mask = mask_of_heads(layer, calls.argument(layer, "mask"))
    q_projected = _heads(calls.output(layer.query), layer)  # (B, H, T, K)
    k_projected = _heads(calls.output(layer.key), layer)  # (B, G, S, K)
    q_unrotated = q_projected  # (B, H, T, K)
    k_unrotated = k_projected  # (B, G, S, K)
    if layer.query_norm is not None and layer.key_norm is not None:
        q_normed = calls.output(layer.query_norm).to(q_projected.dtype).flatten(2)  # (B, T, H K)
        k_normed = calls.output(layer.key_norm).to(k_projected.dtype).flatten(2)  # (B, S, G K)
        q_unrotated = _heads(q_normed, layer)  # (B, H, T, K)
        k_unrotated = _heads(k_normed, layer)  # (B, G, S, K)
    scaled = calls.output(layer.hook_products)  # (B, H, T, S)
    masked = calls.output(layer.hook_scores)  # (B, H, T, S)
    allowed = (masked != -math.inf).any(dim=1, keepdim=True)  # (B, 1, T, S)
    if not layer.heads:  # a layer without heads has no scores: use the mask
        allowed = mask.allowed_tensor(masked)  # (B or 1, 1, T or 1, S)
        if mask.fully_masked is not None:
            allowed = allowed & ~mask.fully_masked  # (B or 1, 1, T or 1, S)
    z = calls.output(layer.hook_z)  # (B, H, T, U)
    return AttentionTrace(
        heads=tuple(head_numbers(layer)),
        kv_index=tuple(kv_index(layer)),
        input=x,
        source=x if memory is None else memory,
        q_projected=q_projected,
        k_projected=k_projected,
        q_unrotated=q_unrotated,
        k_unrotated=k_unrotated,
        q=calls.output(layer.hook_q),
        k=calls.output(layer.hook_k),
        v=calls.output(layer.hook_v),
        rotation=calls.argument(layer, "rotation"),
        scaled=scaled,
        bias=mask.bias,
        masked=masked,
        allowed=allowed.expand(len(masked), 1, *masked.shape[2:]),
        pattern=calls.output(layer.hook_pattern),
        z=z,
        head_outputs=head_outputs(layer, z),
        output_bias=None if layer.output.bias is None else layer.output.bias.detach().clone(),
        output=calls.output(layer),
    )


def head_outputs(layer: Attention, z: Tensor) -> Tensor:
    """Return the contribution of each head to the layer's output: z (B, H, T, U) -> (B, H, T, D)."""
    matrix = layer.output.weight.unflatten(1, (layer.heads, layer.value_width))  # (D, H, U)
    return torch.einsum("bhtu,dhu->bhtd", z, matrix)  # (B, H, T, D)


def _heads(x: Tensor, layer: Attention) -> Tensor:
    """Split a projection into heads: (B, T, heads K) -> (B, heads, T, K)."""
    return x.unflatten(-1, (x.shape[-1] // layer.head_width, layer.head_width)).transpose(1, 2)
