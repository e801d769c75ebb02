"""Loss (-ln P) of each token of a text, and mean losses of groups of tokens in the text and the validation split.

The response::

    {"text": {"mean": 1.73, "tokens": 57, "target": null | "…", "before": "T", "about": …, "notes": […],
              "parts": {"position in the row": [{"group": "1", "tokens": 3, "nats": 2.1, "share_of_nats": 0.1}], …},
              "in_context_learning": -0.2 | null, "in_context_places": [5, 57],
              "each": {"token": […], "nats": […], "place": […], "times": […], "hit": […]}},
     "counts": "ready" | "counting" | "absent", "why": null | "…",
     "split": {"state": "idle" | …, "error": null | {"what", "remedy"},
               "result": null | as `text`, without `target` and `each`}}

`mean` is the loss, in nats per token. For a run that translates or summarizes, it is the loss of the target, given the
true tokens before each token; for a run of task masked, each token is masked in turn. `parts` groups the tokens by
position, by their frequency in the training split (or in this text, while that split is being counted or if it is not
available), and by whether the bigram of the token occurs earlier in its row. `before` is the text of the token before
the first predicted token. `in_context_learning` is the mean loss at the second position in `in_context_places` minus
the mean loss at the first, or null if the rows are too short. `start` measures the loss on the validation split in the
background; its `mean` equals the loss of `glass evaluate`, except for a run of task masked.
"""

from __future__ import annotations

from typing import Any

from glassformer.app.server.background import IDLE
from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import PageView, TextQuestion, script
from glassformer.app.server.views.tokens import training_counts
from glassformer.base.errors import GlassError
from glassformer.evaluation.probes.row_probabilities import ScorableModel, require_scorable
from glassformer.evaluation.probes.surprisal import SurprisalResult, TokenSurprisal
from glassformer.evaluation.probes.texts import surprisal_of_split, surprisal_of_target, surprisal_of_text
from glassformer.evaluation.simple_predictors import counts_of
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import AnyTextModel, MaskFiller, Translator

MOST = 4_096
"""Maximum number of tokens of a text for a run of task lm."""
MOST_HOLES = 512
"""Maximum number of tokens of a text for a run of task masked, where each token takes a forward pass."""
BYTES = 200
"""Approximate size of a token in a cached result, in bytes."""


class LossQuestion(TextQuestion):
    """Request for the loss of each token of a text.

    Attributes:
        start: whether to start the measurement on the validation split.
    """

    start: bool = False


def answer(opened: ServedModel, question: LossQuestion) -> dict[str, Any]:
    """Return the loss of each token of the text, and the loss on the validation split if it is measured."""
    model = _scorable(opened.model)
    counts, why = training_counts(opened)
    role = "target" if isinstance(model, Translator) else "text"
    role_counts = None if counts is None else counts[role]
    target = _target(opened, question)

    def measure() -> SurprisalResult:
        if isinstance(model, Translator):
            assert target is not None
            return surprisal_of_target(model, question.text, target, role_counts)
        return surprisal_of_text(
            model, question.text, role_counts, MOST_HOLES if isinstance(model, MaskFiller) else MOST
        )

    key = "loss", question.text, target, role_counts is None
    result = opened.cached(key, measure, lambda result: BYTES * result.tokens)
    return {
        "text": {**_facts(result), "target": target, "each": _columns(result)},
        "counts": "absent" if why else "ready" if counts is not None else "counting",
        "why": why,
        "split": _split(opened, question.start),
    }


def _scorable(model: AnyTextModel) -> ScorableModel | Translator:
    """Return the model if it can score the tokens of a text.

    Raises:
        GlassError: the model cannot score tokens; the error gives the reason.
    """
    return model if isinstance(model, Translator) else require_scorable(model)


def _target(opened: ServedModel, question: LossQuestion) -> str | None:
    """Return the target to score: the given target, or else the greedy output; None if the model has no targets."""
    if not isinstance(opened.model, Translator):
        if question.target is not None:
            raise GlassError(f"a target was given, but {opened.name} has no targets", "Remove `target`.")
        return None
    return question.target if question.target is not None else opened.subject(question.text).target


def _facts(result: SurprisalResult) -> dict[str, Any]:
    """Return the figures of a result, except those of the individual tokens."""
    return {**{key: value for key, value in result.facts().items() if key != "each"}, "before": result.before}


def _columns(result: SurprisalResult) -> dict[str, list[Any]]:
    """Return the figures of the individual tokens as columns: name -> one value for each token."""
    return {name: [getattr(each, name) for each in result.each] for name in TokenSurprisal._fields}


def _split(opened: ServedModel, start: bool) -> dict[str, Any]:
    """Return the state and the result of the measurement on the validation split; start it if requested."""
    task = opened.task("held-out loss")
    if start and (task is None or not task.succeeded):
        run = opened.copy()
        model = _scorable(run.text_model)
        task = opened.task("held-out loss", lambda on_result: _measure_split(run, model))
    if task is None:
        return {**IDLE, "result": None}
    result = task.result() if task.succeeded else None
    return {**task.facts(), "result": None if result is None else _facts(result)}


def _measure_split(run: OpenedRun, model: ScorableModel | Translator) -> SurprisalResult:
    """Measure the loss on the validation split; token frequencies are those of the training split."""
    data = run.data
    return surprisal_of_split(model, data, counts_of(data.train.target.tokens, model.tokenizer.vocab_size))


def python(opened: ServedModel, question: LossQuestion) -> str:
    """Return a script that prints the loss of each token of the text, and the mean losses of groups of tokens."""
    with opened.lock:
        target = _target(opened, question)
        (counts, _) = training_counts(opened)
    translates = isinstance(opened.model, Translator)
    name = "surprisal_of_target" if translates else "surprisal_of_text"
    arguments = f"{question.text!r}, {target!r}" if translates else f"{question.text!r}"
    imports = [f"from glassformer.evaluation.probes.texts import {name}"]
    count_lines = ["counts = None"]
    if counts is not None:
        imports.append("from glassformer.evaluation.simple_predictors import counts_of")
        count_lines = ["counts = counts_of(run.data.train.target.tokens, model.tokenizer.vocab_size)"]
    return script(
        opened,
        *count_lines,
        f"found = {name}(model, {arguments}, counts)",
        "for each in found.each:",
        "    print(each.nats, repr(each.token))",
        "for title, parts in found.parts.items():",
        "    for part in parts:",
        "        print(title, part.name, part.tokens, part.nats)",
        'print("mean", found.mean, "over", found.tokens)',
        imports=imports,
    )


VIEW = PageView(LossQuestion, answer, python)
