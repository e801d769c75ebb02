"""The case to attribute: the tokens that a model reads of a text, and the outputs to explain."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.base.wording import span
from glassformer.generation.decoding import check_finite
from glassformer.inspection.explain.subject import Subject
from glassformer.inspection.trace import Trace, check_given, trace
from glassformer.model.evaluation_mode import evaluation_mode
from glassformer.model.transformer import Classifier, EncoderDecoder, Model


@dataclass(frozen=True)
class Output:
    """One answer of a model.

    Attributes:
        place: where in the row its logits stand; of a classifier, which has one answer, 0.
        reads: the places whose last vectors the head reads: that one, or all whose mean a classifier reads.
        answer: the token, or the class, that is explained.
        known: whether the answer stands in the text; otherwise it is the likeliest, or one that was asked for.
    """

    place: int
    reads: tuple[int, ...]
    answer: int
    known: bool


@dataclass(frozen=True, eq=False)
class AttributionCase:
    """A model with what it reads, and the outputs that are explained.

    Attributes:
        model: of any family.
        tokens: (1, T), of an encoder-decoder the source's (1, S).
        target: (1, T) of an encoder-decoder, else None.
        outputs: at least one.
    """

    model: Model
    tokens: Tensor
    target: Tensor | None
    outputs: tuple[Output, ...]

    @property
    def row(self) -> Tensor:
        """(1, T) what the stack reads whose vectors become logits."""
        return self.tokens if self.target is None else self.target

    def trace(self) -> Trace:
        """Run the model and return a trace of its forward pass."""
        return trace(self.model, self.tokens, self.target)

    def logits(self, tokens: Tensor | None = None, target: Tensor | None = None) -> Tensor:
        """(B, P, V), on the CPU: of the outputs, for these tokens (B, T) or for other ones of the same shape."""
        tokens = self.tokens if tokens is None else tokens
        target = self.target if target is None else target
        logits = run_model(self.model, tokens, target)  # (B, T, V) or (B, C)
        if logits.dim() == 2:
            return logits[:, None]  # (B, 1, C)
        return logits[:, [output.place for output in self.outputs]]  # (B, P, V)


def run_model(model: Model, tokens: Tensor, target: Tensor | None = None) -> Tensor:
    """The logits of a plain pass, on the CPU: ids (B, T) -> (B, T, V), or (B, C) of a classifier."""
    tokens, target, _ = check_given(model, tokens, target, None)
    with evaluation_mode(model), torch.inference_mode(False), torch.no_grad():
        if isinstance(model, EncoderDecoder):
            assert target is not None
            logits: Tensor = model(tokens, target)  # (B, T, V)
        else:
            logits = model(tokens)  # (B, T, V) or (B, C)
    check_finite(logits)
    return logits.cpu()


def case_of(
    subject: Subject, answer: int | None = None, end: int | None = None, everywhere: bool = False
) -> AttributionCase:
    """The outputs of a subject: every place of a text that is continued or translated, a filler's holes, a label.

    Args:
        subject: the model and what it reads.
        answer: a token or class to explain at every place; None: what stands in the text, or the likeliest.
        end: of an encoder-decoder: the token that ends its target, if all of the target was given.
        everywhere: of a filler: all places, not the holes alone.
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
        found = int(logits.argmax()) if answer is None else answer
        return AttributionCase(model, tokens, target, (Output(0, reads, found, False),))
    causal = model.config.family != "encoder"
    following = [*row[1:], end] if causal else [None] * len(row)
    outputs = []
    for place in range(len(row)) if causal or everywhere else subject.places:
        known = answer is None and following[place] is not None
        chosen = following[place] if answer is None else answer
        outputs.append(Output(place, (place,), int(logits[place].argmax()) if chosen is None else chosen, known))
    return AttributionCase(model, tokens, target, tuple(outputs))


def check_number(what: str, number: int, count: int) -> int:
    """The number of a layer or place, if there are so many.

    Raises:
        GlassError: there is none of that number.
    """
    if not 0 <= number < count:
        raise GlassError(f"there is no {what} {number}", f"Give {span(0, count - 1)}.")
    return number
