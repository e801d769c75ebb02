"""Losses: logits and a batch in, nats out. The model knows none of this."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from glassformer.model.transformer import Classifier, Encoder, EncoderDecoder, Model
from glassformer.text.batches import Batch

LOGITS_AT_ONCE = 1 << 22
"""Most logits that one forward pass on a CPU makes: 16 MB of them, and as much again a few times over for the loss."""


def logits_of(model: Model, batch: Batch, forward: Callable[..., Tensor] | None = None) -> Tensor:
    """Return the logits of a batch: (B, T, V), or (B, C) of a classifier.

    Padding stands last in a row, where no real token of a causal model looks: only encoders need to know of it.
    `forward` is called in the model's place where something is wrapped around it.
    """
    forward = model if forward is None else forward
    if isinstance(model, EncoderDecoder):
        return forward(batch.source, batch.inputs, batch.source_attention_mask)  # (B, T, V)
    if isinstance(model, Encoder | Classifier):
        return forward(batch.inputs, batch.attention_mask)  # (B, T, V) or (B, C)
    return forward(batch.inputs)  # (B, T, V)


def token_losses(logits: Tensor, batch: Batch) -> Tensor:
    """-ln p(target) at every position, (B, T) or (B, 1) in nats; 0 where the loss mask is off."""
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))  # (B, T, V)
    flat = precise.reshape(-1, logits.shape[-1])  # (B * T, V)
    losses = cross_entropy(flat, batch.targets.flatten(), reduction="none")  # (B * T)
    return losses.view_as(batch.targets) * batch.loss_mask  # (B, T)


def summed_loss(logits: Tensor, batch: Batch, smoothing: float = 0.0) -> Tensor:
    """The sum of `token_losses`: divided by the targets of the whole step, it weights each real token alike.

    `smoothing` spreads that share of the target's probability evenly over all choices (Szegedy et al. 2016, section 7).
    """
    targets = batch.targets.masked_fill(~batch.loss_mask, -100)  # (B, T)
    flat = logits.float().reshape(-1, logits.shape[-1])  # (B * T, V)
    return cross_entropy(flat, targets.flatten(), ignore_index=-100, reduction="sum", label_smoothing=smoothing)


def tokens_at_once(model: Model) -> int:
    """Return how many tokens one forward pass on a CPU may have, so that memory stays in bounds."""
    per_token = 4 * model.config.F if isinstance(model, Classifier) else model.vocab_size
    return max(1, LOGITS_AT_ONCE // per_token)
