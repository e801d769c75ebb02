"""Compute the losses of training and evaluation, in nats.

Training uses `TrainingLoss`. For all models except `Classifier`, it computes logits only at positions that the loss
mask includes, one chunk of rows at a time. `summed_loss` computes the same sum from the logits of all positions, for
classifiers and as the reference in tests. `token_losses` returns the loss of each position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from glassformer.model.transformer import Classifier, Decoder, Encoder, EncoderDecoder, Model
from glassformer.text.batches import Batch

LOGITS_AT_ONCE = 1 << 22
"""Maximum number of logits per forward pass when the loss of each position is computed; 16 MB in float32."""
LOSS_LOGITS = {"cpu": 1 << 21}
"""Maximum number of logits per chunk of the training loss, by device. Larger chunks are no faster on a CPU, except with
a vocabulary of 32,000, where doubling the size makes a step 10% faster. A million logits take 30 to 50 MB of memory."""
MOST_LOSS_LOGITS = 1 << 26  # for other devices, which need larger matrix multiplications to stay busy


class TrainingLoss(nn.Module):
    """A model and its loss as one module, so that one wrapper (DDP, `torch.compile`) covers both.

    Args:
        model: a model of any family.
        smoothing: fraction of the target's probability to spread evenly over all classes (Szegedy et al. 2016,
            section 7).
    """

    def __init__(self, model: Model, smoothing: float = 0.0) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, batch: Batch, targets_of_step: int = 1) -> Tensor:
        """Return the summed cross-entropy of the targets in the loss mask, divided by `targets_of_step`.

        The result is in nats and has shape ().

        Args:
            batch: a batch of a task that suits the model.
            targets_of_step: divisor of the sum; the number of targets in the whole step gives all of them equal weight.
        """
        if isinstance(self.model, Classifier):
            return summed_loss(logits_of(self.model, batch), batch, self.smoothing) / targets_of_step
        x = hidden_states_of(self.model, batch).flatten(0, 1)  # (B * T, D)
        targets = batch.targets.flatten()  # (B * T)
        if batch.n_targets < len(targets):  # masked positions need no logits
            counted = batch.loss_mask.flatten().nonzero()[:, 0]  # (N)
            x = x.index_select(0, counted)  # (N, D)
            targets = targets[counted]  # (N)
        head = self.model.head
        features = head.features(x)  # (N, D)
        matrix = head.matrix(self.model.embedding)  # (V, D)
        return linear_cross_entropy(features, matrix, head.bias, targets, targets_of_step, self.smoothing)


def hidden_states_of(model: Decoder | Encoder | EncoderDecoder, batch: Batch) -> Tensor:
    """Return the hidden states (B, T, D) that the head turns into logits; padding is masked as in `logits_of`."""
    if isinstance(model, EncoderDecoder):
        assert batch.source is not None
        return model.hidden_states(batch.source, batch.inputs, batch.source_attention_mask)  # (B, T, D)
    if isinstance(model, Encoder):
        return model.hidden_states(batch.inputs, batch.attention_mask)  # (B, T, D)
    return model.hidden_states(batch.inputs)  # (B, T, D)


def linear_cross_entropy(
    x: Tensor, matrix: Tensor, bias: Tensor | None, targets: Tensor, divisor: int = 1, smoothing: float = 0.0
) -> Tensor:
    """Return the summed cross-entropy of the logits `x @ matrix.T + bias`, divided by `divisor`, in nats; shape ().

    Args:
        x: (N, D) features.
        matrix: (V, D) weight.
        bias: (V) bias, or None.
        targets: (N) int64 target classes.
        divisor: divisor of the sum; gradients are divided before they are rounded to the precision of the matrix
            multiplications.
        smoothing: as in `TrainingLoss`.
    """
    needs_gradient = torch.is_grad_enabled()
    loss: Tensor = _LinearCrossEntropy.apply(x, matrix, bias, targets, divisor, smoothing, needs_gradient)
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    """Autograd function that computes loss and gradients in chunks of rows, with one chunk of logits in memory.

    The logits of a whole step would be by far its largest tensor. Only the loss reads them, so the gradients of a row
    can be computed together with its loss, and then the logits can be discarded. With p the softmax of the logits
    and q the target distribution (1 at the target, or smoothed), the loss is -sum(q ln p), and its gradient with
    respect to the logits is p - q; both are divided by `divisor`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        matrix: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        divisor: int,
        smoothing: float,
        needs_gradient: bool,
    ) -> Tensor:
        device = x.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        precise_dtype = torch.promote_types(dtype, torch.float32)
        weight = matrix.to(dtype)  # (V, D)
        cast_bias = None if bias is None else bias.to(dtype)  # (V)
        V = len(matrix)
        total = x.new_zeros((), dtype=precise_dtype)  # ()
        x_gradient = torch.empty_like(x)  # (N, D)
        matrix_gradient = None
        if ctx.needs_input_grad[1]:  # it may be frozen
            matrix_gradient = torch.zeros_like(matrix, dtype=precise_dtype)  # (V, D)
        bias_gradient = None if bias is None else torch.zeros_like(bias, dtype=precise_dtype)  # (V)

        chunk_rows = max(1, LOSS_LOGITS.get(device, MOST_LOSS_LOGITS) // V)
        for first in range(0, len(x), chunk_rows):
            chunk = x[first : first + chunk_rows].to(dtype)  # (R, D)
            chunk_targets = targets[first : first + chunk_rows, None]  # (R, 1)
            log_p = linear(chunk, weight, cast_bias).log_softmax(dim=-1, dtype=precise_dtype)  # (R, V)
            total -= (1 - smoothing) * log_p.gather(1, chunk_targets).sum()
            if smoothing:
                total -= smoothing / V * log_p.sum()
            if not needs_gradient:
                continue
            gradient = log_p.exp_()  # (R, V): p
            if smoothing:
                gradient -= smoothing / V  # (R, V)
            gradient.scatter_add_(
                1, chunk_targets, gradient.new_full((), smoothing - 1).expand(chunk_targets.shape)
            )  # (R, V): p - q
            if dtype == precise_dtype:
                gradient = gradient.div_(divisor)  # (R, V)
            else:  # divided in `precise_dtype` and rounded once, in one pass over memory
                gradient = torch.div(gradient, divisor, out=torch.empty_like(gradient, dtype=dtype))  # (R, V)
            x_gradient[first : first + chunk_rows] = gradient @ weight  # (R, D)
            if matrix_gradient is not None and dtype == precise_dtype:
                matrix_gradient.addmm_(gradient.T, chunk)  # (V, D)
            elif matrix_gradient is not None:
                matrix_gradient += gradient.T @ chunk  # (V, D)
            if bias_gradient is not None:
                bias_gradient += gradient.sum(dim=0)  # (V)

        ctx.dtypes = (matrix.dtype, None if bias is None else bias.dtype)
        ctx.save_for_backward(x_gradient, matrix_gradient, bias_gradient)
        return total / divisor

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (grad_output,) = gradients  # ()
        x_gradient, matrix_gradient, bias_gradient = ctx.saved_tensors  # (N, D), (V, D), (V)
        matrix_dtype, bias_dtype = ctx.dtypes
        grad_matrix = None if matrix_gradient is None else (matrix_gradient * grad_output).to(matrix_dtype)  # (V, D)
        grad_bias = None if bias_gradient is None else (bias_gradient * grad_output).to(bias_dtype)  # (V)
        return x_gradient * grad_output, grad_matrix, grad_bias, None, None, None, None


def logits_of(model: Model, batch: Batch, forward: Callable[..., Tensor] | None = None) -> Tensor:
    """Return the logits of a batch: (B, T, V), or (B, C) for a classifier.

    Padding is on the right, where the causal mask of a decoder hides it. Bidirectional attention and cross-attention
    need a padding mask. `forward`, such as a DDP wrapper, is called instead of the model if it is given.
    """
    forward = model if forward is None else forward
    if isinstance(model, EncoderDecoder):
        return forward(batch.source, batch.inputs, batch.source_attention_mask)  # (B, T, V)
    if isinstance(model, Encoder | Classifier):
        return forward(batch.inputs, batch.attention_mask)  # (B, T, V) or (B, C)
    return forward(batch.inputs)  # (B, T, V)


def token_losses(logits: Tensor, batch: Batch) -> Tensor:
    """Return -ln p(target) at every position, (B, T) or (B, 1), in nats; 0 where the loss mask is False."""
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))  # (B, T, V)
    flat = precise.reshape(-1, logits.shape[-1])  # (B * T, V)
    losses = cross_entropy(flat, batch.targets.flatten(), reduction="none")  # (B * T)
    return losses.view_as(batch.targets) * batch.loss_mask  # (B, T)


def summed_loss(logits: Tensor, batch: Batch, smoothing: float = 0.0) -> Tensor:
    """Return the summed cross-entropy of the targets in the loss mask, in nats.

    Without smoothing, the result is the sum of `token_losses`.

    `smoothing` is the fraction of the target's probability to spread evenly over all classes (Szegedy et al. 2016,
    section 7).
    """
    targets = batch.targets.masked_fill(~batch.loss_mask, -100)  # (B, T)
    flat = logits.float().reshape(-1, logits.shape[-1])  # (B * T, V)
    return cross_entropy(flat, targets.flatten(), ignore_index=-100, reduction="sum", label_smoothing=smoothing)


def tokens_at_once(model: Model) -> int:
    """Return the maximum number of tokens per forward pass, from `LOGITS_AT_ONCE`.

    A classifier has few logits, so four times the width of its feed-forward layers is counted for each token.
    """
    per_token = 4 * model.config.F if isinstance(model, Classifier) else model.vocab_size
    return max(1, LOGITS_AT_ONCE // per_token)
