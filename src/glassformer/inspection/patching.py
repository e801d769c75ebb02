"""Other values in the place of the model's own, for a while: what happens downstream tells what they were for.

    with patch(model, {"dec.1.self.2": Zero(), "dec.0.feedforward": Mean(recorded)}):
        logits = model(tokens)

The kinds differ, and so do their answers; always say which one was used:

* `Zero`: nothing. Zero is a value that the rest of the model may never have seen.
* `Mean`: the mean over the rows and places of a probe batch.
* `Resample`: what the same place held for another input (Chan et al. 2022).
* `Value`: any tensor.
* `Pattern`: frozen attention weights over the values of the moment. With all patterns frozen and a head taken away, it
  is the pattern-preserving ablation of Olsson et al. 2022.
* `KnockOut`: all attention to the first token.

Every patch is a forward hook that returns another tensor: of a head on `hook_z` or `hook_pattern` of its attention, of
the rest on the module itself. Attentions whose patterns are patched compute step by step, as in a trace.

What is patched, by its name (n counts layers and h heads from 0; `enc` in the place of `dec` for an encoder):

================================  ===================================================================  =============
name                              what                                                                 shape
================================  ===================================================================  =============
`dec.n.self.h`, `dec.n.cross.h`   z of a head, before the output projection                            (B, T, K)
`dec.n.self`, `dec.n.cross`       what an attention gives, the output bias included                    (B, T, D)
`dec.n.feedforward`               what a feed-forward layer gives                                      (B, T, D)
`dec.n.resid`                     the stream before block n; n may be the number of blocks: after all  (B, T, D)
`dec.embedding`                   what the embedding gives                                             (B, T, D)
`dec.positions`                   what places add, wherever they do; but for added ones, only `Zero`
`dec.final`                       what the stack gives: the decoder's last vectors, the memory         (B, T, D)
`dec.mask`                        the causal mask; only `Zero`: all places see all
================================  ===================================================================  =============

`Pattern` and `KnockOut` are for attentions, with weights (B, H, T, S), and for heads, (B, T, S).
Every kind takes `where`, a bool tensor that broadcasts to (B, T): True where it acts. So a batch of copies of one row
can be patched at another place in each of its rows, in one forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.base.errors import GlassError
from glassformer.inspection.patch_kinds import Kind, KnockOut, Mean, Pattern, Resample, Value, Zero
from glassformer.inspection.sites import advice_on_part, embedding_below, parts, stacks
from glassformer.model.attention import Attention
from glassformer.model.positions import Rotation
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import Embedding, Model, Stack

__all__ = ["Kind", "KnockOut", "Mean", "Pattern", "Resample", "Value", "Zero", "patch", "patchable"]

Install = Callable[[Kind, str], AbstractContextManager[None]]
"""Lets a kind act at the place of that name while the context lasts."""


@contextmanager
def patch(model: Model, patches: Mapping[str, Kind]) -> Iterator[None]:
    """Inside, other values stand in the places named; afterwards, also after an exception, the model is as it was.

    Patches of one attention act from the whole to its heads, whatever their order in `patches`. Gradients flow through
    what is left of the model's own values, and into the values given.

    Args:
        model: any of the families, in any mode; with a cache, too: then a pass has only the new places.
        patches: kinds by the names that `patchable` lists; see the module.

    Raises:
        GlassError: there is no such place, the kind cannot stand there, it is patched already, or (in the forward
            pass) a value does not fit; the shape that would is named.
    """
    known = _points(model)
    for name, kind in patches.items():
        if name not in known:
            raise GlassError(
                f"there is nothing called {name!r} to patch in this model", advice_on_part(model, name, list(known))
            )
        _check_kind(name, kind)
        for outer in model._forward_pre_hooks.values():
            if isinstance(outer, _Marker):
                outer.refuse(name)
    with ExitStack() as hooks:
        marker = model.register_forward_pre_hook(_Marker(tuple(patches)))
        hooks.callback(marker.remove)
        for name in sorted(patches, key=lambda each: each.count(".")):
            hooks.enter_context(known[name](patches[name], name))
        yield


def patchable(model: Model) -> list[str]:
    """The names of all that can be patched in a model, in the order in which it runs."""
    return list(_points(model))


def _check_kind(name: str, kind: Kind) -> None:
    last = name.split(".")[-1]
    attention = last in ("self", "cross") or last.isdigit()
    if isinstance(kind, Pattern | KnockOut) and not attention:
        raise GlassError(f"{type(kind).__name__} was given for {name}", "It is for attentions and heads.")
    if last == "mask" and (not isinstance(kind, Zero) or kind.where is not None):
        raise GlassError(f"{type(kind).__name__} was given for {name}", "A mask is taken away whole: give Zero().")


class _Marker:
    """Tells an inner `patch` what an outer one does; as a hook of the model it does nothing."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        return None

    def refuse(self, name: str) -> None:
        """Raise where `name`, or what it is part of, or a part of it, is patched."""
        for own in self.names:
            if own == name or own.startswith(f"{name}.") or name.startswith(f"{own}."):
                raise GlassError(f"{name} is patched inside a patch of {own}", "Give one patch for each place.")


def _points(model: Model) -> dict[str, Install]:
    """Return the patch function of each place by name, in order of execution."""
    found: dict[str, Install] = {}
    layers = {str(site): part for site, part in parts(model)}
    for name, stack in stacks(model).items():
        found[f"{name}.mask"] = partial(_no_mask, stack)
        found |= _embedding_points(name, stack, embedding_below(model, name))
        for layer, block in enumerate(stack.blocks):
            found[f"{name}.{layer}.resid"] = partial(_entering, block)
            for site in [site for site in layers if site.startswith(f"{name}.{layer}.")]:
                part = layers[site]
                found[site] = partial(_leaving, part)
                if isinstance(part, Attention):
                    found[site] = partial(_attention, part)
                    for index, head in enumerate(head_numbers(part)):
                        found[f"{site}.{head}"] = partial(_head, part, index)
        found[f"{name}.{len(stack.blocks)}.resid"] = partial(_leaving, stack.blocks[-1])
        found[f"{name}.final"] = partial(_leaving, stack)
    return found


def _embedding_points(name: str, stack: Stack, embedding: Embedding) -> dict[str, Install]:
    found: dict[str, Install] = {f"{name}.embedding": partial(_leaving, embedding, during=stack)}
    positions = embedding.positions or stack.rotary or stack.score_positions
    if positions is not None:
        found[f"{name}.positions"] = partial(_leaving, positions, during=stack)
    return found


@contextmanager
def _leaving(module: nn.Module, kind: Kind, name: str, during: Stack | None = None) -> Iterator[None]:
    """Patch the output of a module; with `during`, only while that stack runs, as stacks may share an embedding."""
    running = [during is None]

    def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor | Rotation) -> Tensor | Rotation:
        return _put(kind, output, name) if running[0] else output

    def begin(module: nn.Module, args: tuple[Any, ...]) -> None:
        running[0] = True

    def end(module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        running[0] = False

    with ExitStack() as hooks:
        hooks.callback(module.register_forward_hook(hook).remove)
        if during is not None:
            hooks.callback(during.register_forward_pre_hook(begin).remove)
            hooks.callback(during.register_forward_hook(end, always_call=True).remove)
        yield


@contextmanager
def _entering(block: nn.Module, kind: Kind, name: str) -> Iterator[None]:
    """Patch the first input of a block."""

    def hook(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return _put(kind, args[0], name), *args[1:]

    handle = block.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def _put(kind: Kind, current: Any, name: str) -> Any:
    """The kind's values where it acts, and the current ones elsewhere."""
    assert not isinstance(kind, Pattern | KnockOut)
    if isinstance(current, Rotation):
        return Rotation(_turned(kind, current.cos, name, 1.0), _turned(kind, current.sin, name, 0.0))
    if current.dim() == 4 and not isinstance(kind, Zero):  # a bias of scores
        raise _only_zero(kind, name)
    return _where(kind, kind.value(current, name), current, name)


def _turned(kind: Kind, current: Tensor, name: str, still: float) -> Tensor:
    """The cosine or sine of a rotation (B or 1, 1, T, K) that does not turn."""
    if not isinstance(kind, Zero):
        raise _only_zero(kind, name)
    return _where(kind, torch.full_like(current, still), current, name)


def _only_zero(kind: Kind, name: str) -> GlassError:
    return GlassError(f"{type(kind).__name__} was given for {name}, which are not added here", "Give Zero().")


def _where(kind: Kind, new: Tensor, current: Tensor, name: str) -> Tensor:
    """Both (B, T, any) or (B, heads, T, any); the first dimension may be 1."""
    if kind.where is None:
        return new
    if kind.where.dtype != torch.bool:
        raise GlassError(f"`where` of type {kind.where.dtype} was given for {name}", "Give bool, True where it acts.")
    where = torch.atleast_2d(kind.where).to(current.device)  # (B or 1, T or 1)
    places = current.shape[-2]
    rows = max(len(where), len(current))
    if where.dim() != 2 or where.shape[1] not in (1, places) or {len(where), len(current)} - {1, rows}:
        raise GlassError(
            f"`where` of shape {tuple(kind.where.shape)} was given for {name}, which has {len(current)} rows and "
            f"{places} places here",
            f"Give ({len(current)}, {places}), or what broadcasts to it.",
        )
    where = where[..., None] if current.dim() == 3 else where[:, None, :, None]  # as `current`
    return torch.where(where, new, current)


@contextmanager
def _no_mask(stack: Stack, kind: Kind, name: str) -> Iterator[None]:
    """All places see all; padding stays hidden, and a window stays a window, to both sides."""
    before = stack.causal
    stack.causal = False
    try:
        yield
    finally:
        stack.causal = before


@contextmanager
def _attention(layer: Attention, kind: Kind, name: str) -> Iterator[None]:
    """The output of an attention, or the weights of all its heads."""
    if not isinstance(kind, Pattern | KnockOut):
        with _leaving(layer, kind, name):
            yield
        return

    def change(pattern: Tensor, first: Tensor) -> Tensor:
        return _where(kind, kind.weights(pattern.shape, first, pattern, name), pattern, name)  # (B, H, T, S)

    with _pattern_hook(layer, change):
        yield


@contextmanager
def _head(layer: Attention, head: int, kind: Kind, name: str) -> Iterator[None]:
    """z of one head, or its weights."""

    def put(whole: Tensor, new: Tensor) -> Tensor:
        new = _where(kind, new, whole[:, head], name)  # (B, T, K or S)
        return torch.cat([whole[:, :head], new[:, None], whole[:, head + 1 :]], dim=1)  # (B, H, T, K or S)

    if isinstance(kind, Pattern | KnockOut):

        def change(pattern: Tensor, first: Tensor) -> Tensor:
            own = pattern[:, head]  # (B, T, S)
            return put(pattern, kind.weights(own.shape, first, own, name))  # (B, H, T, S)

        with _pattern_hook(layer, change):
            yield
        return

    def hook(module: nn.Module, args: tuple[Any, ...], z: Tensor) -> Tensor:
        return put(z, kind.value(z[:, head], name))  # (B, H, T, K)

    handle = layer.hook_z.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _pattern_hook(layer: Attention, change: Callable[[Tensor, Tensor], Tensor]) -> Iterator[None]:
    """Inside, `change(pattern, first)` stands in the place of the pattern (B, H, T, S).

    `first` (B) is the column of each row's first key that some query may attend to, as the scores of the pass have it.
    """
    first: list[Tensor] = []

    def look(module: nn.Module, args: tuple[Any, ...], scores: Tensor) -> None:
        allowed = scores != -torch.inf  # (B, H, T, S)
        first[:] = [allowed.flatten(1, 2).any(dim=1).long().argmax(dim=-1)]  # (B)

    def hook(module: nn.Module, args: tuple[Any, ...], pattern: Tensor) -> Tensor:
        return change(pattern, first[0])

    with ExitStack() as hooks:
        hooks.callback(layer.hook_scores.register_forward_hook(look).remove)
        hooks.callback(layer.hook_pattern.register_forward_hook(hook).remove)
        yield
