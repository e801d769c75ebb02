"""Direct logit attribution over a whole text: the contribution of each part of the model to each answer's logit.

`inspection.receipt.parts` derives the exact sum. This module applies it at many positions at once, splits a
feed-forward layer by neurons, and splits the residual stream into its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.inspection.attribution.case import Output, check_number
from glassformer.inspection.receipt.parts import (
    LogitPart,
    double,
    final_directions,
    head_rows,
    output_norm,
    refuse_inexact,
    split_logits,
    split_stream,
)
from glassformer.inspection.sites import last_stack
from glassformer.inspection.trace import Trace
from glassformer.model.transformer import Block, Model


@dataclass(frozen=True, eq=False)
class LogitSplit:
    """Logits of P answers, each as a sum of N contributions.

    Attributes:
        outputs: the P outputs.
        against: token or class whose logit is subtracted from each answer's; None: no logit is subtracted.
        parts: the N parts, without a split by source; `value` is the sum of a part's contributions to all outputs.
        values: (N, P) float64, the contribution of each part to each output.
        logits: (P) float64, logits of the answers in the forward pass, minus the logit of `against` if given.
            They equal the sums of `values` over the parts, up to the rounding of the forward pass.
    """

    outputs: tuple[Output, ...]
    against: int | None
    parts: tuple[LogitPart, ...]
    values: Tensor
    logits: Tensor

    @property
    def names(self) -> list[str]:
        """Return the display names of the N parts."""
        return [part.name for part in self.parts]

    @property
    def error(self) -> float:
        """Return the largest absolute difference between the sum of an output's contributions and its logit."""
        return float((self.values.sum(dim=0) - self.logits).abs().max())

    def grouped(self) -> dict[str, Tensor]:
        """Return contributions (P) by group: embedding, each attention and feed-forward layer, and biases.

        The last group, "biases", has the biases of the final norm and of the head, if there are any.
        """
        groups: dict[str, Tensor] = {}
        for part, values in zip(self.parts, self.values, strict=True):
            name = _group_name(part)
            groups[name] = groups.get(name, torch.zeros_like(values)) + values
        return groups

    def facts(self, name: Callable[[int], str] = str) -> dict[str, Any]:
        """Return the results as a JSON-serializable dict; `name` maps the id of a token or class to its text."""
        return {
            "against": None if self.against is None else {"id": self.against, "text": name(self.against)},
            "outputs": [
                {**vars(output), "text": name(output.answer), "logit": logit}
                for output, logit in zip(self.outputs, self.logits.tolist(), strict=True)
            ],
            "parts": [
                {"name": part.name, "kind": part.kind, "layer": part.layer, "head": part.head, "values": values}
                for part, values in zip(self.parts, self.values.tolist(), strict=True)
            ],
            "error": self.error,
        }


def split_outputs(model: Model, trace: Trace, outputs: Sequence[Output], against: int | None = None) -> LogitSplit:
    """Split the logit of each answer into the contributions of all parts.

    Args:
        model: a model of any family, not post-norm, and without a transform in its head.
        trace: forward pass of the model.
        outputs: the outputs to split.
        against: token or class whose logit is subtracted from each answer's.

    Raises:
        GlassError: the model's logits have no exact split.
    """
    refuse_inexact(model)
    rows, output_index, w, bias = _read_positions(model, outputs, against)
    parts = []
    values = []
    for part in split_logits(model, trace, rows, w, bias):
        parts.append(
            LogitPart(part.kind, float(part.values.sum()), part.layer, part.head)
        )  # without the split by source, which takes (R, S) numbers for each part
        values.append(torch.zeros(len(outputs), dtype=torch.float64).index_add(0, output_index, part.values))  # (P)
    logits = trace.logits[0].cpu().double()  # (T, V) or (C)
    logits = logits[None] if logits.dim() == 1 else logits[[output.place for output in outputs]]  # (P, V)
    answer_logits = logits[torch.arange(len(outputs)), [output.answer for output in outputs]]  # (P)
    answer_logits = answer_logits if against is None else answer_logits - logits[:, against]  # (P)
    return LogitSplit(tuple(outputs), against, tuple(parts), torch.stack(values), answer_logits)


def split_output(model: Model, trace: Trace, output: Output, against: int | None = None) -> list[LogitPart]:
    """Split the logit of one answer into the contributions of all parts; split heads and embeddings by token, too.

    For the arguments and errors, see `split_outputs`.
    """
    refuse_inexact(model)
    rows, _, w, bias = _read_positions(model, [output], against)
    return [part.part() for part in split_logits(model, trace, rows, w, bias)]


def split_residual(model: Model, trace: Trace, position: int) -> list[LogitPart]:
    """Split the residual stream x before the final norm into the fractions part · x / ‖x‖², which add up to 1.

    Args:
        model, trace: as for `split_outputs`.
        position: position in the row.

    Raises:
        GlassError: the model's logits have no exact split, or the position is out of range.
    """
    refuse_inexact(model)
    x = double(
        trace.stack.blocks[-1].after[0, [check_number("position", position, trace.stack.ids.shape[1])]]
    )  # (1, D)
    return [part.part() for part in split_stream(model, trace, [position], x / x.square().sum())]


@dataclass(frozen=True, eq=False)
class Neurons:
    """Contribution of a feed-forward layer to one logit, by neuron.

    Attributes:
        layer: layer number, from 0.
        values: (F) float64, contribution of each neuron: its activation times the effect of its output weights.
        bias: contribution of the last projection's bias.
    """

    layer: int
    values: Tensor
    bias: float

    @property
    def total(self) -> float:
        """Return the contribution of the whole layer, equal to its contribution in `split_output` up to rounding."""
        return float(self.values.sum()) + self.bias

    def facts(self) -> dict[str, Any]:
        """Return the results as a JSON-serializable dict."""
        return {"layer": self.layer, "total": self.total, "bias": self.bias, "values": self.values.tolist()}


def split_neurons(model: Model, trace: Trace, output: Output, layer: int, against: int | None = None) -> Neurons:
    """Split the contribution of one feed-forward layer by neuron.

    The output direction is multiplied by the last projection once, (D) -> (F), so that the (F, D) outputs of all
    neurons need not be stored.

    Args:
        model, trace, against: as for `split_outputs`.
        output: the output whose logit is split.
        layer: layer number in the stack that yields the logits, from 0.

    Raises:
        GlassError: the model's logits have no exact split, the layer is out of range, or its feed-forward layer is not
            a `FeedForward`.
    """
    refuse_inexact(model)
    block = last_stack(model).blocks[check_number("layer", layer, len(trace.stack.blocks))]
    assert isinstance(block, Block)
    feedforward_trace = trace.stack.blocks[layer].feedforward
    if feedforward_trace.hidden is None:
        raise GlassError(
            f"layer {layer} has a feed-forward layer of the type {type(block.feedforward).__name__}, "
            "whose neurons are not known",
            "Choose another layer, or split the logit into the contributions of the layers.",
        )
    down = block.feedforward.down
    rows, _, w, _ = _read_positions(model, [output], against)
    u = final_directions(model, trace, rows, w)  # (R, D)
    u, _ = output_norm(block.norm_order, block.feedforward_norm, feedforward_trace.output, rows, u)  # (R, D)
    values = (double(feedforward_trace.hidden[0, rows]) * (u @ double(down.weight))).sum(dim=0)  # (F)
    bias = 0.0 if down.bias is None else float((u @ double(down.bias)).sum())
    return Neurons(layer, values, bias)


def _read_positions(
    model: Model, outputs: Sequence[Output], against: int | None
) -> tuple[list[int], Tensor, Tensor, Tensor | None]:
    """Return the R positions that the outputs read, and for each position the index of its output, w and bias.

    The index is (R). `w` (R, D) and `bias` (R), or None without a bias, are the arguments of `split_logits`; an output
    that pools n positions has 1 / n of its weights and bias at each position.
    """
    rows = [position for output in outputs for position in output.reads]
    output_index = torch.tensor([number for number, output in enumerate(outputs) for _ in output.reads])  # (R)
    fraction = torch.tensor([1.0 / len(output.reads) for output in outputs], dtype=torch.float64)[output_index]  # (R)
    w, bias = head_rows(model, [output.answer for output in outputs], against)  # (P, D), (P)
    return (
        rows,
        output_index,
        w[output_index] * fraction[:, None],
        None if bias is None else bias[output_index] * fraction,
    )


def _group_name(part: LogitPart) -> str:
    if part.kind in ("token embedding", "position embedding", "embedding norm bias"):
        return "embedding"
    if part.layer is None:
        return "biases"
    if "cross" in part.kind:
        return f"{part.layer} cross"
    if "feed" in part.kind:
        return f"{part.layer} feed-forward"
    return f"{part.layer} attention"
