"""A run with parts of it switched off: what that does to the loss, to what it answers, and to what it writes.

What can be switched off is named as for `inspection.patching`: heads (`dec.1.self.2`), whole attentions (`dec.1.self`),
feed-forward layers (`dec.1.feedforward`), positions and the causal mask (`dec.positions`, `dec.mask`). What stands in
the place of a part is a choice, and the answers differ by it: see `INSTEADS`. Positions and the mask have nothing that
could stand in their place: they are taken away, whatever is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from glassformer.base.errors import GlassError, nearest
from glassformer.generation.context import reading
from glassformer.generation.decoding import generate, translate
from glassformer.inspection.patching import Kind, KnockOut, Pattern, Value, Zero, patch, patchable
from glassformer.inspection.recording import record, watching
from glassformer.inspection.sites import attentions, stacks
from glassformer.model.transformer import EncoderDecoder, Model
from glassformer.tasks import TextModel, Translator
from glassformer.tasks.losses import logits_of, tokens_at_once
from glassformer.tasks.writing import written
from glassformer.text.batches import Batch
from glassformer.training.validation import MOST_TOKENS, LossEstimate, groups, validation_loss

Instead = Literal["zero", "mean", "first", "frozen"]
INSTEADS: Mapping[Instead, str] = {
    "zero": "nothing in its place",
    "mean": "in its place its mean over all places of the rows that the loss is measured on",
    "first": "a head looks at the first token alone",
    "frozen": "nothing in its place, and all other attention looks where it looks with everything on",
}
WHOLE = ("mask", "positions")
"""Parts that are taken away, whatever shall stand in the place of others."""
PATTERN_BYTES = 64 * 10**6
"""Most bytes of the attention weights that are kept of one forward pass, to be frozen."""
Collate = Callable[[Sequence[Any]], Batch]


@dataclass(frozen=True)
class Ablation:
    """An ablation of a model: the parts to switch off, and their replacement.

    Attributes:
        off: names of parts, such as `dec.1.self.2`.
        instead: what stands in their place.
    """

    off: tuple[str, ...]
    instead: Instead = "zero"

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the parts that are switched off and have a replacement."""
        return tuple(name for name in self.off if _last(name) not in WHOLE)


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


def switches(model: Model) -> list[str]:
    """List everything that can be switched off in a model, in the order in which it runs."""
    masked = {f"{name}.mask" for name, stack in stacks(model).items() if stack.causal}
    return [name for name in patchable(model) if name in masked or _is_part(name)]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _is_part(name: str) -> bool:
    last = _last(name)
    return last in ("positions", "feedforward", "self", "cross") or last.isdigit()


def checked(model: Model, off: Sequence[str], instead: str = "zero") -> Ablation:
    """The ablation of these parts, if the model has them and they can be switched off so.

    Raises:
        GlassError: there is no such part, it is named twice, or a feed-forward layer shall look at the first token.
    """
    known = switches(model)
    if instead not in get_args(Instead):
        raise GlassError(f"there is no {instead!r} to stand in the place of parts", nearest(instead, get_args(Instead)))
    for number, name in enumerate(off):
        if name not in known:
            raise GlassError(f"there is nothing called {name!r} to switch off", nearest(name, known))
        if name in off[:number]:
            raise GlassError(f"{name} is switched off twice", "Name each part once.")
        if instead == "first" and _last(name) == "feedforward":
            raise GlassError(f"{name} looks at no token", "Choose zero or mean for feed-forward layers.")
    found: Instead = next(each for each in get_args(Instead) if each == instead)
    return Ablation(tuple(off), found)


@dataclass(frozen=True, eq=False)
class Switched:
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
        """The logits."""
        frozen = self._frozen(*inputs) if self.ablation.instead == "frozen" and self.ablation.off else {}
        with patch(self.model, {**frozen, **self._patches()}):
            logits: Tensor = self.model(*inputs)
        return logits

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Switch these parts off in the model itself, until the context ends.

        Raises:
            GlassError: patterns shall be frozen: of tokens that are not there yet, there are none.
        """
        if self.ablation.instead == "frozen":
            raise GlassError(
                "attention to tokens that are still to be written cannot be frozen", "Choose another kind for writing."
            )
        with patch(self.model, self._patches()):
            yield

    def _patches(self) -> dict[str, Kind]:
        return {name: self._kind(name) for name in self.ablation.off}

    def _kind(self, name: str) -> Kind:
        if _last(name) in WHOLE or self.ablation.instead in ("zero", "frozen"):
            return Zero()
        return KnockOut() if self.ablation.instead == "first" else Value(self.means[name])

    def _frozen(self, tokens: Tensor, *more: Tensor | None) -> dict[str, Kind]:
        """The weights of all attention that stays, as they are with everything on."""
        pair = isinstance(self.model, EncoderDecoder)
        target, real = (*more, None, None)[:2] if pair else (None, (*more, None)[0])
        sites = [str(site) for site in attentions(self.model) if str(site) not in self.ablation.off]
        if not sites:
            return {}
        kept = record(self.model, tokens, target, real, keep=[f"{site}.pattern" for site in sites])
        return {site: Pattern(kept) for site in sites}


def switched(model: Model, ablation: Ablation, rows: Sequence[Any], collate: Collate, device: torch.device) -> Switched:
    """The model with parts off; means are taken over these rows, where there are to be any."""
    means = means_of(model, rows, collate, device, ablation.parts) if ablation.instead == "mean" else {}
    return Switched(model, ablation, means)


def means_of(
    model: Model, rows: Sequence[Any], collate: Collate, device: torch.device, names: Sequence[str]
) -> dict[str, Tensor]:
    """The mean of what each part gives, (K) of a head and (D) of others, over all places of the rows but padding."""
    if not names:
        return {}
    sums: dict[str, Tensor] = {}
    places = 0, 0
    keep = sorted({f"{name.rpartition('.')[0]}.z" if _last(name).isdigit() else name for name in names})
    pair = isinstance(model, EncoderDecoder)
    with reading(model):
        for group in groups(rows, min(MOST_TOKENS, tokens_at_once(model))):
            batch = collate(group).to(device)
            with watching(model, keep) as passes:
                logits_of(model, batch)
            read = batch.source_attention_mask if pair else batch.attention_mask
            reals = {"dec": batch.attention_mask.cpu(), "enc": read}
            for name in names:
                real = reals[name.partition(".")[0]]
                assert real is not None
                total = (passes[-1][name].double() * real.cpu()[..., None]).sum(dim=(0, 1))  # (K) or (D)
                sums[name] = sums[name] + total if name in sums else total
            own = [0 if each is None else int(each.sum()) for each in (reals["dec"], reals["enc"])]
            places = places[0] + own[0], places[1] + own[1]
    return {name: total / places[name.startswith("enc.")] for name, total in sums.items()}


def ablation_loss(
    found: Switched,
    rows: Sequence[Any],
    collate: Collate,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    whole: LossEstimate | None = None,
) -> AblationLoss:
    """The loss on rows, with everything on and with parts off; see `validation_loss`. `whole`: if it is known."""
    model = found.model
    most = MOST_TOKENS
    if found.ablation.instead == "frozen":
        longest = max(map(len, rows), default=1)
        heads = sum(layer.heads for layer in attentions(model).values())
        most = max(longest, min(most, PATTERN_BYTES // (4 * longest * max(1, heads))))
    whole = whole or validation_loss(model, rows, device, dtype, collate=collate)
    if not found.ablation.off:
        return AblationLoss(whole, whole)
    off = validation_loss(model, rows, device, dtype, most_tokens=most, collate=collate, forward=found)
    return AblationLoss(whole, off)


def written_without(found: Switched, model: TextModel | Translator, text: str, tokens: int) -> str:
    """Return the text that a run writes greedily, so many tokens at most, with parts off.

    Without a mask everything is read anew for each token: a cache holds what earlier tokens were before there were
    later ones, and then that is not what they are.

    Raises:
        GlassError: patterns shall be frozen; or as `generate`.
    """
    settings = model.config.sample.replace(beams=1, temperature=0.0, repetition_penalty=1.0, tokens=tokens)
    ids = model.prompt_ids(text)
    tokenizer = model.tokenizer
    end = tokenizer.end_id
    new: list[int] = []
    cached = not any(_last(name) == "mask" for name in found.ablation.off)
    with found.acting():
        if isinstance(model, Translator):
            start = tokenizer.target_start
            steps = translate(model.model, [ids], settings, end, cached=cached, start=start)
        else:
            steps = generate(model.model, [ids], settings, end, cached=cached)
        for step in steps:
            new += [token for token in step.tokens if token != end]
    return written(tokenizer, () if isinstance(model, Translator) else ids, new, settings.stop)[0]
