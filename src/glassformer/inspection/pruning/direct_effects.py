"""Direct effect of a head on the loss: the effect of removing only its direct path to the logits.

A head adds c to the residual stream. If the scale of the final norm is held fixed, the norm is linear apart from its
bias, and the logits without the direct path are the model's logits minus the contribution of norm(c) (Elhage et al.
2021). With `model.norm_order = output`, the scale of the norm after the attention layer is held fixed too.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.inspection.hooks import Tap, last_values
from glassformer.inspection.sites import Site, attentions
from glassformer.model.attention import Attention
from glassformer.model.evaluation_mode import inference
from glassformer.model.pruned_attention import head_numbers
from glassformer.model.transformer import Block, Classifier, Model
from glassformer.tasks.losses import logits_of, token_losses
from glassformer.tasks.task_rows import TaskRows


def no_direct_effect(model: Model, stack: str) -> str | None:
    """Return the reason why the direct effect of heads in this stack cannot be computed; otherwise None."""
    if stack != list(model.stacks)[-1]:
        return "the output of the encoder's heads reaches no logit directly"
    if model.config.norm_order == "post":
        return "model.norm_order = post: the output of a head passes through the norms of all later layers"
    if model.config.head_transform:
        return "model.head_transform = true: an activation lies between the heads and the logits"
    return None


def direct_effects(model: Model, data: TaskRows) -> dict[str, float]:
    """Return the direct effect of each head by name: loss without its direct path minus loss, in nats per target.

    Heads for which `no_direct_effect` gives a reason are left out.
    """
    sites = [site for site in attentions(model) if no_direct_effect(model, site.stack) is None]
    z_taps = {site: Tap(layer.hook_z) for site, layer in attentions(model).items()}
    norm_taps = _inputs_of_norms(model)
    loss_sums: dict[str, float] = {}
    full_loss = 0.0
    targets = 0
    with inference(model):
        for _, rows in data.groups(model) if sites else ():
            batch = data.batch(rows)
            with last_values(z_taps) as z, last_values(norm_taps) as norm_inputs:
                logits = logits_of(model, batch)  # (B, T, V) or (B, C)
            for site in sites:
                for number, contribution in _head_contributions(model, site, z[site], norm_inputs):
                    direct_path = _logit_contribution(model, contribution, batch.attention_mask)
                    logits_without = logits - direct_path  # (B, T, V) or (B, C)
                    name = f"{site}.{number}"
                    loss = float(token_losses(logits_without, batch).cpu().double().sum())
                    loss_sums[name] = loss_sums.get(name, 0.0) + loss
            full_loss += float(token_losses(logits, batch).cpu().double().sum())
            targets += batch.n_targets
    return {name: (loss - full_loss) / max(1, targets) for name, loss in loss_sums.items()}


def _inputs_of_norms(model: Model) -> dict[nn.Module, Tap]:
    """Return taps on the input (B, T, D) of each norm of the last stack, except query and key norms."""
    stack = list(model.stacks.values())[-1]
    return {
        module: Tap(module, "input")
        for name, module in stack.named_modules()
        if name.endswith("norm") and not name.endswith(("query_norm", "key_norm"))
    }


def _head_contributions(
    model: Model, site: Site, z: Tensor, norm_inputs: dict[nn.Module, Tensor]
) -> Iterator[tuple[int, Tensor]]:
    """Yield the number of each head and its contribution to the output of the final norm, (B, T, D)."""
    stack = model.stacks[site.stack]
    block = stack.blocks[site.layer]
    layer = attentions(model)[site]
    assert isinstance(block, Block)
    attention_norm = block.attention_norm if site.part == "self" else block.cross_norm
    projections = _by_head(layer)  # (H, D, U)
    for index, number in enumerate(head_numbers(layer)):
        c = F.linear(z[:, index], projections[index])  # (B, T, D)
        if model.config.norm_order == "output" and attention_norm is not None:
            c = _normalized_contribution(attention_norm, norm_inputs[attention_norm], c)  # (B, T, D)
        yield number, _normalized_contribution(stack.norm, norm_inputs[stack.norm], c)  # (B, T, D)


def _by_head(layer: Attention) -> Tensor:
    """Return the output projection of each head, (H, D, U)."""
    return layer.output.weight.unflatten(1, (layer.heads, layer.value_width)).transpose(0, 1)  # (H, D, U)


def _normalized_contribution(norm: nn.Module, x: Tensor, c: Tensor) -> Tensor:
    """Return the contribution (B, T, D) of c, a part of a norm's input x, to the norm's output, without the bias."""
    if isinstance(norm, nn.LayerNorm):
        scale = (x.var(dim=-1, keepdim=True, unbiased=False) + norm.eps).sqrt()  # (B, T, 1)
        return (c - c.mean(dim=-1, keepdim=True)) / scale * norm.weight  # (B, T, D)
    if isinstance(norm, nn.RMSNorm):
        assert norm.eps is not None
        scale = (x.square().mean(dim=-1, keepdim=True) + norm.eps).sqrt()  # (B, T, 1)
        return c / scale * norm.weight  # (B, T, D)
    return c


def _logit_contribution(model: Model, x: Tensor, mask: Tensor) -> Tensor:
    """Return the contribution of x (B, T, D), a part of the stack's output, to the logits (B, T, V) or (B, C)."""
    if not isinstance(model, Classifier):
        head_weight = model.head.weight  # (V, D), or None for tied embeddings
        return F.linear(x, model.embedding.tokens.weight if head_weight is None else head_weight)  # (B, T, V)
    if model.config.pooling == "first":
        pooled = x[torch.arange(len(x)), mask.long().argmax(dim=1)]  # (B, D)
    else:
        pooled = (x * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)  # (B, D)
    return F.linear(pooled, model.head.weight)  # (B, C)
