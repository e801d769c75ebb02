"""One text, three architectures: the masks, losses and predictions of one run; the page requests each run in turn.

The response::

    {"family": "decoder", "task": "lm", "tokens": ["He", " said", …], "target": null | "…",
     "masks": [{"kind": "dec.self", "rows": […], "columns": […], "allowed": ["100", "110", "111"]}],
     "costs": {"tokens": […], "starts": […], "ends": […], "nats": [null, 1.2, …], "mean": 1.9 | null, "how": "…"},
     "guess": null | {"place": 3, "token": " said", "nats": 1.2, "what": …,
                      "likeliest": [{"id": 17, "text": " said", "probability": 0.3}]},
     "writes": null | "…", "labels": null | [{"name": …, "probability": …}],
     "validation": {"loss": 1.7, "tokens": 4096, "unit": "token", "why": null | "…"}}

`masks` are for the first `SHOWN` positions; `allowed` has a row of 0 and 1 for each query. `guess` is the prediction
for the token at character `at`: a decoder predicts it from the tokens before it, an encoder from both sides; an
encoder-decoder, a classifier or a chat run predicts no token of its input. `writes` is the greedy output, at most 24
tokens; a run of task lm continues the text before `at`. `costs` are the losses of the tokens of the text, or of the
target. `validation` is the loss on evenly spaced rows of the run's own validation split, for its own task and in its
own unit.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from pydantic import Field

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import PageView, TextQuestion, script
from glassformer.app.server.views.text_case import refuse_unencoded
from glassformer.base.errors import GlassError
from glassformer.evaluation.token_losses import Surprisals, predict_token, surprisals
from glassformer.inspection.explain import Subject
from glassformer.inspection.visibility import attention_masks
from glassformer.tasks import ChatModel, MaskFiller, TextClassifier, TextModel, Translator
from glassformer.training.validation import loss_on_rows

SHOWN = 48
"""Maximum number of positions of a mask."""
WRITES = 24
"""Maximum number of tokens to generate."""
MEASURED = 2_000
"""Approximate number of validation targets to measure the loss on."""


class MachinesQuestion(TextQuestion):
    """Request for the masks, losses and predictions of one run on a text.

    Attributes:
        at: index of a character of the token to predict; null: no prediction, and a run of task lm continues the whole
            text.
        top: number of candidates for this token.
    """

    at: Annotated[int, Field(ge=0, le=200_000)] | None = None
    top: Annotated[int, Field(ge=1, le=50)] = 5


def answer(opened: ServedModel, question: MachinesQuestion) -> dict[str, Any]:
    """Return the masks, the loss of each token, the prediction, the labels, the greedy text and the validation loss."""
    model = opened.model
    subject, target = _subject(opened, question)
    losses: Surprisals = opened.cached(
        ("machine's costs", question.text, target),
        lambda: surprisals(model, question.text, target),
        lambda losses: 200 * len(losses.tokens),
    )
    labels = None
    if isinstance(model, TextClassifier):
        (prediction,) = model.classify([question.text])
        labels = [{"name": name, "probability": probability} for name, probability in prediction.probabilities.items()]
    return {
        "family": model.config.model.family,
        "task": model.config.train.task,
        "tokens": list(subject.labels),
        "target": target,
        "masks": _masks(subject),
        "costs": {
            "tokens": list(losses.labels),
            "starts": [0, *losses.ends[:-1]],
            "ends": list(losses.ends),
            "nats": list(losses.nats),
            "mean": losses.mean,
            "how": losses.conditioning,
        },
        "guess": None if question.at is None else _prediction(opened, question, losses),
        "writes": _greedy_text(opened, question),
        "labels": labels,
        "validation": _validation(opened),
    }


def _subject(opened: ServedModel, question: MachinesQuestion) -> tuple[Subject, str | None]:
    """Return the subject of the text, and its target; here, a run of task masked may also read a text without masks."""
    model = opened.model
    if isinstance(model, MaskFiller) and model.MASK not in question.text:
        ids = _ids_of(opened, question.text)
        labels = tuple(map(model.tokenizer.token_text, ids))
        return Subject("", model.model, question.text, ids, labels, (), model.tokenizer.token_text), None
    subject = opened.subject(question.text, question.target)
    return subject, subject.target


def _ids_of(opened: ServedModel, text: str) -> tuple[int, ...]:
    """Return the token ids that a run of task masked reads for a text without masks."""
    model = opened.model
    assert isinstance(model, MaskFiller)
    return tuple(model.frame.around(model.tokenizer.encode(text)))


def _masks(subject: Subject) -> list[dict[str, Any]]:
    """Return the attention masks: the keys that each query may attend to."""
    masks = []
    for kind, allowed in attention_masks(subject, SHOWN).items():
        is_target = kind.startswith("dec.") and subject.target_labels is not None
        queries = (subject.target_labels if is_target else subject.labels) or ()
        keys = subject.labels if kind == "dec.cross" else queries
        bits = allowed.int().tolist()
        masks.append(
            {
                "kind": kind,
                "rows": list(queries[:SHOWN]),
                "columns": list(keys[:SHOWN]),
                "allowed": ["".join(map(str, row)) for row in bits],
            }
        )
    return masks


def _prediction(opened: ServedModel, question: MachinesQuestion, losses: Surprisals) -> dict[str, Any] | None:
    """Return the likeliest tokens at one position of the text; None if the model predicts no token there."""
    model = opened.model
    index = token_index_at(losses, question.at or 0)
    if not isinstance(model, TextModel | MaskFiller) or index is None or losses.nats[index] is None:
        return None
    prediction = predict_token(model, question.text, index)
    return {
        "place": index,
        "token": losses.labels[index],
        "nats": losses.nats[index],
        "what": prediction.what,
        "likeliest": [
            {"id": id, "text": prediction.name(id), "probability": float(prediction.probabilities[id])}
            for id in prediction.best(question.top)
        ],
    }


def token_index_at(losses: Surprisals, character: int) -> int | None:
    """Return the index of the token that contains the character with index `character`; None if no token does."""
    for index, (end, writes) in enumerate(zip(losses.ends, losses.writes, strict=True)):
        if writes and end > character:
            return index
    return None


def _greedy_text(opened: ServedModel, question: MachinesQuestion) -> str | None:
    """Return the greedy output for the text; a run of task lm continues the text before `at`."""
    model = opened.model
    if not isinstance(model, TextModel | Translator):
        return None
    settings = model.config.sample.replace(beams=1, temperature=0.0, repetition_penalty=1.0, tokens=WRITES)
    continues = isinstance(model, TextModel) and not isinstance(model, ChatModel)
    text = question.text[: question.at].rstrip() if continues else question.text
    return opened.cached(("machine writes", text), lambda: model.generate([text], settings)[0].text, len)


def _validation(opened: ServedModel) -> dict[str, Any]:
    """Return the validation loss of the run, or the reason why there is none."""
    try:
        return opened.cached("machine's loss", partial(_measure_validation, opened), lambda facts: 1_000)
    except GlassError as error:
        return {"loss": None, "tokens": 0, "unit": "token", "why": error.problem}


def _measure_validation(opened: ServedModel) -> dict[str, Any]:
    refuse_unencoded(opened)
    data = opened.run.held_out(MEASURED)
    loss = loss_on_rows(opened.run.model, data)
    return {"loss": loss.loss, "tokens": loss.tokens, "unit": data.task.unit, "why": None}


def python(opened: ServedModel, question: MachinesQuestion) -> str:
    """Return a script that prints the loss of each token and the prediction, or for a chat run the greedy answer."""
    model = opened.model
    if isinstance(model, ChatModel):
        return script(
            opened,
            f"greedy = dict(beams=1, temperature=0.0, repetition_penalty=1.0, tokens={WRITES})",
            "settings = model.config.sample.replace(**greedy)",
            f"print(model.generate([{question.text!r}], settings)[0].text)",
        )
    target = opened.subject(question.text, question.target).target if isinstance(model, Translator) else None
    lines = [
        f"costs = surprisals(model, {question.text!r}, {target!r})",
        "for label, nats in zip(costs.labels, costs.nats):",
        "    print(nats, repr(label))",
    ]
    names = "surprisals"
    if isinstance(model, TextModel | MaskFiller) and question.at is not None:
        index = token_index_at(surprisals(model, question.text), question.at)
        if index is not None and not (isinstance(model, TextModel) and index == 0):
            names = "predict_token, surprisals"
            lines += [
                f"found = predict_token(model, {question.text!r}, {index})",
                f"for id in found.best({question.top}):",
                "    print(float(found.probabilities[id]), found.name(id))",
            ]
    return script(opened, *lines, imports=[f"from glassformer.evaluation.token_losses import {names}"])


VIEW = PageView(MachinesQuestion, answer, python)
