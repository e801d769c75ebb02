"""Ablation: switch off parts of a model and measure the effect on the loss and on generated text.

Parts have the names that `inspection.patching` uses: heads (`dec.1.self.2`), whole attention layers (`dec.1.self`),
feed-forward layers (`dec.1.feedforward`), positions and the causal mask (`dec.positions`, `dec.mask`). The output of a
part is replaced as `ABLATION_KINDS` describes, and results depend on that choice. Positions and the mask have no
replacement: every kind removes them.

The effect of an ablation on the loss does not show the whole contribution of a part, because later layers often
compensate for a missing part. In Chinchilla 7B, they restore about 70 % of the direct effect of a removed attention
layer (McGrath et al. 2023, "The Hydra Effect"). `pruning.direct_effects` measures the effect on the direct path alone.
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
from glassformer.inspection.patching import KnockOut, Patch, Pattern, Value, Zero, patch, patchable
from glassformer.inspection.recording import record
from glassformer.inspection.sites import advice_on_part, attentions, find_head, heads
from glassformer.model.evaluation_mode import inference
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import EncoderDecoder, Model
from glassformer.tasks import ChatModel, TextModel, Translator
from glassformer.tasks.losses import logits_of
from glassformer.tasks.task_rows import MOST_TOKENS, TaskRows, row_losses
from glassformer.tasks.written_text import decode_until_stop
from glassformer.text.batches import Batch
from glassformer.training.validation import LossEstimate, loss_on_rows

AblationKind = Literal["zero", "mean", "resample", "first", "frozen"]
ABLATION_KINDS: Mapping[AblationKind, str] = {
    "zero": "replaced by zeros",
    "mean": "replaced by its mean over all positions of the evaluated rows",
    "resample": "replaced by its output at the same position of the next row",
    "first": "each head attends only to the first token",
    "frozen": "replaced by zeros, and the other attention patterns stay as in the full model",
}
PART_KINDS: tuple[AblationKind, ...] = ("zero", "mean", "first", "frozen")
"""Kinds of replacement that can be used for several parts together, and for any input."""
HEAD_KINDS: tuple[AblationKind, ...] = ("zero", "mean", "resample")
"""Kinds of replacement for `ablation_effects`, which switches off one head at a time and needs the rows of a task."""
SELF_REPAIR = (
    "later layers can compensate for a missing head: the ablation effect may be smaller than the head's contribution"
)
PARTS_WITHOUT_REPLACEMENT = ("mask", "positions")
"""Parts that every kind removes, because they have no replacement."""
PATTERN_BYTES = 64 * 10**6
"""Maximum number of bytes for the attention weights of one forward pass with frozen patterns, unless it has one row."""


@dataclass(frozen=True)
class Ablation:
    """Parts to switch off, and their replacement.

    Attributes:
        removed_parts: names of parts, such as `dec.1.self.2`.
        kind: kind of replacement, a key of `ABLATION_KINDS`.
    """

    removed_parts: tuple[str, ...]
    kind: AblationKind = "zero"

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the parts to switch off, except those in `PARTS_WITHOUT_REPLACEMENT`, which have no replacement."""
        return tuple(name for name in self.removed_parts if _last_component(name) not in PARTS_WITHOUT_REPLACEMENT)

    @property
    def needs_means(self) -> bool:
        """Return whether parts are replaced by their means."""
        return self.kind == "mean" and bool(self.parts)


@dataclass(frozen=True)
class AblationLoss:
    """Losses of the full and the ablated model on the same rows.

    Attributes:
        full, ablated: losses of the full and of the ablated model, in nats per target.
    """

    full: LossEstimate
    ablated: LossEstimate

    @property
    def change(self) -> float:
        """Return the loss of the ablated model minus that of the full model; positive if the ablation increases it."""
        return self.ablated.loss - self.full.loss


def ablatable(model: Model) -> list[str]:
    """List the names of all parts of a model that can be switched off, in order of execution."""
    masked = {f"{name}.mask" for name, stack in model.stacks.items() if stack.causal}
    return [name for name in patchable(model) if name in masked or _is_part(name)]


def _last_component(name: str) -> str:
    return name.rpartition(".")[2]


def _is_part(name: str) -> bool:
    last = _last_component(name)
    return last in ("positions", "feedforward", "self", "cross") or last.isdigit()


def check_ablation(model: Model, off: Sequence[str], kind: str = "zero") -> Ablation:
    """Check the names of parts and the kind, and return the ablation.

    Raises:
        GlassError: a part or the kind is unknown, a part is named twice, or the kind is "first" and a part is a
            feed-forward layer.
    """
    part_names = ablatable(model)
    if kind not in PART_KINDS:
        raise GlassError(f"unknown kind of ablation {kind!r}", nearest(kind, PART_KINDS))
    for number, name in enumerate(off):
        if name not in part_names:
            raise GlassError(f"this model has no part {name!r} to switch off", advice_on_part(model, name, part_names))
        if name in off[:number]:
            raise GlassError(f"{name} is named twice", "Name each part once.")
        if kind == "first" and _last_component(name) == "feedforward":
            raise GlassError(
                f"the kind 'first' was given for {name}, a feed-forward layer, which has no attention",
                "Choose zero, mean or frozen for feed-forward layers.",
            )
    return Ablation(tuple(off), next(each for each in PART_KINDS if each == kind))


def _replacement(name: str, kind: AblationKind, values: Mapping[str, Tensor], where: Tensor | None = None) -> Patch:
    """Return the patch that replaces one part.

    Args:
        name: name of the part.
        kind: kind of the ablation.
        values: replacement of each part by name; used for "mean" and "resample" only.
        where: rows and positions to patch, (B, T); None: all.
    """
    if _last_component(name) in PARTS_WITHOUT_REPLACEMENT or kind in ("zero", "frozen"):
        return Zero(where=where)
    return KnockOut(where=where) if kind == "first" else Value(values[name], where=where)


@dataclass(frozen=True, eq=False)
class AblatedModel:
    """Model with parts switched off; call it like the model itself.

    Attributes:
        model: a model of any family; its weights are not modified.
        ablation: the parts to switch off, and their replacement.
        means: mean of each part, (K) or (D), from `means_of`; needed for "mean" only.
    """

    model: Model
    ablation: Ablation
    means: Mapping[str, Tensor] = field(default_factory=dict)

    def __call__(self, *inputs: Any) -> Tensor:
        """Return the logits of the ablated model."""
        frozen_patches = (
            self._frozen_pattern_patches(*inputs)
            if self.ablation.kind == "frozen" and self.ablation.removed_parts
            else {}
        )
        with patch(self.model, {**frozen_patches, **self._patches()}):
            logits: Tensor = self.model(*inputs)
        return logits

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Switch off the parts in the model itself until the context ends.

        Raises:
            GlassError: the kind is "frozen", because the attention patterns of new tokens are not recorded.
        """
        if self.ablation.kind == "frozen":
            raise GlassError(
                "attention patterns of new tokens cannot be frozen: they are not recorded",
                "Choose another kind of ablation to generate text.",
            )
        with patch(self.model, self._patches()):
            yield

    def _patches(self) -> dict[str, Patch]:
        return {name: _replacement(name, self.ablation.kind, self.means) for name in self.ablation.removed_parts}

    def _frozen_pattern_patches(self, tokens: Tensor, *other_inputs: Tensor | None) -> dict[str, Patch]:
        """Return patches that set the patterns of all layers, except removed layers, to those of the full model."""
        is_encoder_decoder = isinstance(self.model, EncoderDecoder)
        target, real = (*other_inputs, None, None)[:2] if is_encoder_decoder else (None, (*other_inputs, None)[0])
        sites = [str(site) for site in attentions(self.model) if str(site) not in self.ablation.removed_parts]
        if not sites:
            return {}
        recording = record(self.model, tokens, target, real, keep=[f"{site}.pattern" for site in sites])
        return {site: Pattern(recording) for site in sites}


def ablate(model: Model, ablation: Ablation, data: TaskRows | None) -> AblatedModel:
    """Return the ablated model, with means (if the kind needs them) over the rows of `data`.

    Raises:
        GlassError: the ablation needs means, and `data` is None.
    """
    if not ablation.needs_means:
        return AblatedModel(model, ablation)
    if data is None:
        raise GlassError(
            "mean ablation needs rows of data, but data is None", "Give rows of data to compute the means."
        )
    return AblatedModel(model, ablation, means_of(model, data, ablation.parts))


def means_of(model: Model, data: TaskRows, names: Sequence[str]) -> dict[str, Tensor]:
    """Return the mean of each part's output by name, over all positions except padding.

    A mean is (K) for a head's z, and (D) for other parts.
    """
    sums: dict[str, Tensor] = {}
    positions: Counter[str] = Counter()
    with inference(model):
        for _, rows in data.groups(model) if names else ():
            batch = data.batch(rows)
            with _capture_tensors(model, names) as tensors:
                logits_of(model, batch)
            for name, value in tensors.items():  # (B, H, T, K) or (B, T, D)
                mask = _attention_mask(name, model, batch).cpu()  # (B, T)
                mask = mask[:, None, :, None] if value.dim() == 4 else mask[..., None]
                total = (value.cpu().double() * mask).sum(dim=(0, -2))  # (H, K) or (D)
                sums[name] = sums[name] + total if name in sums else total
                positions[name] += int(mask.sum())
    means: dict[str, Tensor] = {}
    for name in names:
        mean = sums[_tensor_name(name)] / positions[_tensor_name(name)]  # (H, K) or (D)
        means[name] = mean[_head_index(model, name)] if _last_component(name).isdigit() else mean  # (K) or (D)
    return means


def _tensor_name(name: str) -> str:
    """Return the name of the tensor with a part's values: for a head, z of its layer; otherwise the part's name."""
    return f"{name.rpartition('.')[0]}.z" if _last_component(name).isdigit() else name


def _capture_tensors(model: Model, names: Sequence[str]) -> AbstractContextManager[dict[str, Tensor]]:
    """Return a context manager that yields the parts' tensors by name, from the last forward pass in the context.

    Each tensor is (B, H, T, K) or (B, T, D).
    """
    entries = catalogue(model)
    return last_values({name: entries[name].tap for name in dict.fromkeys(map(_tensor_name, names))})


def _head_index(model: Model, name: str) -> int:
    """Return the index of a head among the remaining heads of its attention layer."""
    head = find_head(model, name)
    return head_numbers(attentions(model)[head.site]).index(head.head)


def _attention_mask(name: str, model: Model, batch: Batch) -> Tensor:
    """Return the attention mask of the part's stack, (B, T): False at padding."""
    of_source = name.startswith("enc.") and isinstance(model, EncoderDecoder)
    mask = batch.source_attention_mask if of_source else batch.attention_mask
    assert mask is not None
    return mask


def ablation_loss(ablated_model: AblatedModel, data: TaskRows, full_loss: LossEstimate | None = None) -> AblationLoss:
    """Measure the losses of the full and of the ablated model; skip the full model if `full_loss` is given."""
    model = ablated_model.model
    max_tokens = MOST_TOKENS
    if ablated_model.ablation.kind == "frozen":
        longest = max(map(len, data.rows), default=1)
        n_heads = sum(layer.heads for layer in attentions(model).values())
        max_tokens = max(longest, min(max_tokens, PATTERN_BYTES // (4 * longest * max(1, n_heads))))
    full_loss = full_loss or loss_on_rows(model, data)
    if not ablated_model.ablation.removed_parts:
        return AblationLoss(full_loss, full_loss)
    return AblationLoss(full_loss, loss_on_rows(model, data, most_tokens=max_tokens, forward=ablated_model))


def ablation_effects(model: Model, data: TaskRows, kind: AblationKind = "zero") -> dict[str, float]:
    """Return the ablation effect of each head by name: loss without the head minus full loss, in nats per target.

    Each head is switched off on all rows; several heads may share a forward pass, each with a copy of the rows.

    Args:
        model: a model of any family.
        data: the rows to measure on.
        kind: one of `HEAD_KINDS`.

    Raises:
        GlassError: the kind is "resample" and there are fewer than two rows.
    """
    if kind == "resample" and len(data.rows) < 2:
        raise GlassError(
            f"resample needs at least 2 rows, but the data has {len(data.rows)}",
            "Give more rows, or choose zero or mean.",
        )
    names = list(map(str, heads(model)))
    ablated_losses = dict.fromkeys(names, 0.0)
    full_loss = 0.0
    n_targets = 0
    with inference(model):
        means = means_of(model, data, names) if kind == "mean" else {}
        for first, rows in data.groups(model):
            batch = data.batch(rows)
            values = _values_of_next_rows(model, data, first, batch, names) if kind == "resample" else means
            copies = max(1, MOST_TOKENS // (len(rows) * max(map(len, rows))))
            for start in range(0, len(names), copies):
                group = names[start : start + copies]
                for name, losses in zip(group, _losses_without_each(model, batch, group, kind, values), strict=True):
                    ablated_losses[name] += float(losses.cpu().double().sum())
            full_loss += float(row_losses(model, batch).cpu().double().sum())
            n_targets += batch.n_targets
    return {name: (value - full_loss) / max(1, n_targets) for name, value in ablated_losses.items()}


def _losses_without_each(
    model: Model, batch: Batch, names: Sequence[str], kind: AblationKind, values: Mapping[str, Tensor]
) -> Tensor:
    """Return the loss of each row without each of n heads, (n, B), from one forward pass."""
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
    """Return n copies of a batch, concatenated along the rows."""
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
    """Return each head's z (B, T, K) at the same position of the next row, or at the last token of a shorter next row.

    The first row of `data` follows the last row.

    Args:
        model, data: as for `ablation_effects`.
        first: index of the batch's first row among the rows of `data`.
        batch: the rows whose values are replaced.
        names: names of the heads.
    """
    B = len(batch.inputs)
    next_batch = data.batch([data.rows[(first + 1 + number) % len(data.rows)] for number in range(B)])
    with _capture_tensors(model, names) as tensors:
        logits_of(model, next_batch)
    next_values: dict[str, Tensor] = {}
    for name, z in tensors.items():
        T = _attention_mask(name, model, batch).shape[1]
        ends = _attention_mask(name, model, next_batch).sum(dim=1)  # (B)
        positions = torch.arange(T, device=z.device).minimum((ends - 1).clamp(min=0)[:, None])  # (B, T)
        next_values[name] = z.gather(
            2, positions[:, None, :, None].expand(B, z.shape[1], T, z.shape[3])
        )  # (B, H, T, K)
    return {name: next_values[_tensor_name(name)][:, _head_index(model, name)] for name in names}  # (B, T, K) each


def generate_ablated(ablated_model: AblatedModel, model: TextModel | Translator, text: str, tokens: int) -> str:
    """Generate at most `tokens` new tokens greedily with the ablated model, and return the text.

    Without the causal mask, the cache is off: earlier positions then attend to later ones, so their keys and values
    change with each new token.

    Raises:
        GlassError: the kind is "frozen", or `generate` raises an error.
    """
    settings = model.config.sample.replace(beams=1, temperature=0.0, repetition_penalty=1.0, tokens=tokens)
    if isinstance(model, ChatModel):
        settings = model.with_stop_strings(settings)
    ids = model.prompt_ids(text)
    tokenizer = model.tokenizer
    end_ids = {tokenizer.end_id, *model.extra_end_ids}
    new_ids: list[int] = []
    cached = not any(_last_component(name) == "mask" for name in ablated_model.ablation.removed_parts)
    with ablated_model.applied():
        steps = generate(
            model.model,
            [ids],
            settings,
            tokenizer.end_id,
            cached=cached,
            start=tokenizer.target_start,
            extra_end_ids=model.extra_end_ids,
        )
        for step in steps:
            new_ids += [token for token in step.tokens if token not in end_ids]
    return decode_until_stop(tokenizer, model.ids_before_text(ids), new_ids, settings.stop)[0]


@dataclass(frozen=True)
class AblationReport:
    """Report of `glass evaluate RUN --ablate …`.

    Attributes:
        measured_on: description of the data.
        unit: unit of the mean loss: "token", "masked token" or "example".
        unknown_fraction: fraction of the validation tokens that are the unknown token.
        ablation: the parts that were switched off, and their replacement.
        loss: losses of the full and of the ablated model.
    """

    measured_on: str
    unit: str
    unknown_fraction: float
    ablation: Ablation
    loss: AblationLoss

    def facts(self) -> dict[str, Any]:
        """Return the report as a JSON-serializable dict; `loss` and its statistics describe the ablated model."""
        return {
            "text": self.measured_on,
            **self.loss.ablated.facts(None, self.unknown_fraction),
            "whole_loss": self.loss.full.loss,
            "change": self.loss.change,
            "off": list(self.ablation.removed_parts),
            "instead": self.ablation.kind,
        }

    def text(self) -> str:
        """Format the report as text."""
        loss = self.loss
        off = ", ".join(self.ablation.removed_parts) or "any part switched off"
        level = "" if loss.full.ci95 is None else " (95 %)"
        lines = [
            f"on {self.measured_on}: {counted(loss.full.tokens, self.unit + 's')}",
            f"loss {loss.full.loss:.4f} {loss.full.margin} nats per {self.unit}{level}, full model",
            f"loss {loss.ablated.loss:.4f} {loss.ablated.margin} nats per {self.unit} without {off}",
            "; ".join([f"change {loss.change:+.4f}", *self._replacements()]),
        ]
        return "\n".join(lines)

    def _replacements(self) -> list[str]:
        """Return the replacement of the parts that have one, and the names of the parts that are only removed."""
        replaced = self.ablation.parts
        removed = [name for name in self.ablation.removed_parts if name not in replaced]
        replacements = [ABLATION_KINDS[self.ablation.kind]] if replaced else []
        return [*replacements, f"{', '.join(removed)} removed"] if removed else replacements


def ablation_report(model: Model, data: TaskRows, ablation: Ablation, measured_on: str) -> AblationReport:
    """Measure the ablated model on rows of its task; `measured_on` describes these rows in the report."""
    loss = ablation_loss(ablate(model, ablation, data), data)
    return AblationReport(measured_on, data.task.unit, data.task.unknown_share, ablation, loss)
