"""Tensors of a forward pass that can be recorded: their kinds, hook points, and names in a given model."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeGuard

from torch import nn

from glassformer.base.errors import GlassError, nearest
from glassformer.inspection.hooks import Tap
from glassformer.inspection.sites import parts
from glassformer.model.attention import Attention
from glassformer.model.transformer import Classifier, EncoderDecoder, FeedForward, Model

TENSOR_KINDS = {
    "embedding": ("dec.embedding", "BTD", "the vectors that enter the first block"),
    "positions": (
        "dec.positions",
        "ATD",
        "the vectors that the position module adds; A is 1 without padding and B with padding",
    ),
    "resid": ("dec.n.resid", "BTD", "the residual stream before block n, or after the last block if n = L"),
    "q": ("dec.n.self.q", "BHTK", "queries after the model's query norm and rotary embedding, if any"),
    "k": ("dec.n.self.k", "BGSK", "keys after the same steps, including cached keys"),
    "v": ("dec.n.self.v", "BGSU", "values, including cached values"),
    "scores": ("dec.n.self.scores", "BHTS", "q kᵀ / √K plus the position bias; -inf where masked"),
    "pattern": ("dec.n.self.pattern", "BHTS", "attention weights: softmax of the scores; zeros in fully masked rows"),
    "z": ("dec.n.self.z", "BHTU", "pattern times v, the input of the output projection"),
    "head_output": (
        "dec.n.self.head_output",
        "BHTD",
        "the output of each head: z times the head's part of the output projection",
    ),
    "attention": ("dec.n.self", "BTD", "the output of self-attention, including the output bias"),
    "cross": ("dec.n.cross", "BTD", "the output of cross-attention, including the output bias"),
    "hidden": ("dec.n.feedforward.hidden", "BTF", "the input of a feed-forward layer's last projection"),
    "feedforward": ("dec.n.feedforward", "BTD", "the output of a feed-forward layer"),
    "final": ("dec.final", "BTD", "the output of the stack, after its last norm"),
    "logits": ("logits", "BTV", "the output of the model; (B, classes) for a classifier"),
}
"""Kind -> (example of a name, shape, meaning); names contain `enc` for an encoder and `cross` for cross-attention.

The letters are those of `glassformer.base.shapes`, except A, which is explained under `positions`. The argument `rows`
of `record` selects along T.
"""

ALL_TENSOR_KINDS = tuple(TENSOR_KINDS)
ATTENTION_TENSOR_KINDS = ("q", "k", "v", "scores", "pattern", "z", "head_output")
"""Kinds of tensors inside each self- and cross-attention layer."""


@dataclass(frozen=True)
class HookPoint:
    """Module input or output from which a kind of tensor is recorded, and its counterpart in TransformerLens.

    Attributes:
        module: path of the module for `model.get_submodule`, in a decoder (for `cross`, in an encoder-decoder); n
            stands for the number of the block.
        side: "input" or "output" of the module.
        transformer_lens: name of the counterpart in TransformerLens; None if there is none. In TransformerLens,
            queries, keys, values and z have the axes (B, T, H, K).
    """

    module: str
    side: Literal["input", "output"]
    transformer_lens: str | None


HOOK_POINTS = {
    "embedding": HookPoint("embedding", "output", None),
    "positions": HookPoint("embedding.positions", "output", "hook_pos_embed"),
    "resid": HookPoint("stack.blocks.n", "input", "blocks.n.hook_resid_pre"),
    "q": HookPoint("stack.blocks.n.attention.hook_q", "output", "blocks.n.attn.hook_q"),
    "k": HookPoint("stack.blocks.n.attention.hook_k", "output", "blocks.n.attn.hook_k"),
    "v": HookPoint("stack.blocks.n.attention.hook_v", "output", "blocks.n.attn.hook_v"),
    "scores": HookPoint("stack.blocks.n.attention.hook_scores", "output", "blocks.n.attn.hook_attn_scores"),
    "pattern": HookPoint("stack.blocks.n.attention.hook_pattern", "output", "blocks.n.attn.hook_pattern"),
    "z": HookPoint("stack.blocks.n.attention.hook_z", "output", "blocks.n.attn.hook_z"),
    "attention": HookPoint("stack.blocks.n.attention", "output", "blocks.n.hook_attn_out"),
    "cross": HookPoint("decoder.blocks.n.cross", "output", "decoder.n.hook_cross_attn_out"),
    "hidden": HookPoint("stack.blocks.n.feedforward.down", "input", "blocks.n.mlp.hook_post"),
    "feedforward": HookPoint("stack.blocks.n.feedforward", "output", "blocks.n.hook_mlp_out"),
    "final": HookPoint("stack", "output", None),
    "logits": HookPoint("head", "output", None),
}
"""Hook point of each kind except `head_output`, which is computed from z.

The last `resid` is the output of the last block instead of the input of a block. In an encoder-decoder, the stacks are
`encoder` and `decoder`, and cross-attention has the same hook points below `cross`. With rotary positions, q and k
correspond to TransformerLens' rotated `hook_rot_q` and `hook_rot_k`.
"""


@dataclass(frozen=True)
class Recordable:
    """Tensor of a model that can be recorded.

    Attributes:
        name: name of the tensor, such as `dec.1.self.pattern`.
        kind: kind of the tensor, a key of `TENSOR_KINDS`.
        stack: "enc" or "dec", the stack that determines the tensor's rows and positions.
        dims: letters of the axes, such as "BHTS".
        sizes: letter -> size, for all letters in `dims` whose size does not depend on the batch.
        tap: module input or output to record; `head_output` uses the tap of z.
    """

    name: str
    kind: str
    stack: str
    dims: str
    sizes: dict[str, int]
    tap: Tap

    def shape(self, batch: dict[str, int]) -> tuple[int, ...]:
        """Return the shape, given the sizes of B, T, S and A."""
        return tuple((self.sizes | batch)[letter] for letter in self.dims)

    def nbytes(self, batch: dict[str, int], itemsize: int) -> int:
        """Return the size in bytes, if each number takes `itemsize` bytes."""
        return math.prod(self.shape(batch)) * itemsize


def catalogue(model: Model) -> dict[str, Recordable]:
    """Return all recordable tensors of a model by name, in order of execution."""
    return {entry.name: entry for entry in _entries(model)}


def _entries(model: Model) -> Iterator[Recordable]:
    model_parts = list(parts(model))
    sizes = {"D": model.config.width}
    for name, stack in model.stacks.items():
        embedding = model.embeddings[name]
        yield Recordable(f"{name}.embedding", "embedding", name, "BTD", sizes, Tap(embedding))
        if embedding.positions is not None:
            yield Recordable(f"{name}.positions", "positions", name, "ATD", sizes, Tap(embedding.positions))
        for layer, block in enumerate(stack.blocks):
            yield Recordable(f"{name}.{layer}.resid", "resid", name, "BTD", sizes, Tap(block, "input"))
            for site, part in model_parts:
                if (site.stack, site.layer) != (name, layer):
                    continue
                if isinstance(part, Attention):
                    yield from _attention_entries(part, str(site), name)
                    kind = "attention" if site.part == "self" else "cross"
                    yield Recordable(str(site), kind, name, "BTD", sizes, Tap(part))
                else:
                    if _has_hidden(part):
                        hidden_sizes = {"F": part.down.in_features}
                        yield Recordable(f"{site}.hidden", "hidden", name, "BTF", hidden_sizes, Tap(part.down, "input"))
                    yield Recordable(str(site), "feedforward", name, "BTD", sizes, Tap(part))
        yield Recordable(f"{name}.{len(stack.blocks)}.resid", "resid", name, "BTD", sizes, Tap(stack.blocks[-1]))
        yield Recordable(f"{name}.final", "final", name, "BTD", sizes, Tap(stack))
    if isinstance(model, Classifier):
        yield Recordable("logits", "logits", "enc", "BV", {"V": model.head.out_features}, Tap(model.head))
    else:
        yield Recordable("logits", "logits", name, "BTV", {"V": model.vocab_size}, Tap(model.head))


def _has_hidden(part: nn.Module) -> TypeGuard[FeedForward]:
    """Return whether a feed-forward layer, perhaps of a user's own class, has the linear layer that reads `hidden`."""
    return isinstance(getattr(part, "down", None), nn.Linear)


def _attention_entries(layer: Attention, site: str, stack: str) -> Iterator[Recordable]:
    """Yield the tensors inside an attention layer."""
    sizes = {"H": layer.heads, "G": layer.kv_heads, "K": layer.head_width, "U": layer.value_width}
    sizes["D"] = len(layer.output.weight)
    for thing in ATTENTION_TENSOR_KINDS:
        hook = "z" if thing == "head_output" else thing
        tap = Tap(getattr(layer, f"hook_{hook}"))
        yield Recordable(f"{site}.{thing}", thing, stack, TENSOR_KINDS[thing][1], sizes, tap)


def select_entries(model: Model, keep: Sequence[str]) -> list[Recordable]:
    """Return the entries selected by kinds, such as `pattern`, and by names, such as `dec.1.resid`.

    Raises:
        GlassError: a kind or name is unknown, the model has no tensor of the given kinds, or `keep` is empty or a
            string.
    """
    entries = catalogue(model)
    if isinstance(keep, str) or not isinstance(keep, Collection) or not keep:
        raise GlassError(
            f"keep is {keep!r}",
            f"Give a tuple with one or more of {', '.join(TENSOR_KINDS)}, or of names such as dec.0.resid.",
        )
    for each in keep:
        if not isinstance(each, str):
            raise GlassError(
                f"keep contains {each!r}, which is not a name",
                "Give names of tensors or kinds; to call a function in the forward pass, use a PyTorch hook.",
            )
    for name in keep:
        if name not in entries and name not in TENSOR_KINDS:
            raise GlassError(f"this model has no tensor {name!r} to record", nearest(name, [*TENSOR_KINDS, *entries]))
    unnamed = [str(site) for site, part in parts(model) if site.part == "feedforward" and not _has_hidden(part)]
    if "hidden" in keep and unnamed:
        raise GlassError(
            f"{', '.join(unnamed)}: this module is not a FeedForward and has no linear layer `down`, so its hidden "
            "activation is not known",
            "Name the module's last linear layer `down`, or name the tensors to record, such as dec.0.feedforward.",
        )
    selected = [entry for entry in entries.values() if entry.name in keep or entry.kind in keep]
    if not selected:
        raise GlassError(
            f"this model has no tensor of the kind {' or '.join(keep)}",
            "Choose from the names in glassformer.inspection.catalogue.catalogue(model).",
        )
    return selected


def batch_sizes(
    model: Model, entry: Recordable, batch: int, length: int, target: int | None, rows: slice | None, padded: bool
) -> dict[str, int]:
    """Return the sizes of B, T, S and A for an entry; `length` is the source length of an encoder-decoder."""
    T = target if isinstance(model, EncoderDecoder) and entry.stack == "dec" and target is not None else length
    S = length if ".cross." in entry.name else T
    padded = padded and not (isinstance(model, EncoderDecoder) and entry.stack == "dec")
    recorded_positions = T if rows is None else len(range(*rows.indices(T)))
    return {"B": batch, "T": recorded_positions, "S": S, "A": batch if padded else 1}
