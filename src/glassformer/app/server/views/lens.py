"""Logit lens: the prediction at each position when the final norm and the output head are applied after each layer.

The response::

    {"row": [tokens], "source": [tokens] | null, "pass": "plain", "layers": 5, "count": 240, "first": 0, "holes": [3],
     "outputs": [{"place": 3, "answer": 17, "text": " the", "known": true, "loss": 1.25}],
     "grid": [[{"top": [{"id", "text", "probability"}], "rank": 1, "loss": 1.25}]],
     "curve": [losses] | null, "settled": [shares], "loss": 1.25 | null, "known": 239}

`grid` has a row for each layer, starting with the embedding and ending with the model's output, and a column for each
of the `outputs`, of which the first has index `first` among all `count` outputs. `holes` are the positions of the
masks for a run of task masked. An answer is known if it is the next token of the text or target; `known` is the number
of known answers. `curve` is the mean loss of each layer over the known answers, in nats, or null if no answer is known;
`loss` is the model's loss from a plain forward pass, which equals the last entry of `curve` up to rounding. `settled`
is, for each layer, the fraction of positions whose likeliest answer equals that of the last layer.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import Binary, PageView, TextQuestion
from glassformer.app.server.views.text_case import case_at, case_script, labels_of
from glassformer.base.errors import GlassError
from glassformer.inspection.attribution import AttributionCase, Lens, lens
from glassformer.inspection.attribution.importance import estimate_forward_flops
from glassformer.inspection.attribution.lens import TOP, refuse_post
from glassformer.inspection.sites import last_stack
from glassformer.model.transformer import Classifier

WINDOW = 64
"""Maximum number of positions in a response."""
CELLS = 2_500
"""Maximum number of cells in a response."""
MAX_FLOPS = 6e11
"""Maximum FLOPs of the forward passes and of the logits of all layers: about half a minute on a laptop."""
SORTING = 128
"""Cost of the logarithm, the rank and the sorting of one logit, in FLOPs."""
MOST_LOGITS = 1 << 26
"""Maximum number of logits of one layer, over all positions; their logarithms take 512 MiB."""


class LensQuestion(TextQuestion):
    """Request for the logit lens of a text.

    Attributes:
        first: index of the first output to return; reduced if the response would have room for more outputs.
    """

    first: Annotated[int, Field(ge=0, le=1_000_000)] = 0


def answer(opened: ServedModel, question: LensQuestion) -> dict[str, Any] | Binary:
    """Return the likeliest tokens, rank and loss at each layer and position, and the mean loss of each layer."""
    refuse_post(opened.model.model)
    key = "lens", question.text, question.target
    subject = opened.subject(question.text, question.target)
    case, lens_result, losses = opened.cached(key, lambda: _compute(opened, question), _nbytes)
    layers = len(lens_result.top)
    width = max(1, min(WINDOW, CELLS // layers))
    first = min(question.first, max(0, len(case.outputs) - width))
    columns = range(first, min(len(case.outputs), first + width))
    is_known = torch.tensor([output.known for output in case.outputs])  # (P)
    return {
        **labels_of(subject),
        "pass": "plain",
        "layers": layers,
        "count": len(case.outputs),
        "first": first,
        "holes": [] if last_stack(case.model).causal else list(subject.positions),
        "outputs": [
            {**_output(case, n), "text": subject.name(case.outputs[n].answer), "loss": float(losses[n])}
            for n in columns
        ],
        "grid": [[_cell(lens_result, layer, n, subject.name) for n in columns] for layer in range(layers)],
        "curve": lens_result.curve,
        "settled": lens_result.settled,
        "known": int(is_known.sum()),
        "loss": float(losses[is_known].mean()) if is_known.any() else None,
    }


def _compute(opened: ServedModel, question: LensQuestion) -> tuple[AttributionCase, Lens, torch.Tensor]:
    """Return the case, the lens of all outputs, and the loss of each answer from a plain forward pass (P)."""
    case = case_at(opened, question, everywhere=True)
    _refuse_long(case)
    log_probabilities = case.logits()[0].double().log_softmax(dim=-1)  # (P, V) or (1, C)
    answers = torch.tensor([output.answer for output in case.outputs])  # (P)
    return (
        case,
        lens(case.model, case.tokens, case.outputs, case.target),
        -log_probabilities.gather(1, answers[:, None])[:, 0],
    )


def lens_flops(case: AttributionCase) -> float:
    """Return the approximate FLOPs of a response: two forward passes, and the logits of all layers.

    For a classifier, each layer takes a separate forward pass.
    """
    layers = len(last_stack(case.model).blocks) + 1
    target = None if case.target is None else case.target.shape[1]
    pass_flops = estimate_forward_flops(case.model, case.tokens.shape[1], target)
    if isinstance(case.model, Classifier):
        return (2 + layers) * pass_flops
    logits = layers * (target or case.tokens.shape[1]) * case.model.vocab_size
    return 2 * pass_flops + logits * (2.0 * case.model.config.width + SORTING)


def _refuse_long(case: AttributionCase) -> None:
    """Raise a `GlassError` if the lens would take too long, or too much memory."""
    tokens = max(each.shape[1] for each in (case.tokens, case.target) if each is not None)
    flops = lens_flops(case)
    measured, texts = ("text", "a text") if case.target is None else ("target", "a text and a target")
    if flops > MAX_FLOPS:
        raise GlassError(
            f"the lens of all layers at {tokens:,} positions would take {flops:.1e} FLOPs, "
            f"but at most {MAX_FLOPS:.1e} are allowed",
            f"Give {texts} of at most about {int(tokens * MAX_FLOPS / flops):,} tokens.",
        )
    if len(case.outputs) * case.model.vocab_size > MOST_LOGITS:
        raise GlassError(
            f"{len(case.outputs):,} positions with {case.model.vocab_size:,} logits each take too much memory",
            f"Give a {measured} of at most {MOST_LOGITS // case.model.vocab_size:,} tokens.",
        )


def _nbytes(cached: tuple[AttributionCase, Lens, torch.Tensor]) -> int:
    lens_result = cached[1]
    return sum(
        each.nbytes for each in (lens_result.top, lens_result.probabilities, lens_result.ranks, lens_result.losses)
    )


def _output(case: AttributionCase, column: int) -> dict[str, Any]:
    output = case.outputs[column]
    return {"place": output.place, "answer": output.answer, "known": output.known}


def _cell(lens_result: Lens, layer: int, column: int, name: Any) -> dict[str, Any]:
    likeliest = zip(
        lens_result.top[layer, column].tolist(), lens_result.probabilities[layer, column].tolist(), strict=True
    )
    return {
        "top": [{"id": id, "text": name(id), "probability": probability} for id, probability in likeliest],
        "rank": int(lens_result.ranks[layer, column]),
        "loss": float(lens_result.losses[layer, column]),
    }


def python(opened: ServedModel, question: LensQuestion) -> str:
    """Return a script that prints the likeliest answers, ranks and losses of all layers and positions."""
    return case_script(
        opened,
        question,
        "from glassformer.inspection.attribution import lens",
        "",
        f"found = lens(case.model, case.tokens, case.outputs, case.target, top={TOP})",
        "print(found.curve)",
        "for layer, (top, shares, ranks, losses) in enumerate(",
        "    zip(found.top, found.probabilities, found.ranks, found.losses)",
        "):",
        "    print(layer, [subject.name(int(id)) for id in top[:, 0]], shares[:, 0].tolist())",
        "    print(ranks.tolist(), losses.tolist())",
        everywhere=True,
    )


VIEW = PageView(LensQuestion, answer, python)
