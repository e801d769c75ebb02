"""Compare two runs on one text: their likeliest answers, and their loss on each part of the text.

The response, in which `one` is the run of the request and `other` the other run::

    {"runs": [{"name": …, "task": …, "what": "the next token", "mean": 1.9 | null, "per_character": 0.9 | null,
               "tokens": 37, "how": "…", "target": null | "…"}, …],
     "bars": [{"name": "the", "one": 0.4 | null, "other": 0.1 | null}], "alike": true, "answers": null | "…",
     "stretches": null | [{"text": "He", "start": 0, "end": 2, "one": 1.2 | null, "other": 0.7 | null}],
     "by": "tokens" | "characters" | null, "why": null | "…", "note": null | "…"}

`stretches` are the spans of the text between characters at which tokens of both runs end (at most the first `MOST` are
returned); `by` is "tokens" if the tokens of both runs end at the same characters. `why` is the reason if there are no
stretches, `answers` the reason why the bars cannot be compared, and `note` a difference of the tasks that matters for
the losses. `alike`: True if the tokenizations are identical. `per_character` is the loss over all stretches to which
both runs give a probability, divided by the number of characters of these stretches.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import Name, PageView, TextQuestion, script
from glassformer.base.errors import GlassError
from glassformer.evaluation.run_comparison import SharedSpan, compare_predictions, shared_spans
from glassformer.evaluation.token_losses import Surprisals, predict, surprisals
from glassformer.tasks import ChatModel, MaskFiller, TextClassifier, Translator

MOST = 1_500
"""Maximum number of stretches to return."""


class CompareQuestion(TextQuestion):
    """Request to compare this run with another run on one text.

    Attributes:
        other: name of the other run.
        top: number of likeliest answers of each run.
    """

    other: Name
    top: Annotated[int, Field(ge=1, le=50)] = 10


def answer(opened: ServedModel, question: CompareQuestion, other: ServedModel) -> dict[str, Any]:
    """Return the likeliest answers of both runs and their loss on each stretch of the text."""
    runs = opened, other
    targets = targets_of(runs, question)
    losses = [surprisals(each.model, question.text, target) for each, target in zip(runs, targets, strict=True)]
    first = question.target is None
    predictions = [
        predict(each.model, each.subject(question.text, target), first=first)
        for each, target in zip(runs, targets, strict=True)
    ]
    spans, why = _shared_spans(*losses)
    scored_spans = [each for each in spans or () if each.one is not None and each.other is not None]
    characters = sum(each.end - each.start for each in scored_spans)
    sums = [sum(each.one or 0.0 for each in scored_spans), sum(each.other or 0.0 for each in scored_spans)]
    are_classifiers = [isinstance(each.model, TextClassifier) for each in runs]
    answers_problem = (
        "one run predicts labels and the other predicts tokens: their answers cannot be compared"
        if are_classifiers[0] != are_classifiers[1]
        else None
    )
    return {
        "runs": [
            {
                "name": each.name,
                "task": each.model.config.train.task,
                "what": prediction.what,
                "mean": run_losses.mean,
                "per_character": total / characters if characters else None,
                "tokens": len(run_losses.tokens),
                "how": run_losses.conditioning,
                "target": target,
            }
            for each, prediction, run_losses, total, target in zip(
                runs, predictions, losses, sums, targets, strict=True
            )
        ],
        "bars": [vars(bar) for bar in compare_predictions(predictions[0], predictions[1], question.top)],
        "answers": answers_problem,
        "alike": losses[0].tokens == losses[1].tokens,
        "stretches": None if spans is None else [vars(each) for each in spans[:MOST]],
        "by": None if spans is None else "tokens" if losses[0].ends == losses[1].ends else "characters",
        "why": why,
        "note": _note(runs),
    }


def targets_of(pair: tuple[ServedModel, ServedModel], question: TextQuestion) -> list[str | None]:
    """Return the target for each run: the given target, or else the greedy output of the first run that has targets.

    The target is None for a run that neither translates nor summarizes.
    """
    target = question.target
    for each in pair:
        if target is None and isinstance(each.model, Translator):
            target = each.subject(question.text).target
    return [target if isinstance(each.model, Translator) else None for each in pair]


def _shared_spans(one: Surprisals, other: Surprisals) -> tuple[list[SharedSpan] | None, str | None]:
    for each in (one, other):
        if each.mean is None:
            return None, each.conditioning
    try:
        return shared_spans(one, other), None
    except GlassError as error:
        return None, error.problem


def _note(pair: tuple[ServedModel, ServedModel]) -> str | None:
    """Return a warning if one run is of task masked and the other predicts tokens from left to right, else None.

    Return None also if the other run is a classifier or a chat run, because these have no token losses.
    """
    other_models = [each.model for each in pair if not isinstance(each.model, MaskFiller)]
    if len(other_models) != 1 or isinstance(other_models[0], TextClassifier | ChatModel):
        return None
    context = "the source and the target tokens" if isinstance(other_models[0], Translator) else "the tokens"
    return (
        "A run of task masked reads the tokens on both sides of a masked token; the other run reads, for each token, "
        f"only {context} before it. Their losses measure different tasks."
    )


def python(opened: ServedModel, question: CompareQuestion, other: ServedModel) -> str:
    """Return a script that prints the losses, the likeliest answers and, if there are any, the stretches."""
    one, two = targets_of((opened, other), question)
    lines = [
        f"other = OpenedRun.load({str(other.folder)!r}).text_model",
        f"text, targets = {question.text!r}, ({one!r}, {two!r})",
        "costs = [surprisals(each, text, target) for each, target in zip((model, other), targets)]",
        "print(costs[0].mean, costs[1].mean)",
        f"first = {question.target is None}",
        "predictions = [predict(each, subject_of(each, text, target), first=first)",
        "        for each, target in zip((model, other), targets)]",
        f"for bar in compare_predictions(*predictions, {question.top}):",
        "    print(bar.one, bar.other, bar.name)",
    ]
    if not any(isinstance(each.model, TextClassifier | ChatModel) for each in (opened, other)):
        lines += ["for each in shared_spans(*costs):", "    print(each.start, each.end, each.one, each.other)"]
    return script(
        opened,
        *lines,
        imports=[
            "from glassformer.evaluation.token_losses import predict, surprisals",
            "from glassformer.evaluation.run_comparison import compare_predictions, shared_spans",
            "from glassformer.inspection.explain import subject_of",
        ],
    )


VIEW = PageView(CompareQuestion, answer, python, others=lambda question: [question.other])
