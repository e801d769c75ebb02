"""Attribution cases: a model, its input tokens, and the outputs to explain."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.base.wording import span
from glassformer.generation.decoding import check_finite
from glassformer.inspection.explain.subject import Subject
from glassformer.inspection.sites import last_stack
from glassformer.inspection.trace import Trace, check_inputs, trace
from glassformer.model.evaluation_mode import evaluation_mode
from glassformer.model.transformer import Classifier, Model


@dataclass(frozen=True)
class Output:
    """One output of a model, to be explained.

    Attributes:
        place: position of the output's logits in the row; 0 for a classifier.
        reads: positions whose final vectors the head reads: `place`, or all positions that a classifier pools.
        answer: the token or class to explain.
        known: True if the answer is the next token of the text or target, False if it was requested or is the
            likeliest answer.
    """

    place: int
    reads: tuple[int, ...]
    answer: int
    known: bool


@dataclass(frozen=True, eq=False)
class AttributionCase:
    """Model, its input, and the outputs to explain.

    Attributes:
        model: a model of any family.
        tokens: input ids, (1, T); for an encoder-decoder the source ids, (1, S).
        target: target ids of an encoder-decoder, (1, T); otherwise None.
        outputs: the outputs to explain, at least one.
    """

    model: Model
    tokens: Tensor
    target: Tensor | None
    outputs: tuple[Output, ...]

    @property
    def row(self) -> Tensor:
        """Return the input ids of the stack that yields the logits, (1, T)."""
        return self.tokens if self.target is None else self.target

    def trace(self) -> Trace:
        """Run the model and return the trace of its forward pass."""
        return trace(self.model, self.tokens, self.target)

    def logits(self, tokens: Tensor | None = None, target: Tensor | None = None) -> Tensor:
        """Return the logits of the P outputs on the CPU, (B, P, V), or (B, 1, C) for a classifier.

        Args:
            tokens, target: input ids, (B, T) or (B, S), and target ids, (B, T); None: those of the case.
        """
        tokens = self.tokens if tokens is None else tokens
        target = self.target if target is None else target
        logits = run_model(self.model, tokens, target)  # (B, T, V) or (B, C)
        if logits.dim() == 2:
            return logits[:, None]  # (B, 1, C)
        return logits[:, [output.place for output in self.outputs]]  # (B, P, V)


def run_model(model: Model, tokens: Tensor, target: Tensor | None = None) -> Tensor:
    """Return the logits of a forward pass, on the CPU: ids (B, T) -> (B, T, V), or (B, C) for a classifier."""
    inputs = check_inputs(model, tokens, target, None)
    with evaluation_mode(model), torch.inference_mode(False), torch.no_grad():
        logits = model.run(inputs)  # (B, T, V) or (B, C)
    check_finite(logits)
    return logits.cpu()


def case_of(
    subject: Subject, answer: int | None = None, end: int | None = None, everywhere: bool = False
) -> AttributionCase:
    """Return the attribution case of a subject.

    The outputs are all positions of a decoder (in an encoder-decoder, those of the target), the [MASK] positions of a
    masked language model, or a classifier's label.

    Args:
        subject: the model and its input.
        answer: a token or class to explain at every position; None: the next token of the text or target or, without a
            next token, the likeliest answer that is not in `subject.special`.
        end: token that follows the last position of a decoder; None: unknown, so that the likeliest token is explained
            there.
        everywhere: whether to explain all positions of a masked language model instead of the [MASK] positions alone.
    """
    model = subject.model
    tokens = torch.tensor([subject.ids])  # (1, T)
    target = None if subject.target_ids is None else torch.tensor([subject.target_ids])  # (1, T)
    row = list(subject.ids if subject.target_ids is None else subject.target_ids)
    logits = run_model(model, tokens, target)[0].index_fill(
        -1, torch.tensor(subject.special, dtype=torch.long), -torch.inf
    )
    if isinstance(model, Classifier):
        reads = (0,) if model.config.pooling == "first" else tuple(range(len(row)))
        label = int(logits.argmax()) if answer is None else answer
        return AttributionCase(model, tokens, target, (Output(0, reads, label, False),))
    causal = last_stack(model).causal
    next_ids = [*row[1:], end] if causal else [None] * len(row)
    outputs = []
    for position in range(len(row)) if causal or everywhere else subject.positions:
        known = answer is None and next_ids[position] is not None
        answer_id = next_ids[position] if answer is None else answer
        outputs.append(
            Output(position, (position,), int(logits[position].argmax()) if answer_id is None else answer_id, known)
        )
    return AttributionCase(model, tokens, target, tuple(outputs))


def check_number(what: str, number: int, count: int) -> int:
    """Return `number` if it is in [0, count); the error calls it `what`, such as "layer".

    Raises:
        GlassError: `number` is out of range.
    """
    if not 0 <= number < count:
        raise GlassError(f"there is no {what} {number}", f"Give {span(0, count - 1)}.")
    return number
