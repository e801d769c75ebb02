"""Validation loss: the mean loss on held-out rows, with a confidence interval."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

from glassformer.model.device import autocast
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Model
from glassformer.tasks.losses import logits_of, token_losses, tokens_at_once
from glassformer.tasks.task_rows import MOST_TOKENS, TaskRows, groups
from glassformer.text.batches import Batch
from glassformer.text.rows import Row
from glassformer.training.parallel.processes import OneProcess, Processes


@dataclass(frozen=True)
class LossEstimate:
    """Mean loss with its confidence interval.

    Attributes:
        loss: mean loss in nats per target: a predicted token or, in classification, a label.
        ci95: half width of the 95 % confidence interval, with rows as independent clusters of tokens; None if there are
            fewer than two rows.
        tokens: number of targets.
        rows: number of rows that were evaluated.
    """

    loss: float
    ci95: float | None
    tokens: int
    rows: int

    @property
    def perplexity(self) -> float:
        """Perplexity exp(loss), with the loss limited to 700 to avoid overflow."""
        return math.exp(min(self.loss, 700.0))

    @property
    def margin(self) -> str:
        """Confidence interval in words, to print after the loss."""
        return "(one row: no interval)" if self.ci95 is None else f"± {self.ci95:.4f}"

    def facts(self, bits_per_byte: float | None, unknown_share: float) -> dict[str, float | int | None]:
        """Return the fields for `--json`.

        Args:
            bits_per_byte: the same loss in bits per byte of text; None if that is not defined.
            unknown_share: fraction of the measured tokens that are the unknown token.
        """
        return {
            "loss": self.loss,
            "loss_ci95": self.ci95,
            "perplexity": self.perplexity,
            "bits_per_byte": bits_per_byte,
            "tokens": self.tokens,
            "unknown_share": unknown_share,
        }

    def bits_per_byte(self, size: int | None, fraction: float = 1.0) -> float | None:
        """Return the loss in bits per byte of text; None if `size` is None or 0.

        Args:
            size: size of the whole text in UTF-8 bytes.
            fraction: fraction of the text's rows that was measured.
        """
        return self.loss / math.log(2) * self.tokens / (fraction * size) if size else None


def bits_words(bits_per_byte: float | None) -> str:
    """Return bits per byte in words, to print after the perplexity; an empty string for None."""
    return "" if bits_per_byte is None else f", {bits_per_byte:.4f} bits per byte"


def unknown_words(fraction: float) -> str:
    """Return a sentence on unknown tokens, to print instead of bits per byte."""
    return f"{fraction:.3%} of the tokens are unknown: no bits per byte, because an unknown token can replace any text"


def validation_loss(
    model: Model,
    rows: Sequence[Row],
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    skip: int = 0,
    most_tokens: int = MOST_TOKENS,
    collate: Callable[[Sequence[Row]], Batch] | None = None,
    processes: Processes | None = None,
    forward: Callable[..., torch.Tensor] | None = None,
) -> LossEstimate:
    """Return the mean loss over rows in nats per target; up to rounding, it does not depend on how rows are batched.

    The model's mode is restored afterwards, and no random numbers are used. Memory does not grow with the number of
    rows.

    Args:
        model: model of any family.
        rows: rows of one task.
        device, dtype: device of the model, and precision of its matrix multiplications.
        skip: number of targets at the start of each row that do not count; in the first row, all targets count.
        most_tokens: maximum number of tokens per forward pass; `tokens_at_once` may set a lower limit. A longer row is
            a forward pass by itself.
        collate: function that makes a batch of rows; None: `Batch.from_rows`.
        processes: processes that share the work and all get the same result; None: only this process.
        forward: function that is called instead of the model, with the same arguments; None: the model.
    """
    processes = processes or OneProcess()
    moments: list[Fraction | float] = [Fraction(0)] * 5
    with inference(model), autocast(device, dtype):
        row_groups = groups(rows, min(most_tokens, tokens_at_once(model)))
        for rows_before, group, is_counted in processes.distribute_groups(row_groups):
            batch = (collate or Batch.from_rows)(group).to(device)
            batch.loss_mask[0 if rows_before else 1 :, :skip] = False
            losses = token_losses(logits_of(model, batch, forward), batch)  # (B, T)
            if is_counted:
                nats = losses.cpu().double().sum(dim=1).numpy()  # (B,)
                counts = batch.loss_mask.sum(dim=1).cpu().numpy()  # (B,)
                moments = _add(moments, [_exact_fraction(moment) for moment in _moments(nats, counts)])
    total = functools.reduce(_add, processes.gather(moments))
    return _estimate([float(moment) for moment in total], len(rows))


def loss_on_rows(
    model: Model,
    data: TaskRows,
    most_tokens: int = MOST_TOKENS,
    forward: Callable[..., torch.Tensor] | None = None,
) -> LossEstimate:
    """Return the `validation_loss` on the rows of a task."""
    return validation_loss(model, data.rows, data.device, data.dtype, most_tokens=most_tokens, forward=forward)


def sliding_loss(
    model: Model, tokens: np.ndarray, context: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> LossEstimate:
    """Return the mean loss over windows that overlap by half.

    Every token after the first half window is predicted from at least half a context.
    """
    stride = max(1, context // 2)
    return validation_loss(model, _Overlapping(tokens, context, stride), device, dtype, skip=context - stride)


class _Overlapping(Sequence[Row]):
    """Rows of `context` + 1 ids (the last may be shorter), each starting `stride` ids after the previous one."""

    def __init__(self, tokens: np.ndarray, context: int, stride: int) -> None:
        self.tokens = tokens
        self.context = context
        self.stride = stride

    def __len__(self) -> int:
        return 1 + max(0, -(-(len(self.tokens) - 1 - self.context) // self.stride))

    def __getitem__(self, index: int) -> Row:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return Row.of_text(self.tokens[index * self.stride : index * self.stride + self.context + 1])


def _moments(nats: np.ndarray, counts: np.ndarray) -> list[float]:
    """Return the sums of s, c, s², s c and c² over rows; s is a row's total loss in nats, c its number of targets."""
    sums = [nats.sum(), counts.sum(), (nats**2).sum(), (nats * counts).sum(), (counts**2).sum()]
    return [float(value) for value in sums]


def _exact_fraction(value: float) -> Fraction | float:
    """Return a value as an exact fraction, so that sums do not depend on their order or on the number of processes.

    Infinity and NaN, which are not fractions, are returned unchanged and make the sum infinite or NaN.
    """
    return Fraction(value) if math.isfinite(value) else value


def _add(first: Sequence[Fraction | float], second: Sequence[Fraction | float]) -> list[Fraction | float]:
    return [one + other for one, other in zip(first, second, strict=True)]


def _estimate(moments: Sequence[float], rows: int) -> LossEstimate:
    """Return the mean loss with its confidence interval, from the linearized variance of a ratio of sums over rows.

    Cochran 1977, section 6.4.

    Args:
        moments: sums over all rows, as in `_moments`.
        rows: number of rows.
    """
    nats, counts, nats2, product, counts2 = moments
    total = max(1.0, counts)
    loss = nats / total
    if rows < 2:
        return LossEstimate(loss, None, int(total), rows)
    spread = max(0.0, nats2 - 2 * loss * product + loss**2 * counts2)  # sum of (s - loss c)² over all rows
    deviation = math.sqrt(rows / (rows - 1) * spread) / total
    return LossEstimate(loss, 1.96 * deviation, int(total), rows)
