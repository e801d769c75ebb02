"""What the loss does without a head: in all (ablation), and by the direct path from the head to the logits.

The two differ by what later layers do about it. They often make up for a missing head: in Chinchilla 7B, for about 70 %
of what an attention layer's absence takes from the logit (McGrath et al. 2023, "The Hydra Effect"). So a small total
effect does not say that a head did little; the direct effect beside it does not see what later layers read from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from glassformer.base.errors import GlassError
from glassformer.inspection.patching import Kind, Value, Zero, patch
from glassformer.inspection.pruning.measuring import Rows, row_losses, without_dropout
from glassformer.inspection.sites import Site, attentions, heads
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import EncoderDecoder, Model
from glassformer.text.batches import Batch
from glassformer.training.validation import MOST_TOKENS

Ablation = Literal["zero", "mean", "resample"]
ABLATIONS: Mapping[Ablation, str] = {
    "zero": "nothing in its place",
    "mean": "in its place its mean over all rows and places",
    "resample": "in its place what it had at the same place of the next row",
}
SELF_REPAIR = "later layers make up for a missing head: the ablation effect may be smaller than what the head did"


def ablation_effects(model: Model, data: Rows, kind: Ablation = "zero") -> dict[str, float]:
    """The loss without a head minus the loss with all, in nats per target, for each head by its name.

    Every head is left out over all rows; several heads share a forward pass, each with a copy of the rows.

    Raises:
        GlassError: there is one row only, and nothing to resample from.
    """
    if kind == "resample" and len(data.rows) < 2:
        raise GlassError("resample was asked of one row", "Give more rows, or choose zero or mean.")
    names = list(map(str, heads(model)))
    lost = dict.fromkeys(names, 0.0)
    whole = 0.0
    targets = 0
    with torch.inference_mode(), without_dropout(model):
        means = _means(model, data) if kind == "mean" else {}
        for first, rows in data.groups(model):
            batch = data.batch(rows)
            others = _of_next_rows(model, data, first, batch) if kind == "resample" else means
            copies = max(1, MOST_TOKENS // (len(rows) * max(map(len, rows))))
            for start in range(0, len(names), copies):
                group = names[start : start + copies]
                for name, losses in zip(group, _without_each(model, batch, group, others), strict=True):
                    lost[name] += float(losses.cpu().double().sum())
            whole += float(row_losses(model, batch).cpu().double().sum())
            targets += batch.n_targets
    return {name: (value - whole) / max(1, targets) for name, value in lost.items()}


def _without_each(model: Model, batch: Batch, names: Sequence[str], others: Mapping[str, Tensor]) -> Tensor:
    """The losses (n, B) without each of n heads; `others`: what stands in the place of a head, or nothing."""
    n = len(names)
    B = len(batch.inputs)
    patches: dict[str, Kind] = {}
    for number, name in enumerate(names):
        where = (torch.arange(n * B, device=batch.inputs.device) // B == number)[:, None]  # (n B, 1)
        if name not in others:
            patches[name] = Zero(where=where)
        else:
            other = others[name]  # (K), or (B, T, K)
            patches[name] = Value(other.repeat(n, 1, 1) if other.dim() == 3 else other, where=where)
    with patch(model, patches):
        return row_losses(model, _copied(batch, n)).unflatten(0, (n, B))  # (n, B)


def _copied(batch: Batch, n: int) -> Batch:
    """All rows n times over."""
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


@contextmanager
def z_values(model: Model) -> Iterator[dict[Site, Tensor]]:
    """Note the z of every attention in the last forward pass, (B, H, T, K) each, by its site."""
    seen: dict[Site, Tensor] = {}

    def keep(site: Site, module: nn.Module, args: tuple[Any, ...], z: Tensor) -> None:
        seen[site] = z

    with ExitStack() as hooks:
        for site, layer in attentions(model).items():
            hooks.callback(layer.hook_z.register_forward_hook(partial(keep, site)).remove)
        yield seen


def _real(model: Model, site: Site, batch: Batch) -> Tensor:
    """(B, T) which places of a site's stack are no padding."""
    of_source = site.stack == "enc" and isinstance(model, EncoderDecoder)
    real = batch.source_attention_mask if of_source else batch.attention_mask
    assert real is not None
    return real


def _means(model: Model, data: Rows) -> dict[str, Tensor]:
    """Each head's mean (K) over all real places of all rows."""
    sums: dict[str, Tensor] = {}
    places: dict[Site, int] = dict.fromkeys(attentions(model), 0)
    for _, rows in data.groups(model):
        batch = data.batch(rows)
        with z_values(model) as seen:
            row_losses(model, batch)
        for site, z in seen.items():
            real = _real(model, site, batch)  # (B, T)
            total = (z.double() * real[:, None, :, None]).sum(dim=(0, 2))  # (H, K)
            places[site] += int(real.sum())
            for number, each in zip(head_numbers(attentions(model)[site]), total, strict=True):
                sums[f"{site}.{number}"] = sums.get(f"{site}.{number}", torch.zeros_like(each)) + each  # (K)
    return {f"{head}": sums[f"{head}"] / places[head.site] for head in heads(model)}


def _of_next_rows(model: Model, data: Rows, first: int, batch: Batch) -> dict[str, Tensor]:
    """What each head had (B, T, K) at the same place of the next row; where that row has ended, at its end."""
    B = len(batch.inputs)
    other = data.batch([data.rows[(first + 1 + number) % len(data.rows)] for number in range(B)])
    with z_values(model) as seen:
        row_losses(model, other)
    found = {}
    for site, z in seen.items():
        T = _real(model, site, batch).shape[1]
        ends = _real(model, site, other).sum(dim=1)  # (B)
        places = torch.arange(T, device=z.device).minimum((ends - 1).clamp(min=0)[:, None])  # (B, T)
        taken = z.gather(2, places[:, None, :, None].expand(B, z.shape[1], T, z.shape[3]))  # (B, H, T, K)
        for index, number in enumerate(head_numbers(attentions(model)[site])):
            found[f"{site}.{number}"] = taken[:, index]  # (B, T, K)
    return found
