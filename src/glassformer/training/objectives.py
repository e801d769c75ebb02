"""Losses: logits and a batch in, nats out. The model knows none of this."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from glassformer.data.batches import Batch

LOGITS_AT_ONCE = 1 << 22
"""Most logits that one forward pass on a CPU makes: 16 MB of them, and as much again a few times over for the loss."""


def next_token_logits(model: nn.Module, batch: Batch) -> Tensor:
    """The logits (B, T, V) of a causal model. Padding stands last in a row, where no real token looks: no mask."""
    return model(batch.inputs)


def token_losses(logits: Tensor, batch: Batch) -> Tensor:
    """-ln p(target) at every place, (B, T) in nats; 0 where the loss mask is off."""
    losses = cross_entropy(logits.float().flatten(0, 1), batch.targets.flatten(), reduction="none")  # (B * T)
    return losses.view_as(batch.targets) * batch.loss_mask  # (B, T)


def summed_loss(logits: Tensor, batch: Batch) -> Tensor:
    """The sum of `token_losses`: divided by the targets of the whole step, it weights each real token alike."""
    targets = batch.targets.masked_fill(~batch.loss_mask, -100)  # (B, T)
    return cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
