"""Logit receipt (direct logit attribution): a logit, or the difference of two, as a sum over the model's parts.

The response::

    {"row": [tokens], "source": [tokens] | null, "pass": "observed", "places": [3, 4], "place": 4, "reads": [4],
     "token": {"id": 17, "text": " the", "known": false}, "against": {"id", "text"} | null,
     "candidates": [{"id": 17, "text": " the", "probability": 0.4, "logit": 7.5}],
     "parts": [{"name": "layer 0 head 1", "kind": "head", "layer": 0, "head": 1, "value": 1.25, "split": true}],
     "sum": 7.5, "logit": 7.5, "residual": 1e-7,
     "part": 3 | null, "cross": false, "sources": [0.1, …] | null, "own": [0.4, …], "memory": [0.2, …] | null}

`parts` are in the order of the model, and their values add up to `sum`; `residual` is `sum` minus the logit, a rounding
error. `sources` splits the contribution of the chosen part by the token that the contribution comes from; `cross` is
true if these are tokens of the encoder's source. `own` and `memory` are the totals over all parts that are split in
this way, for each token of the row and of the source. Models whose logits have no exact split are refused with the
reason.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import Name, PageView, TextQuestion
from glassformer.app.server.views.text_case import (
    case_at,
    case_script,
    column_at,
    labels_of,
    refuse_long,
)
from glassformer.generation.sampling import ranked
from glassformer.inspection.attribution import AttributionCase, Output, split_output
from glassformer.inspection.attribution.case import check_number
from glassformer.inspection.receipt.parts import CROSS, LogitPart, refuse_inexact, total

CANDIDATES = 12
"""Maximum number of likeliest answers to list."""


class ReceiptQuestion(TextQuestion):
    """Request for the receipt of a logit.

    Attributes:
        place: position of the answer; None: the last one.
        token: token or label to explain, by text or id; None: the next token of the text, or else the likeliest one.
        against: token or label whose logit is subtracted; None: the logit of `token` alone is explained.
        part: index of the part whose split by tokens is returned; None: no split is returned.
    """

    place: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    token: Name | None = None
    against: Name | None = None
    part: Annotated[int, Field(ge=0, le=1_000_000)] | None = None


def answer(opened: ServedModel, question: ReceiptQuestion) -> dict[str, Any]:
    """Return the contribution of each part to a logit, or to the difference of two, and their sum."""
    refuse_inexact(opened.model.model)
    subject = opened.subject(question.text, question.target)
    against = None if question.against is None else opened.model.output_id(question.against)
    refuse_long(subject)
    token = None if question.token is None else opened.model.output_id(question.token)
    key = "receipt", question.text, question.target, question.place, token, against
    case, output, parts, logits = opened.cached(key, lambda: _compute(opened, question, token, against), _nbytes)
    logit = float(logits[output.answer] - (0.0 if against is None else logits[against]))
    chosen_part = None if question.part is None else parts[check_number("part", question.part, len(parts))]
    contribution_sum = total(parts)
    return {
        **labels_of(subject),
        "pass": "observed",
        "places": [each.place for each in case.outputs],
        "place": output.place,
        "reads": list(output.reads),
        "token": {"id": output.answer, "text": subject.name(output.answer), "known": output.known},
        "against": None if against is None else {"id": against, "text": subject.name(against)},
        "candidates": [
            {"id": id, "text": subject.name(id), "probability": probability, "logit": float(logits[id])}
            for id, probability in ranked(logits, CANDIDATES)
        ],
        "parts": [
            {
                "name": part.name,
                "kind": part.kind,
                "layer": part.layer,
                "head": part.head,
                "value": part.value,
                "split": part.sources is not None,
            }
            for part in parts
        ],
        "sum": contribution_sum,
        "logit": logit,
        "residual": contribution_sum - logit,
        "part": question.part,
        "cross": chosen_part is not None and chosen_part.kind == CROSS,
        "sources": None if chosen_part is None or chosen_part.sources is None else list(chosen_part.sources),
        "own": _by_token(parts, False),
        "memory": _by_token(parts, True),
    }


def _compute(
    opened: ServedModel, question: ReceiptQuestion, token: int | None, against: int | None
) -> tuple[AttributionCase, Output, list[LogitPart], Tensor]:
    """Return the case, the explained output, its parts, and the logits at its position: (V) or (C), float64."""
    case = case_at(opened, question, token)
    output = case.outputs[column_at(case, question.place)]
    trace = case.trace()
    logits = trace.logits[0] if trace.logits.dim() == 2 else trace.logits[0, output.place]  # (V) or (C)
    return case, output, split_output(case.model, trace, output, against), logits.cpu().double()


def _nbytes(cached: tuple[AttributionCase, Output, list[LogitPart], Tensor]) -> int:
    """Return the approximate size of a cached receipt in bytes; a Python float in a list takes 32 bytes."""
    return cached[3].nbytes + sum(32 * len(part.sources or ()) for part in cached[2])


def _by_token(parts: list[LogitPart], cross: bool) -> list[float] | None:
    """Return the total contribution of each token of the row, or of the source; None if no part reads tokens."""
    rows = [part.sources for part in parts if part.sources is not None and (part.kind == CROSS) == cross]
    return [sum(column) for column in zip(*rows, strict=True)] if rows else None


def python(opened: ServedModel, question: ReceiptQuestion) -> str:
    """Return a script that prints all parts, their sum, and the logit."""
    condition = "" if question.place is None else f" if each.place == {question.place}"
    against = None if question.against is None else opened.model.output_id(question.against)
    split = [] if question.part is None else [f"print(parts[{question.part}].sources)"]
    return case_script(
        opened,
        question,
        "from glassformer.inspection.attribution import split_output, split_outputs",
        "",
        f"output = [each for each in case.outputs{condition}][-1]",
        f"parts = split_output(case.model, case.trace(), output, {against})",
        "for part in parts:",
        "    print(part.name, part.value)",
        "print(sum(part.value for part in parts))",
        f"print(float(split_outputs(case.model, case.trace(), [output], {against}).logits[0]))",
        *split,
        token=question.token,
    )


VIEW = PageView(ReceiptQuestion, answer, python)
