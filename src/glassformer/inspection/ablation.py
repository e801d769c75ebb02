"""Ablation: a model with parts of it switched off, and what that does to the loss and to the text that it writes.

What can be switched off is named as for `inspection.patching`: heads (`dec.1.self.2`), whole attentions (`dec.1.self`),
feed-forward layers (`dec.1.feedforward`), positions and the causal mask (`dec.positions`, `dec.mask`). What stands in
the place of a part is a choice, and the answers differ by it: see `ABLATION_KINDS`. Positions and the mask have nothing
that could stand in their place: they are taken away, whatever is chosen.

The effect of an ablation on the loss is not all that a part did. Later layers often make up for a missing head: in
Chinchilla 7B, for about 70 % of what an attention layer's absence takes from the logit (McGrath et al. 2023, "The Hydra
Effect"). `pruning.direct_effects` has the effect by the direct path alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from glassformer.base.errors import GlassError, nearest
from glassformer.base.wording import counted
from glassformer.generation.decoding import generate
from glassformer.inspection.catalogue import catalogue
from glassformer.inspection.hooks import last_values
from glassformer.inspection.patching import Kind, KnockOut, Pattern, Value, Zero, patch, patchable
from glassformer.inspection.recording import record
from glassformer.inspection.sites import advice_on_part, attentions, find_head, heads, stacks
from glassformer.model.evaluation_mode import inference
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import EncoderDecoder, Model
from glassformer.tasks import ChatModel, TextModel, Translator
from glassformer.tasks.losses import logits_of
from glassformer.tasks.task_rows import MOST_TOKENS, TaskRows, row_losses
from glassformer.tasks.written_text import written
from glassformer.text.batches import Batch
from glassformer.training.validation import LossEstimate, loss_on_rows

AblationKind = Literal["zero", "mean", "resample", "first", "frozen"]
ABLATION_KINDS: Mapping[AblationKind, str] = {
    "zero": "nothing in its place",
    "mean": "in its place its mean over all places of the rows that the loss is measured on",
    "resample": "in its place what it had at the same place of the next row",
    "first": "a head looks at the first token alone",
    "frozen": "nothing in its place, and all other attention looks where it looks with everything on",
}
PART_KINDS: tuple[AblationKind, ...] = ("zero", "mean", "first", "frozen")
"""Kinds for parts that are switched off together, on any input."""
HEAD_KINDS: tuple[AblationKind, ...] = ("zero", "mean", "resample")
"""Kinds for `ablation_effects`, which switches off one head after the other on the rows of a task."""
SELF_REPAIR = "later layers make up for a missing head: the ablation effect may be smaller than what the head did"
WHOLE = ("mask", "positions")
"""Parts that are taken away, whatever shall stand in the place of others."""
PATTERN_BYTES = 64 * 10**6
"""Most bytes of the attention weights that are kept of one forward pass, to be frozen."""


@dataclass(frozen=True)
class Ablation:
    """The parts to switch off, and their replacement.

    Attributes:
        off: names of parts, such as `dec.1.self.2`.
        kind: a key of `ABLATION_KINDS`.
    """

    off: tuple[str, ...]
    kind: AblationKind = "zero"

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the parts that are switched off and have a replacement."""
        return tuple(name for name in self.off if _last(name) not in WHOLE)

    @property
    def needs_means(self) -> bool:
        """Return True if parts are replaced by their means."""
        return self.kind == "mean" and bool(self.parts)


@dataclass(frozen=True)
class AblationLoss:
    """The loss with everything on, and with parts off, on the same rows.

    Attributes:
        whole, off: nats per target.
    """

    whole: LossEstimate
    off: LossEstimate

    @property
    def change(self) -> float:
        """Return the change of the loss by switching off: above 0 where it harms."""
        return self.off.loss - self.whole.loss


def ablatable(model: Model) -> list[str]:
    """List all parts of a model that can be switched off, in the order in which they run."""
    masked = {f"{name}.mask" for name, stack in stacks(model).items() if stack.causal}
    return [name for name in patchable(model) if name in masked or _is_part(name)]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _is_part(name: str) -> bool:
    last = _last(name)
    return last in ("positions", "feedforward", "self", "cross") or last.isdigit()


def check_ablation(model: Model, off: Sequence[str], kind: str = "zero") -> Ablation:
    """Return the ablation of these parts, if the model has them and they can be switched off so.

    Raises:
        GlassError: there is no such part or kind, a part is named twice, or a feed-forward layer is to attend to the
            first token.
    """
    known = ablatable(model)
    if kind not in PART_KINDS:
        raise GlassError(f"parts cannot be ablated by {kind!r}", nearest(kind, PART_KINDS))
    for number, name in enumerate(off):
        if name not in known:
            raise GlassError(f"there is nothing called {name!r} to switch off", advice_on_part(model, name, known))
        if name in off[:number]:
            raise GlassError(f"{name} is switched off twice", "Name each part once.")
        if kind == "first" and _last(name) == "feedforward":
            raise GlassError(f"{name} looks at no token", "Choose zero or mean for feed-forward layers.")
    return Ablation(tuple(off), next(each for each in PART_KINDS if each == kind))


def _replacement(name: str, kind: AblationKind, values: Mapping[str, Tensor], where: Tensor | None = None) -> Kind:
    """Return the patch of one part.

    Args:
        name: of the part.
        kind: of the ablation.
        values: a tensor for each part, where the kind puts one in its place.
        where: the rows and positions (B, T) that are patched; None: all.
    """
    if _last(name) in WHOLE or kind in ("zero", "frozen"):
        return Zero(where=where)
    return KnockOut(where=where) if kind == "first" else Value(values[name], where=where)


@dataclass(frozen=True, eq=False)
class AblatedModel:
    """A model with parts off, called as the model is.

    Attributes:
        model: of any family; nothing about it changes.
        ablation: what is off.
        means: (K) or (D) of each part, from `means_of`; needed for "mean" alone.
    """

    model: Model
    ablation: Ablation
    means: Mapping[str, Tensor] = field(default_factory=dict)

    def __call__(self, *inputs: Any) -> Tensor:
        """Return the logits of the model with the parts ablated."""
        frozen = self._frozen(*inputs) if self.ablation.kind == "frozen" and self.ablation.off else {}
        with patch(self.model, {**frozen, **self._patches()}):
            logits: Tensor = self.model(*inputs)
        return logits

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Switch the parts off in the model itself, until the context ends.

        Raises:
            GlassError: the kind is "frozen": tokens that are not written yet have no patterns.
        """
        if self.ablation.kind == "frozen":
            raise GlassError(
                "attention to tokens that are still to be written cannot be frozen", "Choose another kind for writing."
            )
        with patch(self.model, self._patches()):
            yield

    def _patches(self) -> dict[str, Kind]:
        return {name: _replacement(name, self.ablation.kind, self.means) for name in self.ablation.off}

    def _frozen(self, tokens: Tensor, *more: Tensor | None) -> dict[str, Kind]:
        """Return patches with the patterns of all attention that stays, as they are with everything on."""
        pair = isinstance(self.model, EncoderDecoder)
        target, real = (*more, None, None)[:2] if pair else (None, (*more, None)[0])
        sites = [str(site) for site in attentions(self.model) if str(site) not in self.ablation.off]
        if not sites:
            return {}
        kept = record(self.model, tokens, target, real, keep=[f"{site}.pattern" for site in sites])
        return {site: Pattern(kept) for site in sites}


def ablate(model: Model, ablation: Ablation, data: TaskRows | None) -> AblatedModel:
    """Return the model with parts off; means are taken over the rows of `data`.

    Raises:
        GlassError: the ablation needs means, and there are no rows to take them over.
    """
    if not ablation.needs_means:
        return AblatedModel(model, ablation)
    if data is None:
        raise GlassError("a mean ablation was asked for without rows", "Give the rows to take the means over.")
    return AblatedModel(model, ablation, means_of(model, data, ablation.parts))


def means_of(model: Model, data: TaskRows, names: Sequence[str]) -> dict[str, Tensor]:
    """Return the mean of each part's values, (K) of a head and (D) of others, over all positions but padding."""
    sums: dict[str, Tensor] = {}
    positions: Counter[str] = Counter()
    with inference(model):
        for _, rows in data.groups(model) if names else ():
            batch = data.batch(rows)
            with _values_of(model, names) as seen:
                logits_of(model, batch)
            for name, value in seen.items():  # (B, H, T, K) or (B, T, D)
                mask = _attention_mask(name, model, batch).cpu()  # (B, T)
                mask = mask[:, None, :, None] if value.dim() == 4 else mask[..., None]
                total = (value.cpu().double() * mask).sum(dim=(0, -2))  # (H, K) or (D)
                sums[name] = sums[name] + total if name in sums else total
                positions[name] += int(mask.sum())
    found: dict[str, Tensor] = {}
    for name in names:
        mean = sums[_tensor_with(name)] / positions[_tensor_with(name)]  # (H, K) or (D)
        found[name] = mean[_head_index(model, name)] if _last(name).isdigit() else mean  # (K) or (D)
    return found


def _tensor_with(name: str) -> str:
    """Return the name of the tensor that has the values of a part: z of a head's whole attention, or its own."""
    return f"{name.rpartition('.')[0]}.z" if _last(name).isdigit() else name


def _values_of(model: Model, names: Sequence[str]) -> AbstractContextManager[dict[str, Tensor]]:
    """Note the tensors that have the values of parts in the last forward pass, (B, H, T, K) or (B, T, D) each."""
    known = catalogue(model)
    return last_values({name: known[name].tap for name in dict.fromkeys(map(_tensor_with, names))})


def _head_index(model: Model, name: str) -> int:
    """Return the index of a head among those that its attention has."""
    head = find_head(model, name)
    return head_numbers(attentions(model)[head.site]).index(head.head)


def _attention_mask(name: str, model: Model, batch: Batch) -> Tensor:
    """Return (B, T), False at the padding of the stack that a part belongs to."""
    of_source = name.startswith("enc.") and isinstance(model, EncoderDecoder)
    mask = batch.source_attention_mask if of_source else batch.attention_mask
    assert mask is not None
    return mask


def ablation_loss(found: AblatedModel, data: TaskRows, whole: LossEstimate | None = None) -> AblationLoss:
    """Measure the loss on rows with everything on and with parts off; `whole`: the former, if it is known."""
    model = found.model
    most = MOST_TOKENS
    if found.ablation.kind == "frozen":
        longest = max(map(len, data.rows), default=1)
        count = sum(layer.heads for layer in attentions(model).values())
        most = max(longest, min(most, PATTERN_BYTES // (4 * longest * max(1, count))))
    whole = whole or loss_on_rows(model, data)
    if not found.ablation.off:
        return AblationLoss(whole, whole)
    return AblationLoss(whole, loss_on_rows(model, data, most_tokens=most, forward=found))


def ablation_effects(model: Model, data: TaskRows, kind: AblationKind = "zero") -> dict[str, float]:
    """Return the loss without a head minus the loss with all, in nats per target, for each head by its name.

    Every head is left out over all rows; several heads share a forward pass, each with a copy of the rows.

    Args:
        model: of any family.
        data: the rows to measure on.
        kind: one of `HEAD_KINDS`.

    Raises:
        GlassError: there is one row only, and nothing to resample from.
    """
    if kind == "resample" and len(data.rows) < 2:
        raise GlassError("resample was asked of one row", "Give more rows, or choose zero or mean.")
    names = list(map(str, heads(model)))
    lost = dict.fromkeys(names, 0.0)
    whole = 0.0
    targets = 0
    with inference(model):
        means = means_of(model, data, names) if kind == "mean" else {}
        for first, rows in data.groups(model):
            batch = data.batch(rows)
            values = _values_of_next_rows(model, data, first, batch, names) if kind == "resample" else means
            copies = max(1, MOST_TOKENS // (len(rows) * max(map(len, rows))))
            for start in range(0, len(names), copies):
                group = names[start : start + copies]
                for name, losses in zip(group, _losses_without_each(model, batch, group, kind, values), strict=True):
                    lost[name] += float(losses.cpu().double().sum())
            whole += float(row_losses(model, batch).cpu().double().sum())
            targets += batch.n_targets
    return {name: (value - whole) / max(1, targets) for name, value in lost.items()}


def _losses_without_each(
    model: Model, batch: Batch, names: Sequence[str], kind: AblationKind, values: Mapping[str, Tensor]
) -> Tensor:
    """Return the losses (n, B) of the rows without each of n heads, from one forward pass."""
    n = len(names)
    B = len(batch.inputs)
    values = {name: values[name].repeat(n, 1, 1) for name in names} if kind == "resample" else values  # (n B, T, K)
    copy_of_row = torch.arange(n * B, device=batch.inputs.device) // B  # (n B)
    patches = {
        name: _replacement(name, kind, values, where=(copy_of_row == number)[:, None])  # (n B, 1)
        for number, name in enumerate(names)
    }
    with patch(model, patches):
        return row_losses(model, _copied(batch, n)).unflatten(0, (n, B))  # (n, B)


def _copied(batch: Batch, n: int) -> Batch:
    """Return a batch of all rows n times over."""
    source = batch.source
    source_mask = batch.source_attention_mask
    return replace(
        batch,
        inputs=batch.inputs.repeat(n, 1),
        targets=batch.targets.repeat(n, 1),
        attention_mask=batch.attention_mask.repeat(n, 1),
        loss_mask=batch.loss_mask.repeat(n, 1),
        n_targets=batch.n_targets * n,
        source=None if source is None else source.repeat(n, 1),
        source_attention_mask=None if source_mask is None else source_mask.repeat(n, 1),
    )


def _values_of_next_rows(
    model: Model, data: TaskRows, first: int, batch: Batch, names: Sequence[str]
) -> dict[str, Tensor]:
    """Return each head's values (B, T, K) at the same position of the next row; where that row has ended, at its end.

    Args:
        model, data: as for `ablation_effects`.
        first: the number of the batch's first row among the rows of `data`.
        batch: the rows that take the values.
        names: of the heads.
    """
    B = len(batch.inputs)
    other = data.batch([data.rows[(first + 1 + number) % len(data.rows)] for number in range(B)])
    with _values_of(model, names) as seen:
        logits_of(model, other)
    found: dict[str, Tensor] = {}
    for name, z in seen.items():
        T = _attention_mask(name, model, batch).shape[1]
        ends = _attention_mask(name, model, other).sum(dim=1)  # (B)
        positions = torch.arange(T, device=z.device).minimum((ends - 1).clamp(min=0)[:, None])  # (B, T)
        found[name] = z.gather(2, positions[:, None, :, None].expand(B, z.shape[1], T, z.shape[3]))  # (B, H, T, K)
    return {name: found[_tensor_with(name)][:, _head_index(model, name)] for name in names}  # (B, T, K) each


def written_without(found: AblatedModel, model: TextModel | Translator, text: str, tokens: int) -> str:
    """Return the text that a run writes greedily, so many tokens at most, with parts off.

    Without a mask everything is read anew for each token: a cache holds what earlier tokens were before there were
    later ones, and then that is not what they are.

    Raises:
        GlassError: patterns shall be frozen; or as `generate`.
    """
    settings = model.config.sample.replace(beams=1, temperature=0.0, repetition_penalty=1.0, tokens=tokens)
    if isinstance(model, ChatModel):
        settings = model.until_the_end(settings)
    ids = model.prompt_ids(text)
    tokenizer = model.tokenizer
    ends = {tokenizer.end_id, *model.more_ends}
    new: list[int] = []
    cached = not any(_last(name) == "mask" for name in found.ablation.off)
    with found.applied():
        steps = generate(
            model.model,
            [ids],
            settings,
            tokenizer.end_id,
            cached=cached,
            start=tokenizer.target_start,
            more_ends=model.more_ends,
        )
        for step in steps:
            new += [token for token in step.tokens if token not in ends]
    return written(tokenizer, model.ids_before_text(ids), new, settings.stop)[0]


@dataclass(frozen=True)
class AblationReport:
    """The report of `glass evaluate RUN --ablate …`.

    Attributes:
        measured_on: the data, in words.
        unit: what a loss is the mean over: "token", "hidden token" or "example".
        unknown_share: the share of the validation tokens that are the unknown token.
        ablation: what was off.
        loss: with everything on, and with that off.
    """

    measured_on: str
    unit: str
    unknown_share: float
    ablation: Ablation
    loss: AblationLoss

    def facts(self) -> dict[str, Any]:
        """Return the report as JSON: `loss` and what belongs to it are with parts off."""
        return {
            "text": self.measured_on,
            **self.loss.off.facts(None, self.unknown_share),
            "whole_loss": self.loss.whole.loss,
            "change": self.loss.change,
            "off": list(self.ablation.off),
            "instead": self.ablation.kind,
        }

    def text(self) -> str:
        """Format the report as text."""
        loss = self.loss
        off = ", ".join(self.ablation.off) or "anything off"
        lines = [
            f"on {self.measured_on}: {counted(loss.whole.tokens, self.unit + 's')}",
            f"loss {loss.whole.loss:.4f} {loss.whole.margin} nats per {self.unit} (95 %) with everything on",
            f"loss {loss.off.loss:.4f} {loss.off.margin} nats per {self.unit} without {off}",
            f"change {loss.change:+.4f}; {ABLATION_KINDS[self.ablation.kind]}",
        ]
        return "\n".join(lines)


def ablation_report(model: Model, data: TaskRows, ablation: Ablation, measured_on: str) -> AblationReport:
    """Measure a model with parts off on rows of its task, named `measured_on` in the report."""
    loss = ablation_loss(ablate(model, ablation, data), data)
    return AblationReport(measured_on, data.task.unit, data.task.unknown_share, ablation, loss)
