"""Ablation: the loss, the likeliest answers and the generated text with parts of the model ablated.

The response::

    {"switches": ["dec.mask", "dec.positions", "dec.0.self", "dec.0.self.0", …], "off": […], "instead": "zero",
     "kinds": {"zero": "replaced by zeros", …},
     "text": {"whole": 1.9, "off": 2.3, "tokens": 37, "how": "…", "target": null | "…"},
     "answer": {"what": "the next token", "bars": [{"name": "the", "before": 0.4, "after": 0.1}]},
     "written": {"before": "…", "after": "…", "why": null | "…"},
     "validation": null | {"whole": 1.7, "off": 2.0, "tokens": 4096, "rows": 16, "unit": "token", "why": null | "…"},
     "keep": {"heads": ["dec.0.self.0"], "why": null | "…"}}

`switches` are the names of all parts that can be ablated, `off` the ablated parts, and `instead` the replacement of
their outputs. `text` is the loss on this text, in nats per token; for a run of task masked, each token is masked in
turn; classifiers and chat runs have no such loss. `validation` is the result of `glass evaluate RUN --ablate …` with
the same parts, replacement and number of tokens, if `tokens` was given; each `why` is the reason if there is no result.
`bars` are the likeliest answers before and after the ablation: for the next token (the first token of the target if no
target was given), the first mask, or the label. `keep` has the heads that can be removed permanently to save a new
run, or the reason why this is not possible.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import Name, PageView, TextQuestion, script
from glassformer.app.server.views.text_case import refuse_unencoded
from glassformer.base.errors import GlassError
from glassformer.evaluation.run_comparison import compare_predictions
from glassformer.evaluation.token_losses import Surprisals, predict, surprisals
from glassformer.inspection.ablation import (
    ABLATION_KINDS,
    PART_KINDS,
    AblatedModel,
    Ablation,
    ablatable,
    ablate,
    ablation_loss,
    check_ablation,
    generate_ablated,
)
from glassformer.inspection.explain import Subject
from glassformer.inspection.pruning.removal import refuse_unprunable
from glassformer.tasks import TextModel, Translator
from glassformer.tasks.task_rows import TaskRows
from glassformer.training.validation import loss_on_rows

ROWS = 4_096
"""Approximate number of targets to compute mean activations over, if no validation loss was requested."""
MEAN_OF_VALIDATION = "replaced by its mean over all positions of rows of the validation split"
BYTES = 2**20
"""Approximate size of cached validation rows, in bytes."""


class AblationQuestion(TextQuestion):
    """Request for the ablation of parts of a run.

    Attributes:
        off: names of the parts to ablate.
        instead: replacement of the outputs of these parts.
        top: number of likeliest answers before and after.
        write: maximum number of tokens to generate before and after; 0: generate nothing.
        tokens: approximate number of validation targets to measure the loss on; null: do not measure it.
    """

    off: Annotated[tuple[Name, ...], Field(max_length=4_096)] = ()
    instead: Literal["zero", "mean", "first", "frozen"] = "zero"
    top: Annotated[int, Field(ge=1, le=50)] = 8
    write: Annotated[int, Field(ge=0, le=100)] = 0
    tokens: Annotated[int, Field(ge=1, le=50_000)] | None = None


def answer(opened: ServedModel, question: AblationQuestion) -> dict[str, Any]:
    """Return losses, likeliest answers and greedy text of the whole model and of the ablated model."""
    model = opened.model
    ablation = check_ablation(model.model, question.off, question.instead)
    subject = opened.subject(question.text, question.target)
    ablated = _ablate(opened, ablation, question.tokens)
    first = question.target is None
    key = "prediction", question.text, question.target
    before = opened.cached(
        key, lambda: predict(model, subject, None, first), lambda prediction: 8 * len(prediction.probabilities)
    )
    after = predict(model, subject, ablated, first)
    return {
        "switches": ablatable(model.model),
        "off": list(ablation.removed_parts),
        "instead": ablation.kind,
        "kinds": {kind: ABLATION_KINDS[kind] for kind in PART_KINDS} | {"mean": MEAN_OF_VALIDATION},
        "text": _losses_on_text(opened, subject, question, ablated),
        "answer": {
            "what": before.what,
            "bars": [
                {"name": bar.name, "before": bar.one, "after": bar.other}
                for bar in compare_predictions(before, after, question.top)
            ],
        },
        "written": _generated_texts(opened, question, ablated),
        "validation": None if question.tokens is None else _validation(opened, ablated, question.tokens),
        "keep": _removable_heads(opened, ablation),
    }


def _ablate(opened: ServedModel, ablation: Ablation, tokens: int | None) -> AblatedModel:
    """Return the ablated model; means, if needed, are computed over `tokens` validation targets (None: `ROWS`)."""
    rows = _held_out_rows(opened, tokens or ROWS) if ablation.needs_means else None
    return ablate(opened.model.model, ablation, rows)


def _held_out_rows(opened: ServedModel, tokens: int) -> TaskRows:
    def make() -> TaskRows:
        refuse_unencoded(opened)
        return opened.run.held_out(tokens)

    return opened.cached(("held out", tokens), make, lambda rows: BYTES)


def _losses_on_text(
    opened: ServedModel, subject: Subject, question: AblationQuestion, ablated: AblatedModel
) -> dict[str, Any]:
    """Return the loss on the text, with and without the ablation, or the reason why there is none."""
    model = opened.model
    target = subject.target
    key = "costs", question.text, question.target
    try:
        intact_losses: Surprisals = opened.cached(
            key, lambda: surprisals(model, question.text, target), lambda losses: 200 * len(losses.tokens)
        )
    except GlassError as error:  # for example, the text is too long to mask each of its tokens in turn
        return {"whole": None, "off": None, "tokens": 0, "how": error.problem, "target": target}
    ablated_losses = surprisals(model, question.text, target, ablated)
    return {
        "whole": intact_losses.mean,
        "off": ablated_losses.mean,
        "tokens": sum(nats is not None for nats in intact_losses.nats),
        "how": intact_losses.conditioning,
        "target": target,
    }


def _generated_texts(opened: ServedModel, question: AblationQuestion, ablated: AblatedModel) -> dict[str, Any]:
    """Return the greedy text before and after the ablation.

    If text was requested but could not be generated, the entry `why` has the reason.
    """
    model = opened.model
    if not question.write or not isinstance(model, TextModel | Translator):
        return {
            "before": None,
            "after": None,
            "why": None if question.write == 0 else "this run does not generate text",
        }

    def generate_intact() -> str:
        return generate_ablated(AblatedModel(model.model, Ablation(())), model, question.text, question.write)

    before = opened.cached(("written", question.text, question.write), generate_intact, len)
    try:
        after = generate_ablated(ablated, model, question.text, question.write)
    except GlassError as error:
        return {"before": before, "after": None, "why": error.problem}
    return {"before": before, "after": after, "why": None}


def _validation(opened: ServedModel, ablated: AblatedModel, tokens: int) -> dict[str, Any]:
    """Return the loss on validation rows, with and without the ablation, or the reason why there is none."""
    try:
        data = _held_out_rows(opened, tokens)
    except GlassError as error:
        return {"whole": None, "off": None, "tokens": 0, "rows": 0, "unit": "token", "why": error.problem}
    intact_loss = opened.cached(
        ("held out loss", tokens), lambda: loss_on_rows(opened.model.model, data), lambda loss: 100
    )
    loss = ablation_loss(ablated, data, intact_loss)
    return {
        "whole": loss.full.loss,
        "off": loss.ablated.loss,
        "tokens": loss.full.tokens,
        "rows": loss.full.rows,
        "unit": data.task.unit,
        "why": None,
    }


def _removable_heads(opened: ServedModel, ablation: Ablation) -> dict[str, Any]:
    """Return the ablated heads if pruning can remove them permanently, or the reason why it cannot."""
    not_heads = [name for name in ablation.removed_parts if not name.rpartition(".")[2].isdigit()]
    why = None
    if ablation.kind != "zero":
        why = "only heads that are replaced by zero can be removed permanently"
    elif not_heads:
        why = f"only heads can be removed permanently, and {not_heads[0]} is not a head"
    elif not ablation.removed_parts:
        why = "no part is ablated"
    try:
        refuse_unprunable(opened.model.config.model)
    except GlassError as error:
        why = error.problem
    return {"heads": [] if why else list(ablation.removed_parts), "why": why}


def python(opened: ServedModel, question: AblationQuestion) -> str:
    """Return a script that prints the losses on the text and, if requested, on validation rows, and the answers."""
    subject = opened.subject(question.text, question.target)
    mean = question.instead == "mean"
    needs_rows = mean or question.tokens is not None
    lines = [
        f"text, target = {question.text!r}, {subject.target!r}",
        f"ablation = check_ablation(model.model, {question.off!r}, {question.instead!r})",
    ]
    if needs_rows:
        lines += [
            f"data = run.held_out({question.tokens or ROWS})",
            "off = ablate(model.model, ablation, data)",
        ]
    else:
        lines += ["off = AblatedModel(model.model, ablation)"]
    lines += [
        "print(surprisals(model, text, target).mean, surprisals(model, text, target, off).mean)",
        "subject = subject_of(model, text, target)",
        f"before, after = (predict(model, subject, each, first={question.target is None}) for each in (None, off))",
        f"for bar in compare_predictions(before, after, {question.top}):",
        "    print(bar.one, bar.other, bar.name)",
    ]
    if question.tokens is not None:
        lines += [
            "loss = ablation_loss(off, data)",
            "print(loss.full.loss, loss.ablated.loss)",
        ]
    names = ["ablation_loss"] if question.tokens is not None else []
    names += ["ablate", "check_ablation"] if needs_rows else ["AblatedModel", "check_ablation"]
    return script(
        opened,
        *lines,
        imports=[
            f"from glassformer.inspection.ablation import {', '.join(sorted(names, key=_import_order))}",
            "from glassformer.evaluation.token_losses import predict, surprisals",
            "from glassformer.evaluation.run_comparison import compare_predictions",
            "from glassformer.inspection.explain import subject_of",
        ],
    )


def _import_order(name: str) -> tuple[bool, str]:
    """Return a sort key that puts classes before functions."""
    return name[0].islower(), name


VIEW = PageView(AblationQuestion, answer, python)
