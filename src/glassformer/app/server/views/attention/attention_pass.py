"""Scores and patterns of one forward pass of a text, recorded at the hook points of its attention layers.

Recording makes a layer compute attention step by step; the fused attention of an ordinary pass keeps no pattern (see
`attend`). If the scores and patterns of all layers take more than `OBSERVED` bytes, only queries, keys and values are
kept, from which the layer recomputes the rows that a view requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import Pass
from glassformer.base.errors import GlassError
from glassformer.generation.decoding import check_finite
from glassformer.inspection.explain import Subject
from glassformer.inspection.hooks import Tap, tapped
from glassformer.inspection.sites import HeadSite, Site, attentions, find_head
from glassformer.inspection.trace import check_inputs
from glassformer.model.attention import EVERY_KEY, Attention, Mask, self_attention_mask
from glassformer.model.evaluation_mode import evaluation_mode
from glassformer.model.pruned_attention import head_numbers, kv_index, mask_of_heads
from glassformer.model.transformer import Model, Stack

CELLS = 2**22
"""Approximate maximum number of attention weights computed at once."""
OBSERVED = 128 * 2**20
"""Maximum size in bytes of the scores and patterns of all layers that are kept for one pass."""


@dataclass(frozen=True, eq=False)
class LayerPass:
    """Attention layer in the forward pass of one text.

    Attributes:
        model: the model of this layer.
        stack: the stack of this layer; None for cross-attention.
        module: attention module of the layer.
        heads: (H) numbers of its heads.
        key_heads: (H) index of the key head of each head.
        q: (H, T, K) queries, after normalization and rotation.
        k, v: (G, S, K) keys, after normalization and rotation, and values.
        observed: "scores" and "pattern" of the pass, (H, T, S) each; empty if they are too large to keep.
    """

    model: Model
    stack: Stack | None
    module: Attention
    heads: list[int]
    key_heads: list[int]
    q: Tensor
    k: Tensor
    v: Tensor
    observed: dict[str, Tensor]
    _last: dict[tuple[int, int], dict[str, Tensor]] = field(default_factory=dict, repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of queries T and keys S."""
        return self.q.shape[1], self.k.shape[1]

    def pattern(self, rows: slice, heads: Sequence[int] | None = None) -> Tensor:
        """Return the pattern of some rows, float32 (heads, rows, S), 0 where masked.

        Args:
            rows: rows of the pattern.
            heads: indices of heads; None: all heads.
        """
        pattern = self._rows(rows)["pattern"]  # (H, rows, S)
        return pattern if heads is None else pattern[list(heads)]

    def scores(self, rows: slice) -> Tensor:
        """Return the scores of some rows, float32 (H, rows, S), -inf where masked."""
        return self._rows(rows)["scores"]

    def allowed(self, rows: slice) -> Tensor:
        """Return the mask of some rows, (rows, S) bool, for all heads: True for keys that a row may attend to."""
        return self.scores(rows)[0] != -torch.inf

    def bias(self, rows: slice) -> Tensor | None:
        """Return the position bias of some rows, (1, H, rows, S); None if the layer has no position bias."""
        with torch.no_grad():
            return mask_of_heads(self.module, self._mask(rows)).bias

    def chunks(self, rows: slice, block: int = 1) -> Iterator[slice]:
        """Yield slices of `rows` with about `CELLS` weights; all lengths except the last are multiples of `block`."""
        chunk_rows = max(1, CELLS // (self.shape[1] * block * len(self.heads))) * block
        for start in range(rows.start, rows.stop, chunk_rows):
            yield slice(start, min(start + chunk_rows, rows.stop))

    def _rows(self, rows: slice) -> dict[str, Tensor]:
        """Return "scores" and "pattern" of some rows, (H, rows, S) each, recorded in the pass or recomputed."""
        if self.observed:
            return {name: value[:, rows] for name, value in self.observed.items()}
        key = rows.start, rows.stop
        if key not in self._last:
            self._last.clear()
            with (
                evaluation_mode(self.model),
                torch.inference_mode(False),
                torch.no_grad(),
                recorded_patterns(self.module) as recorded,
            ):
                # Only the hooks are needed, which record the scores and the pattern; z is not used.
                self.module.compute_z(self.q[None, :, rows], self.k[None], self.v[None], self._mask(rows))
            self._last[key] = recorded
        return self._last[key]

    def _mask(self, rows: slice) -> Mask:
        """Return the mask of some rows, as the stack creates it for new tokens after cached tokens, without padding."""
        if self.stack is None:
            return EVERY_KEY
        positions = torch.arange(self.shape[1], device=self.q.device)[None]  # (1, S), and T = S
        mask = self_attention_mask(positions[:, rows], positions, None, self.stack.causal, self.stack.window)
        if self.stack.score_positions is None:
            return mask
        return mask.with_bias(self.stack.score_positions(positions[:, rows], positions))


@dataclass(frozen=True, eq=False)
class AttentionPass:
    """All attention layers in the forward pass of one text.

    Attributes:
        subject: the model and its input.
        layers: attention layers by site, in the order of the forward pass, without layers whose heads were all removed.
        kind: kind of the forward pass; see `Pass`.
        nbytes: size of all tensors in bytes.
    """

    subject: Subject
    layers: dict[Site, LayerPass]
    kind: Pass
    nbytes: int

    def head(self, name: str) -> tuple[HeadSite, LayerPass, int]:
        """Return the head called `name`, the pass of its layer, and its index among the heads of the layer.

        Raises:
            GlassError: the model has no such head.
        """
        head = find_head(self.subject.model, name)
        layer = self.layers[head.site]
        return head, layer, layer.heads.index(head.head)

    def labels(self, site: Site) -> tuple[list[str], list[str]]:
        """Return the query tokens and the key tokens of an attention layer."""
        text = list(self.subject.labels)
        target = list(self.subject.target_labels or ())
        if site.stack == "enc" or self.subject.target_ids is None:
            return text, text
        return target, text if site.part == "cross" else target


def attention_pass_of(opened: ServedModel, text: str, target: str | None) -> AttentionPass:
    """Return the forward pass of a text, cached for further requests.

    Raises:
        GlassError: the text does not fit the run, all heads of the run were removed, or the model's logits are not
            finite.
    """
    subject = opened.subject(text, target)
    return opened.cached(
        ("attention", text, target), lambda: run_pass(subject), lambda attention_pass: attention_pass.nbytes
    )


def run_pass(subject: Subject) -> AttentionPass:
    """Run one forward pass, without dropout and gradients, and record its attention.

    Raises:
        GlassError: all heads were removed, or the logits are not finite.
    """
    model = subject.model
    layers = {site: layer for site, layer in attentions(model).items() if layer.heads}
    if not layers:
        raise GlassError("all heads of this run were removed", "Choose another run.")
    target_ids = None if subject.target_ids is None else torch.tensor([subject.target_ids])
    inputs = check_inputs(model, torch.tensor([subject.ids]), target_ids, None)
    which: Pass = "observed" if _nbytes(layers, inputs.tokens, inputs.target) <= OBSERVED else "recomputed"
    with ExitStack() as hooks, evaluation_mode(model), torch.inference_mode(False), torch.no_grad():
        qkv = {site: hooks.enter_context(recorded_qkv(layer)) for site, layer in layers.items()}
        observed: dict[Site, dict[str, Tensor]] = {site: {} for site in layers}
        if which == "observed":
            observed = {site: hooks.enter_context(recorded_patterns(layer)) for site, layer in layers.items()}
        check_finite(model.run(inputs))
    layer_passes = {
        site: LayerPass(
            model,
            model.stacks[site.stack] if site.part == "self" else None,
            layer,
            head_numbers(layer),
            kv_index(layer),
            qkv[site]["q"],
            qkv[site]["k"],
            qkv[site]["v"],
            observed[site],
        )
        for site, layer in layers.items()
    }
    tensors = [
        tensor for layer in layer_passes.values() for tensor in (layer.q, layer.k, layer.v, *layer.observed.values())
    ]
    return AttentionPass(subject, layer_passes, which, sum(tensor.nbytes for tensor in tensors))


def _nbytes(layers: dict[Site, Attention], tokens: Tensor, target: Tensor | None) -> int:
    """Return the bytes of the scores and patterns of all layers."""
    S = tokens.shape[1]
    T = S if target is None else target.shape[1]
    sizes = {"enc": S * S, "dec": T * T}
    return sum(
        8 * layer.heads * (T * S if site.part == "cross" else sizes[site.stack]) for site, layer in layers.items()
    )


@contextmanager
def recorded_patterns(layer: Attention) -> Iterator[dict[str, Tensor]]:
    """Record "scores" and "pattern" of the single text of a pass, float32 (H, T, S) each."""
    recorded: dict[str, Tensor] = {}

    def take(name: str, value: Tensor) -> None:
        recorded[name] = value[0].float().cpu()

    with tapped({"scores": Tap(layer.hook_scores), "pattern": Tap(layer.hook_pattern)}, take):
        yield recorded


@contextmanager
def recorded_qkv(layer: Attention) -> Iterator[dict[str, Tensor]]:
    """Record "q", "k" and "v" of the single text of a pass, after normalization and rotation."""
    recorded: dict[str, Tensor] = {}

    def take(name: str, value: Tensor) -> None:
        recorded[name] = value[0].clone()  # so that the whole outputs of the projections can be freed

    with tapped({"q": Tap(layer.hook_q), "k": Tap(layer.hook_k), "v": Tap(layer.hook_v)}, take):
        yield recorded
