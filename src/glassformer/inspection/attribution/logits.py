"""Logit contributions over a whole text: what every part gives to every answer. See `inspection.receipt.parts`.

The sum, its norms and its proof are those of the receipt; here it is taken at many places at once, a feed-forward layer
is split by its neurons, and the residual stream itself by its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

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
    stack_of,
)
from glassformer.inspection.trace import Trace
from glassformer.model.transformer import Block, Model


@dataclass(frozen=True, eq=False)
class LogitSplit:
    """The logits of P answers, each as a sum of N parts.

    Attributes:
        outputs: (P).
        against: whose logit is taken off each; None: nothing is.
        parts: (N) what they are, each with its value at all places together.
        values: (N, P) float64, what each part gives.
        logits: (P) float64, what the model gave: the sums, up to its own rounding.
    """

    outputs: tuple[Output, ...]
    against: int | None
    parts: tuple[LogitPart, ...]
    values: Tensor
    logits: Tensor

    @property
    def names(self) -> list[str]:
        """(N) the parts, for people."""
        return [part.name for part in self.parts]

    @property
    def error(self) -> float:
        """The largest distance of a sum from its logit."""
        return float((self.values.sum(dim=0) - self.logits).abs().max())

    def grouped(self) -> dict[str, Tensor]:
        """Fewer parts, each (P): the embedding, the attentions and feed-forward layers with their biases, the rest."""
        groups: dict[str, Tensor] = {}
        for part, values in zip(self.parts, self.values, strict=True):
            name = _group(part)
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
        model: any of the families, not post-norm, and without a transform in its head.
        trace: of the forward pass.
        outputs: the answers.
        against: a token or class whose logit is taken off.

    Raises:
        GlassError: the model's logits have no exact split.
    """
    refuse_inexact(model)
    rows, owner, w, bias = _read(model, outputs, against)
    found = []
    columns = []
    for share in split_logits(model, trace, rows, w, bias):
        found.append(
            LogitPart(share.kind, float(share.values.sum()), share.layer, share.head)
        )  # sources would take R S each
        columns.append(torch.zeros(len(outputs), dtype=torch.float64).index_add(0, owner, share.values))  # (P)
    logits = trace.logits[0].cpu().double()  # (T, V) or (C)
    logits = logits[None] if logits.dim() == 1 else logits[[output.place for output in outputs]]  # (P, V)
    own = logits[torch.arange(len(outputs)), [output.answer for output in outputs]]  # (P)
    own = own if against is None else own - logits[:, against]  # (P)
    return LogitSplit(tuple(outputs), against, tuple(found), torch.stack(columns), own)


def split_output(model: Model, trace: Trace, output: Output, against: int | None = None) -> list[LogitPart]:
    """Split the logit of one answer, heads and embeddings also by the tokens that they read.

    Args and errors: as of `split_outputs`.
    """
    refuse_inexact(model)
    rows, _, w, bias = _read(model, [output], against)
    return [share.part() for share in split_logits(model, trace, rows, w, bias)]


def split_residual(model: Model, trace: Trace, place: int) -> list[LogitPart]:
    """Return each part's share of the stream x before the final norm: part · x / ‖x‖². The shares add up to 1.

    Args:
        model, trace: as for `split_outputs`.
        place: in the row.

    Raises:
        GlassError: the stream is no sum, or there is no such place.
    """
    refuse_inexact(model)
    x = double(trace.stack.blocks[-1].after[0, [check_number("place", place, trace.stack.ids.shape[1])]])  # (1, D)
    return [share.part() for share in split_stream(model, trace, [place], x / x.square().sum())]


@dataclass(frozen=True, eq=False)
class Neurons:
    """A feed-forward layer's part of one logit, by its hidden channels.

    Attributes:
        layer: which, from 0.
        values: (F) float64, what each gives: its activation times what its column of the last projection is worth.
        bias: what the last projection's bias gives.
    """

    layer: int
    values: Tensor
    bias: float

    @property
    def total(self) -> float:
        """Return the contribution of the layer, as `split_output` has it."""
        return float(self.values.sum()) + self.bias

    def facts(self) -> dict[str, Any]:
        """Return the results as a JSON-serializable dict."""
        return {"layer": self.layer, "total": self.total, "bias": self.bias, "values": self.values.tolist()}


def split_neurons(model: Model, trace: Trace, output: Output, layer: int, against: int | None = None) -> Neurons:
    """The neurons of one feed-forward layer.

    The direction goes back through the last projection once, (D) -> (F): what each neuron writes, (F, D), is never
    made.

    Args:
        model, trace, output, against: as for `split_outputs`.
        layer: of the stack whose vectors become logits.

    Raises:
        GlassError: the model's logits have no exact split, or there is no such layer.
    """
    refuse_inexact(model)
    block = stack_of(model).blocks[check_number("layer", layer, len(trace.stack.blocks))]
    assert isinstance(block, Block)
    made = trace.stack.blocks[layer].feedforward
    down = block.feedforward.down
    rows, _, w, _ = _read(model, [output], against)
    u = final_directions(model, trace, rows, w)  # (R, D)
    u, _ = output_norm(block.norm_order, block.feedforward_norm, made.output, rows, u)  # (R, D)
    values = (double(made.hidden[0, rows]) * (u @ double(down.weight))).sum(dim=0)  # (F)
    bias = 0.0 if down.bias is None else float((u @ double(down.bias)).sum())
    return Neurons(layer, values, bias)


def _read(
    model: Model, outputs: Sequence[Output], against: int | None
) -> tuple[list[int], Tensor, Tensor, Tensor | None]:
    """The R places that are read, whose they are (R), and w (R, D) and bias (R) there, as `split_logits` has them."""
    rows = [place for output in outputs for place in output.reads]
    owner = torch.tensor([number for number, output in enumerate(outputs) for _ in output.reads])  # (R)
    share = torch.tensor([1.0 / len(output.reads) for output in outputs], dtype=torch.float64)[owner]  # (R)
    w, bias = head_rows(model, [output.answer for output in outputs], against)  # (P, D), (P)
    return rows, owner, w[owner] * share[:, None], None if bias is None else bias[owner] * share


def _group(part: LogitPart) -> str:
    if part.kind in ("token embedding", "position embedding", "embedding norm bias"):
        return "embedding"
    if part.layer is None:
        return "biases"
    if "cross" in part.kind:
        return f"{part.layer} cross"
    if "feed" in part.kind:
        return f"{part.layer} feed-forward"
    return f"{part.layer} attention"
