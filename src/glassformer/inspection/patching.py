"""Activation patching: replace values inside a model during forward passes, to measure their downstream effect.

    with patch(model, {"dec.1.self.2": Zero(), "dec.0.feedforward": Mean(recorded)}):
        logits = model(tokens)

Results depend on the kind of replacement, so report which kind was used:

* `Zero`: zeros, which later layers may never have received in training.
* `Mean`: the mean over the rows and positions of recorded values.
* `Resample`: the activation at the same position for another input (Chan et al. 2022).
* `Value`: any tensor.
* `Pattern`: given attention weights, applied to the current values. Removing a head while all patterns are frozen is
  the pattern-preserving ablation of Olsson et al. 2022.
* `KnockOut`: attention to the first visible token only.

Most patches are forward hooks that return another tensor: on `hook_pattern` of the attention layer for `Pattern` and
`KnockOut`, on `hook_z` for other patches of a head, and otherwise on the module itself. The patch of a block's input is
a forward pre-hook, and the patch of a mask a
hook on `hook_causal` of the stack. Attention layers with patched patterns compute
attention step by step, as in a trace.

Names of activations (n counts layers and h heads from 0; an encoder has `enc` instead of `dec`):

================================  ===================================================================  ==============
name                              activation                                                           shape
================================  ===================================================================  ==============
`dec.n.self.h`, `dec.n.cross.h`   z of a head, before the output projection                            (B, T, K)
`dec.n.self`, `dec.n.cross`       output of an attention layer, including the output bias              (B, T, D)
`dec.n.feedforward`               output of a feed-forward layer                                       (B, T, D)
`dec.n.resid`                     residual stream before block n, or after the last block if n = L     (B, T, D)
`dec.embedding`                   output of the embedding                                              (B, T, D)
`dec.positions`                   output of the position module; only `Zero` for rotations and biases  (B or 1, T, D)
`dec.final`                       output of the stack; `enc.final` of an encoder-decoder: the memory   (B, T, D)
`dec.mask`                        causal mask; only `Zero`, which lets tokens attend to later tokens
================================  ===================================================================  ==============

`Pattern` and `KnockOut` apply to attention layers, with weights (B, H, T, S), and to heads, with weights (B, T, S).
Every kind takes `where`, a bool tensor that broadcasts to (B, T), True at the rows and positions to patch; only a mask
is always patched as a whole. A batch of copies of one row can thus be patched at a different position in each row, in
one forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.base.errors import GlassError
from glassformer.inspection.patch_kinds import KnockOut, Mean, Patch, Pattern, Resample, Value, Zero
from glassformer.inspection.sites import advice_on_part, parts
from glassformer.model.attention import Attention
from glassformer.model.positions import Rotation
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.thread_hooks import ThreadHook, register
from glassformer.model.transformer import Embedding, Model, Stack

__all__ = ["KnockOut", "Mean", "Patch", "Pattern", "Resample", "Value", "Zero", "patch", "patchable"]

Install = Callable[[Patch, str], AbstractContextManager[None]]
"""Function that applies a kind of patch to a named activation until the context ends."""


@contextmanager
def patch(model: Model, patches: Mapping[str, Patch]) -> Iterator[None]:
    """Replace the named activations in all forward passes until the context ends, normally or with an exception.

    Only forward passes of the calling thread are patched; other threads may use or patch the same model.

    Patches of the attention weights of a layer apply before those of its heads, regardless of the order of `patches`.
    Gradients flow through the remaining values of the model and into the given values.

    Args:
        model: a model of any family, in any mode, with or without a cache; with a cache, a forward pass has only the
            new positions.
        patches: patch of each activation by name; `patchable` lists the names.

    Raises:
        GlassError: a name is unknown, a kind does not apply to the named activation, or an outer `patch` already
            patches the activation, a part of it, or an activation that contains it; or, during the forward pass, a
            value is missing, or a patch does not fit the activation, such as a value or `where` of the wrong shape.
    """
    points = _patch_points(model)
    for name, kind in patches.items():
        if name not in points:
            raise GlassError(
                f"this model has no activation {name!r} to patch", advice_on_part(model, name, list(points))
            )
        _check_kind(name, kind)
        for outer in tuple(model._forward_pre_hooks.values()):
            if isinstance(outer, ThreadHook) and outer.applies and isinstance(outer.hook, _ActivePatch):
                outer.hook.refuse_overlap(name)
    with ExitStack() as hooks:
        marker = register(model.register_forward_pre_hook, _ActivePatch(tuple(patches)))
        hooks.callback(marker.remove)
        for name in sorted(patches, key=lambda each: each.count(".")):
            hooks.enter_context(points[name](patches[name], name))
        yield


def patchable(model: Model) -> list[str]:
    """List the names of all activations of a model that can be patched, in order of execution."""
    return list(_patch_points(model))


def _check_kind(name: str, kind: Patch) -> None:
    if not isinstance(kind, Patch):
        raise GlassError(
            f"{kind!r} was given for {name}, which is not a patch",
            "Give Zero(), Value(tensor), Mean(…), Resample(…), Pattern(…) or KnockOut().",
        )
    last = name.split(".")[-1]
    is_attention = last in ("self", "cross") or last.isdigit()
    if isinstance(kind, Pattern | KnockOut) and not is_attention:
        raise GlassError(
            f"{type(kind).__name__} was given for {name}, which is not an attention layer or head",
            "Use it for attention layers and heads only.",
        )
    if last == "mask" and (not isinstance(kind, Zero) or kind.where is not None):
        condition = " with `where`" if kind.where is not None else ""
        raise GlassError(
            f"{type(kind).__name__}{condition} was given for {name}",
            "Give Zero() without `where`: a mask can only be removed as a whole.",
        )


class _ActivePatch:
    """Record of an active `patch`, stored as a hook of the model so that nested patches can find it."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        return None

    def refuse_overlap(self, name: str) -> None:
        """Raise a `GlassError` if this patch covers `name`, a part of `name`, or an activation that contains `name`."""
        for patched in self.names:
            if patched == name or patched.startswith(f"{name}.") or name.startswith(f"{patched}."):
                raise GlassError(f"{name} is patched inside a patch of {patched}", "Patch each activation once.")


def _patch_points(model: Model) -> dict[str, Install]:
    """Return the patch function of each activation by name, in order of execution."""
    points: dict[str, Install] = {}
    layers = {str(site): part for site, part in parts(model)}
    for name, stack in model.stacks.items():
        points[f"{name}.mask"] = partial(_patch_mask, stack)
        points |= _embedding_points(name, stack, model.embeddings[name])
        for layer, block in enumerate(stack.blocks):
            points[f"{name}.{layer}.resid"] = partial(_patch_input, block)
            for site in [site for site in layers if site.startswith(f"{name}.{layer}.")]:
                part = layers[site]
                points[site] = partial(_patch_output, part)
                if isinstance(part, Attention):
                    points[site] = partial(_patch_attention, part)
                    for index, head in enumerate(head_numbers(part)):
                        points[f"{site}.{head}"] = partial(_patch_head, part, index)
        points[f"{name}.{len(stack.blocks)}.resid"] = partial(_patch_output, stack.blocks[-1])
        points[f"{name}.final"] = partial(_patch_output, stack)
    return points


def _embedding_points(name: str, stack: Stack, embedding: Embedding) -> dict[str, Install]:
    points: dict[str, Install] = {f"{name}.embedding": partial(_patch_output, embedding, during=stack)}
    positions = embedding.positions or stack.rotary or stack.score_positions
    if positions is not None:
        points[f"{name}.positions"] = partial(_patch_output, positions, during=stack)
    return points


@contextmanager
def _patch_output(module: nn.Module, kind: Patch, name: str, during: Stack | None = None) -> Iterator[None]:
    """Patch the output of a module.

    If `during` is given, patch it only while this stack runs, because two stacks may share an embedding.
    """
    running = [during is None]

    def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor | Rotation) -> Tensor | Rotation:
        return _patched_value(kind, output, name) if running[0] else output

    def begin(module: nn.Module, args: tuple[Any, ...]) -> None:
        running[0] = True

    def end(module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        running[0] = False

    with ExitStack() as hooks:
        hooks.callback(register(module.register_forward_hook, hook).remove)
        if during is not None:
            hooks.callback(register(during.register_forward_pre_hook, begin).remove)
            hooks.callback(register(during.register_forward_hook, end, always_call=True).remove)
        yield


@contextmanager
def _patch_input(block: nn.Module, kind: Patch, name: str) -> Iterator[None]:
    """Patch the first input of a block."""

    def hook(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return _patched_value(kind, args[0], name), *args[1:]

    handle = register(block.register_forward_pre_hook, hook)
    try:
        yield
    finally:
        handle.remove()


def _patched_value(kind: Patch, current: Any, name: str) -> Any:
    """Return the current value with replacements at the rows and positions to patch."""
    assert not isinstance(kind, Pattern | KnockOut)
    if isinstance(current, Rotation):
        return Rotation(
            _patched_rotation(kind, current.cos, name, 1.0), _patched_rotation(kind, current.sin, name, 0.0)
        )
    if current.dim() == 4 and not isinstance(kind, Zero):  # a position bias on the scores
        raise _only_zero_error(kind, name)
    return _select_patched(kind, kind.value(current, name), current, name)


def _patched_rotation(kind: Patch, current: Tensor, name: str, identity: float) -> Tensor:
    """Replace the cosine or sine of a rotation, (B or 1, 1, T, K), with that of the identity rotation."""
    if not isinstance(kind, Zero):
        raise _only_zero_error(kind, name)
    return _select_patched(kind, torch.full_like(current, identity), current, name)


def _only_zero_error(kind: Patch, name: str) -> GlassError:
    return GlassError(
        f"{type(kind).__name__} was given for {name}, but the positions of this model are not added to the embedding",
        "Give Zero().",
    )


def _select_patched(kind: Patch, new: Tensor, current: Tensor, name: str) -> Tensor:
    """Return `new` at the rows and positions to patch, and `current` elsewhere.

    Both are (B, T, any) or (B, heads, T, any); the first dimension may be 1.
    """
    if kind.where is None:
        return new
    if kind.where.dtype != torch.bool:
        problem = f"`where` of type {kind.where.dtype} was given for {name}"
        raise GlassError(problem, "Give a bool tensor, True at the positions to patch.")
    where = torch.atleast_2d(kind.where).to(current.device)  # (B or 1, T or 1)
    n_positions = current.shape[-2]
    n_rows = max(len(where), len(current))
    if where.dim() != 2 or where.shape[1] not in (1, n_positions) or {len(where), len(current)} - {1, n_rows}:
        raise GlassError(
            f"`where` of shape {tuple(kind.where.shape)} was given for {name}, which has {len(current)} rows and "
            f"{n_positions} positions here",
            f"Give a shape of ({len(current)}, {n_positions}), or one that broadcasts to it.",
        )
    where = (
        where[..., None] if current.dim() == 3 else where[:, None, :, None]
    )  # same number of dimensions as `current`
    return torch.where(where, new, current)


@contextmanager
def _patch_mask(stack: Stack, kind: Patch, name: str) -> Iterator[None]:
    """Remove the causal mask; padding stays masked, and a window applies to both sides."""
    handle = register(stack.hook_causal.register_forward_hook, lambda module, args, causal: False)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _patch_attention(layer: Attention, kind: Patch, name: str) -> Iterator[None]:
    """Patch the output of an attention layer, or the attention weights of all its heads."""
    if not isinstance(kind, Pattern | KnockOut):
        with _patch_output(layer, kind, name):
            yield
        return

    def change(pattern: Tensor, first: Tensor) -> Tensor:
        return _select_patched(kind, kind.weights(pattern.shape, first, pattern, name), pattern, name)  # (B, H, T, S)

    with _pattern_hook(layer, change):
        yield


@contextmanager
def _patch_head(layer: Attention, head: int, kind: Patch, name: str) -> Iterator[None]:
    """Patch z, or the attention weights, of one head."""

    def replace_head(all_heads: Tensor, new: Tensor) -> Tensor:
        new = _select_patched(kind, new, all_heads[:, head], name)  # (B, T, K or S)
        return torch.cat([all_heads[:, :head], new[:, None], all_heads[:, head + 1 :]], dim=1)  # (B, H, T, K or S)

    if isinstance(kind, Pattern | KnockOut):

        def change(pattern: Tensor, first: Tensor) -> Tensor:
            head_pattern = pattern[:, head]  # (B, T, S)
            return replace_head(pattern, kind.weights(head_pattern.shape, first, head_pattern, name))  # (B, H, T, S)

        with _pattern_hook(layer, change):
            yield
        return

    def hook(module: nn.Module, args: tuple[Any, ...], z: Tensor) -> Tensor:
        return replace_head(z, kind.value(z[:, head], name))  # (B, H, T, K)

    handle = register(layer.hook_z.register_forward_hook, hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _pattern_hook(layer: Attention, change: Callable[[Tensor, Tensor], Tensor]) -> Iterator[None]:
    """Replace the pattern (B, H, T, S) with `change(pattern, first)` until the context ends.

    `first` (B) is the position of each row's first visible key, according to the scores of the pass.
    """
    first: list[Tensor] = []

    def find_first_key(module: nn.Module, args: tuple[Any, ...], scores: Tensor) -> None:
        allowed = scores != -torch.inf  # (B, H, T, S)
        first[:] = [allowed.flatten(1, 2).any(dim=1).long().argmax(dim=-1)]  # (B)

    def hook(module: nn.Module, args: tuple[Any, ...], pattern: Tensor) -> Tensor:
        return change(pattern, first[0])

    with ExitStack() as hooks:
        hooks.callback(register(layer.hook_scores.register_forward_hook, find_first_key).remove)
        hooks.callback(register(layer.hook_pattern.register_forward_hook, hook).remove)
        yield
