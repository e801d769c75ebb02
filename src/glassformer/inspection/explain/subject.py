"""The subject to explain: a model, and the ids that it reads of a text, for a run of any task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from glassformer.base.config import TASK_FACTS
from glassformer.base.errors import GlassError
from glassformer.generation import decoding
from glassformer.generation.context_window import window_start
from glassformer.inspection.explain.sections import shown
from glassformer.inspection.trace import Trace, trace
from glassformer.model.transformer import Model
from glassformer.tasks import AnyTextModel, MaskFiller, TextClassifier, TextModel, Translator


@dataclass(frozen=True)
class Subject:
    """A model and what it reads.

    Attributes:
        title: what is explained, in a few words.
        model: of any family.
        text, target: as they were given, or as the model wrote them; `target` of an encoder-decoder, else None.
        ids, labels: the tokens of the text, or of the source.
        target_ids, target_labels: those of the target, the end token before it included; else None.
        places: whose predictions are shown; none of a classifier, which predicts once.
        name: the text of an output: a token, or a class.
        special: outputs that are no candidates.
        notes: what of the text the model does not see.
    """

    title: str
    model: Model
    text: str
    ids: tuple[int, ...]
    labels: tuple[str, ...]
    places: tuple[int, ...]
    name: Callable[[int], str]
    target: str | None = None
    target_ids: tuple[int, ...] | None = None
    target_labels: tuple[str, ...] | None = None
    special: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    def trace(self) -> Trace:
        """Run the model and return a trace of its forward pass."""
        target = None if self.target_ids is None else torch.tensor([self.target_ids])
        return trace(self.model, torch.tensor([self.ids]), target)


def subject_of(model: AnyTextModel, text: str, target: str | None = None, name: str = "this run") -> Subject:
    """Return the subject of a text, or a text and a target, that a run's model reads.

    Args:
        model: of any task.
        text: what its command would be given; of a filler, with [MASK].
        target: of a run that translates or summarizes: what it shall have written; None: what it writes greedily.
        name: of the run.

    Raises:
        GlassError: the text is empty or does not fit the task, or a target was given to a run of another task.
    """
    if not text:
        raise GlassError("the text is empty: there is nothing to explain", "Give a text.")
    task = model.config.train.task
    title = f"{name}, which learnt to {TASK_FACTS[task].verb}"
    if isinstance(model, Translator):
        return _translated(model, text, target, title)
    if target is not None:
        raise GlassError(
            f"a target was given, but {name} learnt train.task = {task}: to {TASK_FACTS[task].verb}",
            "Leave it out: only runs that translate or summarize have one.",
        )
    if isinstance(model, TextClassifier):
        return _classified(model, text, title)
    return _filled(model, text, title) if isinstance(model, MaskFiller) else _continued(model, text, title)


def whole_subject_of(model: AnyTextModel, text: str, target: str | None = None, name: str = "this run") -> Subject:
    """Return the subject of a text that the model reads whole: the view of a part would be taken for all of it.

    Raises:
        GlassError: as `subject_of`, or the text or the target is longer than the context.
    """
    context = model.config.model.context
    if isinstance(model, TextModel):
        unread = len(model.prompt_ids(text)) - context
    else:
        unread = 0 if isinstance(model, MaskFiller) else model.unread_tokens(text)  # a filler refuses by itself
    beyond = {"text": unread}
    if isinstance(model, Translator) and target is not None:
        beyond["target"] = len(model.tokenizer.encode(target)) + len(model.tokenizer.target_start) - context
    for what, tokens in beyond.items():
        if tokens > 0:
            problem = f"the {what} has {context + tokens:,} tokens, the model reads {context:,}"
            raise GlassError(problem, "Give a shorter one.")
    return subject_of(model, text, target, name)


def _continued(model: TextModel, text: str, title: str) -> Subject:
    """The newest part of the text, as `glass generate` has it."""
    ids = model.prompt_ids(text)
    context = model.config.model.context
    start = window_start(len(ids), context)
    notes = (_cut(start, "first", len(ids), context),) if start else ()
    return _of_tokens(model, text, ids[start:], (len(ids) - start - 1,), title, (), notes)


def _filled(model: MaskFiller, text: str, title: str) -> Subject:
    ids = model.ids(text)
    holes = tuple(place for place, token in enumerate(ids) if token == model.mask_id)
    return _of_tokens(model, text, ids, holes, title, tuple(sorted(model.tokenizer.special)), ())


def _of_tokens(
    model: TextModel | MaskFiller,
    text: str,
    ids: list[int],
    places: tuple[int, ...],
    title: str,
    special: tuple[int, ...],
    notes: tuple[str, ...],
) -> Subject:
    def name(id: int) -> str:
        return shown(model.tokenizer.token_text(id))

    labels = tuple(map(name, ids))
    return Subject(
        title=title,
        model=model.model,
        text=text,
        ids=tuple(ids),
        labels=labels,
        places=places,
        name=name,
        special=special,
        notes=notes,
    )


def _classified(model: TextClassifier, text: str, title: str) -> Subject:
    ids = model.ids(text)
    unread = model.unread_tokens(text)
    labels = tuple(shown(model.tokenizer.token_text(id)) for id in ids)
    notes = (_cut(unread, "last", len(ids) + unread, model.config.model.context),) if unread else ()
    return Subject(
        title=title,
        model=model.model,
        text=text,
        ids=tuple(ids),
        labels=labels,
        places=(),
        name=lambda id: model.labels[id],
        notes=notes,
    )


def _translated(model: Translator, text: str, target: str | None, title: str) -> Subject:
    """The target is what the model is given, the token before it, too; the end token after it is left to predict."""
    end = model.tokenizer.end_id
    start = model.tokenizer.target_start
    context = model.config.model.context
    room = model.config.model.context - len(start)
    ids = model.prompt_ids(text)
    unread = model.unread_tokens(text)
    notes = [_cut(unread, "last", len(ids) + unread, context)] if unread else []
    if target is None:
        settings = model.config.sample.replace(beams=1, temperature=0.0, repetition_penalty=1.0)
        steps = decoding.generate(model.model, [ids], settings, end, start=start)
        written = [token for step in steps for token in step.tokens if token != end][:room]
        notes.append("The target is what the model writes greedily, token by token; --target explains another one.")
    else:
        written = model.tokenizer.encode(target)
        if len(written) > room:
            notes.append(_cut(len(written) - room, "last", len(written), room, "target"))
        written = written[:room]
    target_ids = (*start, *written)
    return Subject(
        title=title,
        model=model.model,
        text=text,
        ids=tuple(ids),
        labels=tuple(shown(model.source_tokenizer.token_text(id)) for id in ids),
        places=tuple(range(len(target_ids))),
        name=lambda id: shown(model.tokenizer.token_text(id)),
        target=model.tokenizer.decode(written) if target is None else target,
        target_ids=target_ids,
        target_labels=tuple(shown(model.tokenizer.token_text(id)) for id in target_ids),
        notes=tuple(notes),
    )


def _cut(count: int, which: str, total: int, limit: int, what: str = "text") -> str:
    """Say that the model does not see all of a text."""
    return (
        f"The {what} has {total:,} tokens, the model reads at most {limit:,} of them (model.context): "
        f"the {which} {count:,} are not seen."
    )
