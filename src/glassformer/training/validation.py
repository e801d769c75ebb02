"""The loss on text that training never saw, with how sure of it we are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from glassformer.data.batches import Batch
from glassformer.model.device import autocast
from glassformer.model.families import Model
from glassformer.training.objectives import LOGITS_AT_ONCE, next_token_logits, token_losses


@dataclass(frozen=True)
class LossEstimate:
    """A mean loss.

    Attributes:
        loss: nats per token.
        ci95: half width of its 95 % interval, windows taken as independent clusters of tokens; None of one window.
        tokens: predicted tokens.
        windows: rows they came in.
    """

    loss: float
    ci95: float | None
    tokens: int
    windows: int

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        return math.exp(min(self.loss, 700.0))

    @property
    def margin(self) -> str:
        """The interval in words, to stand after the loss."""
        return "(one window: no interval)" if self.ci95 is None else f"± {self.ci95:.4f}"

    def bits_per_byte(self, size: int) -> float:
        """All the nats lost, in bits per byte of a text of `size` bytes."""
        return self.loss / math.log(2) * self.tokens / size


def validation_loss(
    model: Model,
    rows: Sequence[np.ndarray],
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    skip: int = 0,
    tokens_at_once: int = 8192,
) -> LossEstimate:
    """The mean loss over rows of T+1 ids; the same number whatever their grouping, to rounding.

    The model's mode is put back afterwards and no random number is drawn. Memory does not grow with the rows.

    Args:
        model: maps ids (B, T) to logits (B, T, V).
        rows: ids; each but the first of a row is predicted from those before it.
        device, dtype: where the model is, and the precision of its products.
        skip: the first so many targets of every row but the first are not counted.
        tokens_at_once: most ids per forward pass; fewer where the vocabulary is large.
    """
    was_training = model.training
    model.eval()
    # Made before the first pass: small tensors kept between large ones would leave memory that cannot be used again.
    sums, counts, done = np.zeros(len(rows)), np.zeros(len(rows)), 0
    try:
        with torch.inference_mode(), autocast(device, dtype):
            for group in _groups(rows, min(tokens_at_once, LOGITS_AT_ONCE // model.vocab_size)):
                batch = Batch.from_rows(group).to(device)
                batch.loss_mask[0 if done else 1 :, :skip] = False
                losses = token_losses(next_token_logits(model, batch), batch)  # (B, T)
                part = slice(done, done + len(group))
                sums[part] = losses.cpu().double().sum(dim=1).numpy()
                counts[part] = batch.loss_mask.sum(dim=1).cpu().numpy()
                done += len(group)
    finally:
        model.train(was_training)
    return _estimate(sums, counts)


def sliding_loss(
    model: Model, tokens: np.ndarray, context: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> LossEstimate:
    """The mean loss when windows overlap by half, so that every token but the first few sees half a context or more."""
    stride = max(1, context // 2)
    return validation_loss(model, _Overlapping(tokens, context, stride), device, dtype, skip=context - stride)


class _Overlapping(Sequence[np.ndarray]):
    """Rows of `context` + 1 ids, each beginning `stride` after the one before."""

    def __init__(self, tokens: np.ndarray, context: int, stride: int) -> None:
        self.tokens, self.context, self.stride = tokens, context, stride

    def __len__(self) -> int:
        return 1 + max(0, -(-(len(self.tokens) - 1 - self.context) // self.stride))

    def __getitem__(self, index: int) -> np.ndarray:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.tokens[index * self.stride : index * self.stride + self.context + 1]


def _groups(rows: Sequence[np.ndarray], tokens_at_once: int) -> Iterator[list[np.ndarray]]:
    """Rows in order, in groups of at most so many tokens, padding included."""
    group: list[np.ndarray] = []
    width = 0
    for row in rows:
        if group and max(width, len(row)) * (len(group) + 1) > tokens_at_once:
            yield group
            group, width = [], 0
        group.append(row)
        width = max(width, len(row))
    if group:
        yield group


def _estimate(sums: np.ndarray, counts: np.ndarray) -> LossEstimate:
    """Ratio of sums, with the linearised variance of a ratio over clusters (Cochran 1977, section 6.4)."""
    total, n = counts.sum(), len(counts)
    loss = float(sums.sum() / total)
    spread = sums - loss * counts
    if n < 2:
        return LossEstimate(loss, None, int(total), n)
    deviation = math.sqrt(n / (n - 1) * float((spread**2).sum())) / total
    return LossEstimate(loss, 1.96 * deviation, int(total), n)
