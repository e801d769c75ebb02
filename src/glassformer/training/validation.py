"""The loss on text that training never saw, with how sure of it we are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from glassformer.data.batches import Batch
from glassformer.model.device import autocast
from glassformer.training.objectives import next_token_logits, token_losses


@dataclass(frozen=True)
class LossEstimate:
    """A mean loss.

    Attributes:
        loss: nats per token.
        ci95: half width of its 95 % interval, windows taken as independent clusters of tokens.
        tokens: predicted tokens.
        windows: rows they came in.
    """

    loss: float
    ci95: float
    tokens: int
    windows: int

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        return math.exp(min(self.loss, 700.0))

    def bits_per_byte(self, tokens: int, size: int) -> float:
        """The loss in bits per byte of text, for a text of `size` bytes that makes `tokens` tokens."""
        return self.loss / math.log(2) * tokens / size


def validation_loss(
    model: nn.Module,
    rows: Sequence[np.ndarray],
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    tokens_at_once: int = 16_384,
) -> LossEstimate:
    """The mean loss over rows of T+1 ids; the same number whatever their grouping, to rounding.

    The model's mode is put back afterwards and no random number is drawn. Memory does not grow with the rows.
    """
    was_training = model.training
    model.eval()
    sums, counts = [], []
    try:
        with torch.inference_mode(), autocast(device, dtype):
            for group in _groups(rows, tokens_at_once):
                batch = Batch.from_rows(group).to(device)
                losses = token_losses(next_token_logits(model, batch), batch)  # (B, T)
                sums.append(losses.double().sum(dim=1).cpu())
                counts.append(batch.loss_mask.sum(dim=1).cpu())
    finally:
        model.train(was_training)
    return _estimate(torch.cat(sums).numpy(), torch.cat(counts).numpy())


def _groups(rows: Sequence[np.ndarray], tokens_at_once: int) -> list[list[np.ndarray]]:
    """Rows in order, in groups of at most so many tokens, padding included."""
    groups: list[list[np.ndarray]] = []
    width = 0
    for row in rows:
        width = max(width, len(row))
        if not groups or width * (len(groups[-1]) + 1) > tokens_at_once:
            groups.append([])
            width = len(row)
        groups[-1].append(row)
    return groups


def _estimate(sums: np.ndarray, counts: np.ndarray) -> LossEstimate:
    """Ratio of sums, with the linearised variance of a ratio over clusters (Cochran 1977, section 6.4)."""
    total, n = counts.sum(), len(counts)
    loss = float(sums.sum() / total)
    spread = sums - loss * counts
    deviation = math.sqrt(n / max(1, n - 1) * float((spread**2).sum())) / total
    return LossEstimate(loss, 1.96 * deviation, int(total), n)
