"""The ablation desk: what happens to the loss, the answer and the text when parts of the model are switched off.

The answer::

    {"switches": ["dec.mask", "dec.positions", "dec.0.self", "dec.0.self.0", …], "off": […], "instead": "zero",
     "kinds": {"zero": "nothing in its place", …},
     "text": {"whole": 1.9, "off": 2.3, "tokens": 37, "how": "each token, after those before it", "target": null | "…"},
     "answer": {"what": "the next token", "bars": [{"name": "the", "before": 0.4, "after": 0.1}]},
     "written": {"before": "…", "after": "…", "why": null | "…"},
     "validation": null | {"whole": 1.7, "off": 2.0, "tokens": 4096, "rows": 16, "unit": "token", "why": null | "…"},
     "keep": {"heads": ["dec.0.self.0"], "why": null | "…"}}

`text` is the loss on this text, in nats per token: of a filler each token is hidden in turn, a classifier has none.
`validation` is what `glass evaluate RUN --ablate … --tokens N` prints, where it was asked for; `why` says why there is
none. `bars` are the likeliest answers before and after: the next token (of a target that is not given, its first one),
the first hole's, or the label. `keep`: the heads that a run without them would lack, or why there can be none.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from glassformer.app.server.shelf import Opened
from glassformer.app.server.view import Name, TextQuestion, View, script
from glassformer.app.server.views.reading import refuse_unencoded
from glassformer.base.errors import GlassError
from glassformer.evaluation.one_text import Surprisals, outlook, surprisals
from glassformer.evaluation.side_by_side import bars
from glassformer.evaluation.without import HeldOut, held_out
from glassformer.inspection.ablation import (
    INSTEADS,
    Ablation,
    Switched,
    ablation_loss,
    checked,
    switched,
    switches,
    written_without,
)
from glassformer.inspection.explain import Subject
from glassformer.inspection.pruning.removal import refuse_unprunable
from glassformer.tasks import TextModel, Translator
from glassformer.text.batches import Batch

ROWS = 4_096
"""Targets of the rows over which means are taken, where the loss on the validation part is not asked for."""
BYTES = 2**20
"""That rows of the validation part and what belongs to them take, roughly."""


class Question(TextQuestion):
    """What is asked.

    Attributes:
        off: names of parts.
        instead: what stands in their place.
        top: likeliest answers before, and after.
        write: tokens that are written before and after; 0: none.
        tokens: measure on about so many targets of the validation part; null: not at all.
    """

    off: Annotated[tuple[Name, ...], Field(max_length=4_096)] = ()
    instead: Literal["zero", "mean", "first", "frozen"] = "zero"
    top: Annotated[int, Field(ge=1, le=50)] = 8
    write: Annotated[int, Field(ge=0, le=100)] = 0
    tokens: Annotated[int, Field(ge=1, le=50_000)] | None = None


def answer(opened: Opened, question: Question) -> dict[str, Any]:
    """See the module."""
    model = opened.model
    ablation = checked(model.model, question.off, question.instead)
    subject = opened.subject(question.text, question.target)
    found = _switched(opened, ablation, question.tokens)
    first = question.target is None
    key = "outlook", question.text, question.target
    before = opened.kept.get(key, lambda: outlook(model, subject, None, first), lambda kept: 8 * len(kept.shares))
    after = outlook(model, subject, found, first)
    return {
        "switches": switches(model.model), "off": list(ablation.off), "instead": ablation.instead, "kinds": INSTEADS,
        "text": _on_text(opened, subject, question, found),
        "answer": {
            "what": before.what,
            "bars": [
                {"name": bar.name, "before": bar.one, "after": bar.other} for bar in bars(before, after, question.top)
            ],
        },
        "written": _written(opened, question, found),
        "validation": None if question.tokens is None else _validation(opened, found, question.tokens),
        "keep": _keep(opened, ablation),
    }  # fmt: skip


def _switched(opened: Opened, ablation: Ablation, tokens: int | None) -> Switched:
    """The model with parts off; means are over the rows that the loss is, or would be, measured on."""
    if ablation.instead != "mean" or not ablation.parts:
        return Switched(opened.model.model, ablation)
    data = _held_out(opened, tokens or ROWS)
    return switched(opened.model.model, ablation, data.rows, Batch.from_rows, data.device)


def _held_out(opened: Opened, tokens: int) -> HeldOut:
    def make() -> HeldOut:
        refuse_unencoded(opened)
        return held_out(opened.folder, opened.model, tokens)

    return opened.kept.get(("held out", tokens), make, lambda found: BYTES)


def _on_text(opened: Opened, subject: Subject, question: Question, found: Switched) -> dict[str, Any]:
    """The loss on this text."""
    model, target = opened.model, subject.target
    key = "costs", question.text, question.target
    try:
        whole: Surprisals = opened.kept.get(
            key, lambda: surprisals(model, question.text, target), lambda kept: 200 * len(kept.tokens)
        )
    except GlassError as error:  # a text that is too long for a filler to hide each of its tokens
        return {"whole": None, "off": None, "tokens": 0, "how": error.problem, "target": target}
    off = surprisals(model, question.text, target, found)
    return {
        "whole": whole.mean, "off": off.mean, "tokens": sum(nats is not None for nats in whole.nats),
        "how": whole.how, "target": target,
    }  # fmt: skip


def _written(opened: Opened, question: Question, found: Switched) -> dict[str, Any]:
    """What is written greedily, before and after."""
    model = opened.model
    if not question.write or not isinstance(model, TextModel | Translator):
        return {"before": None, "after": None, "why": None if question.write == 0 else "this run writes no text"}

    def whole() -> str:
        return written_without(Switched(model.model, Ablation(())), model, question.text, question.write)

    before = opened.kept.get(("written", question.text, question.write), whole, len)
    try:
        after = written_without(found, model, question.text, question.write)
    except GlassError as error:
        return {"before": before, "after": None, "why": error.problem}
    return {"before": before, "after": after, "why": None}


def _validation(opened: Opened, found: Switched, tokens: int) -> dict[str, Any]:
    """The loss on rows of the validation part."""
    try:
        data = _held_out(opened, tokens)
    except GlassError as error:
        return {"whole": None, "off": None, "tokens": 0, "rows": 0, "unit": "token", "why": error.problem}
    nothing = Switched(opened.model.model, Ablation(()))
    whole = opened.kept.get(
        ("held out loss", tokens),
        lambda: ablation_loss(nothing, data.rows, Batch.from_rows, data.device, data.dtype).whole,
        lambda kept: 100,
    )
    loss = ablation_loss(found, data.rows, Batch.from_rows, data.device, data.dtype, whole)
    return {
        "whole": loss.whole.loss, "off": loss.off.loss, "tokens": loss.whole.tokens, "rows": loss.whole.windows,
        "unit": data.task.unit, "why": None,
    }  # fmt: skip


def _keep(opened: Opened, ablation: Ablation) -> dict[str, Any]:
    """What a run that keeps this would lack."""
    others = [name for name in ablation.off if not name.rpartition(".")[2].isdigit()]
    why = None
    if ablation.instead != "zero":
        why = "only heads with nothing in their place can be taken out for good"
    elif others:
        why = f"only heads can be taken out for good, and {others[0]} is off"
    elif not ablation.off:
        why = "everything is on"
    try:
        refuse_unprunable(opened.model.config.model)
    except GlassError as error:
        why = error.problem
    return {"heads": [] if why else list(ablation.off), "why": why}


def python(opened: Opened, question: Question) -> str:
    """The losses, on this text and on the validation part, and the answers before and after."""
    subject = opened.subject(question.text, question.target)
    mean = question.instead == "mean"
    wants = mean or question.tokens is not None
    lines = [
        f"text, target = {question.text!r}, {subject.target!r}",
        f"ablation = checked(model.model, {question.off!r}, {question.instead!r})",
    ]
    if wants:
        lines += [
            f"data = held_out({str(opened.folder)!r}, model, {question.tokens or ROWS})",
            "off = switched(model.model, ablation, data.rows, Batch.from_rows, data.device)",
        ]
    else:
        lines += ["off = Switched(model.model, ablation)"]
    lines += [
        "print(surprisals(model, text, target).mean, surprisals(model, text, target, off).mean)",
        "subject = subject_of(model, text, target)",
        f"before, after = (outlook(model, subject, each, first={question.target is None}) for each in (None, off))",
        f"for bar in bars(before, after, {question.top}):",
        "    print(bar.one, bar.other, bar.name)",
    ]
    if question.tokens is not None:
        lines += [
            "loss = ablation_loss(off, data.rows, Batch.from_rows, data.device, data.dtype)",
            "print(loss.whole.loss, loss.off.loss)",
        ]
    names = ["ablation_loss"] if question.tokens is not None else []
    names += ["checked", "switched"] if wants else ["Switched", "checked"]
    return script(
        opened,
        *lines,
        imports=[
            f"from glassformer.inspection.ablation import {', '.join(sorted(names, key=_order))}",
            "from glassformer.evaluation.one_text import outlook, surprisals",
            "from glassformer.evaluation.side_by_side import bars",
            *(["from glassformer.evaluation.without import held_out"] if wants else []),
            "from glassformer.inspection.explain import subject_of",
            *(["from glassformer.text.batches import Batch"] if wants else []),
        ],
    )


def _order(name: str) -> tuple[bool, str]:
    """Classes before functions."""
    return name[0].islower(), name


VIEW = View(Question, answer, python)
