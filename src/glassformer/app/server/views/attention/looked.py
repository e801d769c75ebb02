"""One forward pass as the attention views keep it: queries, keys and masks of every attention, and no weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.app.server.shelf import Opened
from glassformer.base.errors import GlassError
from glassformer.generation.context import reading
from glassformer.generation.decoding import check_finite
from glassformer.inspection.attention_inside import Inside, looking
from glassformer.inspection.explain import Subject
from glassformer.inspection.sites import Head, Site, attentions, find_head, stacks
from glassformer.inspection.trace import check_given
from glassformer.model.attention import Mask, attend
from glassformer.model.pruned_attention import head_numbers, kv_index, mask_of_heads
from glassformer.model.transformer import EncoderDecoder, Model

CELLS = 2**22
"""Weights that are worked out at once."""
SMALL = 64 * 2**20
"""Bytes of a bias that is kept."""


@dataclass(frozen=True, eq=False)
class Layer:
    """One attention layer of one pass of one text.

    Attributes:
        kept: (H) the numbers of its heads.
        asks: (H) which key head each uses.
        q: (H, T, K) queries as they meet the keys.
        k: (G, S, K) keys, likewise.
        mask: who may look at whom, and the bias of places where that is small.
        places: gives that bias anew where it is too large to keep: of 12 heads on 4,096 tokens it takes 800 MB. None
            where places add nothing.
    """

    kept: list[int]
    asks: list[int]
    q: Tensor
    k: Tensor
    mask: Mask
    places: nn.Module | None

    @property
    def shape(self) -> tuple[int, int]:
        """T and S."""
        return self.q.shape[1], self.k.shape[1]

    def weights(self, rows: slice, heads: Sequence[int] | None = None) -> Tensor:
        """The attention weights of some rows, float32 (heads, rows, S), 0 where masked; of heads at places, or of all.

        They are `attend`'s own: softmax(q kᵀ / √K + bias) over the allowed keys.
        """
        chosen = list(range(len(self.kept))) if heads is None else list(heads)
        q, k = self.q[None, chosen, rows], self.k[None, [self.asks[head] for head in chosen]]  # (1, h, T or S, K) each
        allowed = self.allowed(rows)  # (rows, S)
        mask, bias = Mask(allowed=allowed), self.bias(rows)
        if bias is not None:
            mask = mask.with_bias(bias[:, chosen])
        with torch.no_grad():
            weights = attend(q, k, k[..., :1], mask, explicit=True)[1]  # (1, h, rows, S)
        assert weights is not None
        return weights[0].float().cpu()

    def allowed(self, rows: slice) -> Tensor:
        """(rows, S) bool: the keys that each row may look at."""
        T, S = self.shape
        if self.mask.is_causal:  # made for these rows alone: that of all would be made again and again
            places = torch.arange(S, device=self.q.device)  # (S), and T = S
            return places <= places[rows, None]
        whole = self.mask.full(self.q.new_empty(()).expand(T, S))  # (1, 1, T or 1, S)
        return whole.reshape(whole.shape[-2:]).expand(T, S)[rows]

    def bias(self, rows: slice) -> Tensor | None:
        """(1, H, rows, S): what places add to the scores of some rows; None: nothing."""
        if self.mask.bias is not None:
            return self.mask.bias[:, :, rows]
        if self.places is None:
            return None
        places = torch.arange(self.shape[1], device=self.q.device)[None]  # (1, S), and T = S
        with torch.no_grad():
            return self.places(places[:, rows], places)[:, self.kept].to(self.q.dtype)

    def chunks(self, rows: slice, block: int = 1, heads: int = 1) -> Iterator[slice]:
        """The rows in slices whose weights, of so many heads, take little memory; multiples of `block` but the last."""
        each = max(1, CELLS // (self.shape[1] * block * heads)) * block
        for start in range(rows.start, rows.stop, each):
            yield slice(start, min(start + each, rows.stop))


@dataclass(frozen=True, eq=False)
class Looked:
    """All attention layers of one pass.

    Attributes:
        subject: the model and what it read.
        layers: by their sites, in the order in which they run; those without heads are not there.
        nbytes: the memory that all of it takes.
    """

    subject: Subject
    layers: dict[Site, Layer]
    nbytes: int

    def head(self, name: str) -> tuple[Head, Layer, int]:
        """The head of that name, its layer, and its place among the layer's heads.

        Raises:
            GlassError: the model has no such head.
        """
        head = find_head(self.subject.model, name)
        layer = self.layers[head.site]
        return head, layer, layer.kept.index(head.head)

    def labels(self, site: Site) -> tuple[list[str], list[str]]:
        """The tokens that look, and those that are looked at."""
        text, target = list(self.subject.labels), list(self.subject.target_labels or ())
        if site.stack == "enc" or self.subject.target_ids is None:
            return text, text
        return target, text if site.part == "cross" else target


def looked_at(opened: Opened, text: str, target: str | None) -> Looked:
    """The pass of a text, kept for the next question about it.

    Raises:
        GlassError: the text does not fit the run, or the model's logits are not finite.
    """
    subject = opened.subject(text, target)
    return opened.kept.get(("attention", text, target), lambda: look(subject), lambda looked: looked.nbytes)


def look(subject: Subject) -> Looked:
    """One forward pass, without dropout and gradients; nothing about the model changes."""
    model, found = subject.model, dict[Site, Inside]()
    given = None if subject.target_ids is None else torch.tensor([subject.target_ids])
    tokens, target, _ = check_given(model, torch.tensor([subject.ids]), given, None)
    with ExitStack() as hooks, reading(model), torch.inference_mode(False), torch.no_grad():
        for site, layer in attentions(model).items():
            if layer.heads:
                found[site] = hooks.enter_context(looking(layer))
        check_finite(_run(model, tokens, target))
        layers = {site: _layer(seen, _places(model, site)) for site, seen in found.items()}
    if not layers:
        raise GlassError("all heads of this run were removed", "Look at another run.")
    tensors = {t.data_ptr(): t.nbytes for layer in layers.values() for t in _tensors(layer)}
    return Looked(subject, layers, sum(tensors.values()))


def _run(model: Model, tokens: Tensor, target: Tensor | None) -> Tensor:
    """The logits."""
    if isinstance(model, EncoderDecoder):
        assert target is not None
        return model(tokens, target)  # (1, T, V)
    return model(tokens)  # (1, T, V) or (1, C)


def _places(model: Model, site: Site) -> nn.Module | None:
    """The part that biases the scores of an attention by its places."""
    return stacks(model)[site.stack].score_positions if site.part == "self" else None


def _layer(seen: Inside, places: nn.Module | None) -> Layer:
    small = seen.mask.bias is not None and seen.mask.bias.nbytes <= SMALL
    bias = seen.mask.bias if small else None
    mask = mask_of_heads(seen.layer, Mask(seen.mask.allowed, seen.mask.is_causal, bias=bias))  # there is no padding
    q, k = seen.q()[0].clone(), seen.k()[0].clone()  # the projections' whole outputs are not kept alive
    return Layer(head_numbers(seen.layer), kv_index(seen.layer), q, k, mask, places)


def _tensors(layer: Layer) -> list[Tensor]:
    return [tensor for tensor in (layer.q, layer.k, layer.mask.allowed, layer.mask.bias) if tensor is not None]
