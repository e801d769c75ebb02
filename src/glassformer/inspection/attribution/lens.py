"""Logit lens: apply the output layer to the residual stream after each layer (nostalgebraist 2020).

    softmax(head(norm(x_l)))

The final norm computes its statistics from x_l. A classifier pools the normalized vectors before its head. The last row
equals the model's output, bit for bit. Read early rows with care: the head was not trained on those layers, which
may represent the answer along other directions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.inspection.attribution.case import Output, run_model
from glassformer.inspection.patching import Value, patch
from glassformer.inspection.recording import record
from glassformer.inspection.sites import last_stack
from glassformer.model.evaluation_mode import evaluation_mode
from glassformer.model.transformer import Classifier, Model

TOP = 3
"""Default number of likeliest tokens to keep at each position."""


@dataclass(frozen=True, eq=False)
class Lens:
    """Logit lens of P outputs. Row 0 is read from the embedding, and row L is the model's output.

    Attributes:
        outputs: the P outputs.
        top: (L+1, P, n) ids of the likeliest tokens or classes, the likeliest first.
        probabilities: (L+1, P, n) float64, the probabilities of `top`.
        ranks: (L+1, P) the rank of each output's answer, from 1.
        losses: (L+1, P) float64, the surprisal of each output's answer, in nats.
    """

    outputs: tuple[Output, ...]
    top: Tensor
    probabilities: Tensor
    ranks: Tensor
    losses: Tensor

    @property
    def curve(self) -> list[float] | None:
        """Return the mean cross-entropy of each row (L+1) over known answers, in nats; None if no answer is known."""
        known = torch.tensor([output.known for output in self.outputs])  # (P)
        return self.losses[:, known].mean(dim=1).tolist() if known.any() else None

    @property
    def settled(self) -> list[float]:
        """Return, for each row (L+1), the fraction of outputs with the same likeliest token as in the last row."""
        same = self.top[:, :, 0] == self.top[-1:, :, 0]  # (L+1, P)
        return same.double().mean(dim=1).tolist()

    def facts(self, name: Callable[[int], str] = str) -> dict[str, Any]:
        """Return the results as a JSON-serializable dict; `name` maps the id of a token or class to its text."""
        return {
            "loss": self.curve,
            "settled": self.settled,
            "outputs": [{**vars(output), "text": name(output.answer)} for output in self.outputs],
            "layers": [
                {
                    "layer": layer,
                    "places": [
                        {
                            "rank": int(self.ranks[layer, column]),
                            "loss": float(self.losses[layer, column]),
                            "top": [
                                {"id": id, "text": name(id), "probability": probability}
                                for id, probability in zip(
                                    self.top[layer, column].tolist(),
                                    self.probabilities[layer, column].tolist(),
                                    strict=True,
                                )
                            ],
                        }
                        for column in range(len(self.outputs))
                    ],
                }
                for layer in range(len(self.top))
            ],
        }


def lens(model: Model, tokens: Tensor, outputs: Sequence[Output], target: Tensor | None = None, top: int = TOP) -> Lens:
    """Compute the logit lens of one row.

    Args:
        model: a model of any family, not post-norm.
        tokens: input ids, (1, T); for an encoder-decoder the source ids, (1, S).
        outputs: the outputs to read.
        target: target ids of an encoder-decoder, (1, T).
        top: number of likeliest tokens or classes to keep; if it exceeds their total number, all are kept.

    Raises:
        GlassError: the model is post-norm, the ids do not fit it, or the residual streams exceed the memory budget of a
            recording.
    """
    refuse_post(model)
    name, stack = list(model.stacks.items())[-1]
    stream_names = [f"{name}.{layer}.resid" for layer in range(len(stack.blocks) + 1)]
    streams = record(model, tokens, target, keep=stream_names)
    answers = torch.tensor([output.answer for output in outputs])  # (P)
    rows = []
    for stream_name in stream_names:
        logits = read_stream(model, streams[stream_name], tokens, target)[0]  # (T, V) or (C)
        logits = logits[None] if logits.dim() == 1 else logits[[output.place for output in outputs]]  # (P, V)
        log_p = logits.double().log_softmax(dim=-1)  # (P, V)
        answer_log_p = log_p.gather(1, answers[:, None])  # (P, 1)
        best = log_p.topk(min(top, log_p.shape[1]), dim=-1)  # (P, n)
        ranks = 1 + (log_p > answer_log_p).sum(dim=1)  # (P)
        rows.append((best.indices, best.values.exp(), ranks, -answer_log_p[:, 0]))
    ids, probabilities, ranks, losses = (torch.stack(each) for each in zip(*rows, strict=True))
    return Lens(tuple(outputs), ids, probabilities, ranks, losses)


def read_stream(model: Model, x: Tensor, tokens: Tensor, target: Tensor | None = None) -> Tensor:
    """Apply the final norm and the head to a residual stream, (1, T, D), and return the logits on the CPU.

    Args:
        model: as for `lens`.
        x: residual stream of the stack that yields the logits, (1, T, D).
        tokens, target: input ids of the model; only a classifier uses them.

    Returns:
        Logits, (1, T, V), or (1, C) for a classifier.
    """
    x = x.to(model.embedding.tokens.weight.device)
    if isinstance(model, Classifier):  # the model pools the positions
        with patch(model, {f"enc.{len(model.stack.blocks)}.resid": Value(x)}):
            return run_model(model, tokens, target)  # (1, C)
    with evaluation_mode(model), torch.inference_mode(False), torch.no_grad():
        logits: Tensor = model.head(last_stack(model).norm(x), model.embedding)  # (1, T, V)
        return logits.cpu()


def refuse_post(model: Model) -> None:
    """Raise a `GlassError` if the model is post-norm: no residual stream runs through to its output layer."""
    if model.config.norm_order == "post":
        raise GlassError(
            "model.norm_order = post: each block ends with a norm, so no residual stream runs through to the output "
            "layer, which therefore cannot decode earlier layers",
            "Give a run with model.norm_order = pre or output.",
        )
