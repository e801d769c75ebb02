"""Subjects to explain: a model and its input ids, for a run of any task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from glassformer.base.config import TASK_FACTS
from glassformer.base.errors import GlassError
from glassformer.base.wording import visible_text
from glassformer.generation import decoding
from glassformer.generation.context_window import window_start
from glassformer.inspection.trace import Trace, trace
from glassformer.model.transformer import Model
from glassformer.tasks import AnyTextModel, MaskFiller, TextClassifier, TextModel, Translator


@dataclass(frozen=True)
class Subject:
    """Model and its input.

    Attributes:
        title: short title, shown to readers.
        model: a model of any family.
        text, target: input text, and given or generated target text of an encoder-decoder (otherwise None).
        ids, labels: ids and texts of the tokens of the text, or of the source.
        target_ids, target_labels: ids and texts of the target tokens, including those that start every target (by
            default, the end token); None without a target.
        positions: positions whose predictions are shown; empty for a classifier, which predicts once.
        name: function from an output id to the text of the token, or to the class.
        special: output ids that are excluded from predictions.
        notes: sentences for readers, for example on tokens that the model does not read or on a generated target.
    """

    title: str
    model: Model
    text: str
    ids: tuple[int, ...]
    labels: tuple[str, ...]
    positions: tuple[int, ...]
    name: Callable[[int], str]
    target: str | None = None
    target_ids: tuple[int, ...] | None = None
    target_labels: tuple[str, ...] | None = None
    special: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    def trace(self) -> Trace:
        """Run the model and return the trace of its forward pass."""
        target = None if self.target_ids is None else torch.tensor([self.target_ids])
        return trace(self.model, torch.tensor([self.ids]), target)


def subject_of(model: AnyTextModel, text: str, target: str | None = None, name: str = "this run") -> Subject:
    """Return the subject of a text, or of a text and a target, for a run's model.

    Args:
        model: a text model of any task.
        text: input text; for a masked language model, it contains [MASK].
        target: target text of a run that translates or summarizes; None: generate the target greedily.
        name: name of the run.

    Raises:
        GlassError: the text is empty or does not fit the task, or a target was given to a run of another task.
    """
    if not text:
        raise GlassError("the text is empty: there is nothing to explain", "Give a text.")
    task = model.config.train.task
    title = f"{name}, which was trained to {TASK_FACTS[task].verb}"
    if isinstance(model, Translator):
        return _translation_subject(model, text, target, title)
    if target is not None:
        raise GlassError(
            f"a target was given, but {name} was trained with train.task = {task}: to {TASK_FACTS[task].verb}",
            "Leave the target out: only runs that translate or summarize have one.",
        )
    if isinstance(model, TextClassifier):
        return _classifier_subject(model, text, title)
    return _masked_subject(model, text, title) if isinstance(model, MaskFiller) else _prompt_subject(model, text, title)


def unshortened_subject_of(
    model: AnyTextModel, text: str, target: str | None = None, name: str = "this run"
) -> Subject:
    """Return the subject of a text that fits into the context; unlike `subject_of`, refuse a longer text.

    For the arguments, see `subject_of`.

    Raises:
        GlassError: as in `subject_of`, or the text or the target is longer than the context.
    """
    context = model.config.model.context
    if isinstance(model, TextModel):
        unread = len(model.prompt_ids(text)) - context
    else:
        unread = 0 if isinstance(model, MaskFiller) else model.unread_tokens(text)  # `model.ids` refuses a long text
    excess_tokens = {"text": unread}
    if isinstance(model, Translator) and target is not None:
        excess_tokens["target"] = len(model.tokenizer.encode(target)) + len(model.tokenizer.target_start) - context
    for what, tokens in excess_tokens.items():
        if tokens > 0:
            problem = f"the {what} has {context + tokens:,} tokens, but the model reads at most {context:,}"
            raise GlassError(problem, f"Give a shorter {what}.")
    return subject_of(model, text, target, name)


def _prompt_subject(model: TextModel, text: str, title: str) -> Subject:
    """Return the subject of a prompt; as in `glass generate`, only the end of a long prompt is read."""
    ids = model.prompt_ids(text)
    context = model.config.model.context
    start = window_start(len(ids), context)
    notes = (_truncation_note(start, "first", len(ids), context),) if start else ()
    return _token_subject(model, text, ids[start:], (len(ids) - start - 1,), title, (), notes)


def _masked_subject(model: MaskFiller, text: str, title: str) -> Subject:
    ids = model.ids(text)
    mask_positions = tuple(position for position, token in enumerate(ids) if token == model.mask_id)
    return _token_subject(model, text, ids, mask_positions, title, tuple(sorted(model.tokenizer.special)), ())


def _token_subject(
    model: TextModel | MaskFiller,
    text: str,
    ids: list[int],
    positions: tuple[int, ...],
    title: str,
    special: tuple[int, ...],
    notes: tuple[str, ...],
) -> Subject:
    def name(id: int) -> str:
        return visible_text(model.tokenizer.token_text(id))

    labels = tuple(map(name, ids))
    return Subject(
        title=title,
        model=model.model,
        text=text,
        ids=tuple(ids),
        labels=labels,
        positions=positions,
        name=name,
        special=special,
        notes=notes,
    )


def _classifier_subject(model: TextClassifier, text: str, title: str) -> Subject:
    ids = model.ids(text)
    unread = model.unread_tokens(text)
    labels = tuple(visible_text(model.tokenizer.token_text(id)) for id in ids)
    notes = (_truncation_note(unread, "last", len(ids) + unread, model.config.model.context),) if unread else ()
    return Subject(
        title=title,
        model=model.model,
        text=text,
        ids=tuple(ids),
        labels=labels,
        positions=(),
        name=lambda id: model.labels[id],
        notes=notes,
    )


def _translation_subject(model: Translator, text: str, target: str | None, title: str) -> Subject:
    """Return the subject of a translation.

    The target ids include the tokens that start every target, but not the final end token, which is to be predicted.
    """
    end = model.tokenizer.end_id
    start = model.tokenizer.target_start
    context = model.config.model.context
    max_target_ids = model.config.model.context - len(start)
    ids = model.prompt_ids(text)
    unread = model.unread_tokens(text)
    notes = [_truncation_note(unread, "last", len(ids) + unread, context)] if unread else []
    if target is None:
        settings = model.config.sample.replace(beams=1, temperature=0.0, repetition_penalty=1.0)
        steps = decoding.generate(model.model, [ids], settings, end, start=start)
        written_ids = [token for step in steps for token in step.tokens if token != end][:max_target_ids]
        notes.append("The target was generated greedily. Give a target to explain a different one.")
    else:
        written_ids = model.tokenizer.encode(target)
        if len(written_ids) > max_target_ids:
            limit = "model.context minus the start tokens"
            notes.append(
                _truncation_note(
                    len(written_ids) - max_target_ids, "last", len(written_ids), max_target_ids, "target", limit
                )
            )
        written_ids = written_ids[:max_target_ids]
    target_ids = (*start, *written_ids)
    return Subject(
        title=title,
        model=model.model,
        text=text,
        ids=tuple(ids),
        labels=tuple(visible_text(model.source_tokenizer.token_text(id)) for id in ids),
        positions=tuple(range(len(target_ids))),
        name=lambda id: visible_text(model.tokenizer.token_text(id)),
        target=model.tokenizer.decode(written_ids) if target is None else target,
        target_ids=target_ids,
        target_labels=tuple(visible_text(model.tokenizer.token_text(id)) for id in target_ids),
        notes=tuple(notes),
    )


def _truncation_note(
    count: int, which: str, total: int, max_tokens: int, what: str = "text", limit: str = "model.context"
) -> str:
    """Return a note on the tokens of a text, or of a target, that the model does not read."""
    unread = f"{count:,} are" if count > 1 else "token is"
    return (
        f"The {what} has {total:,} tokens, but the model reads at most {max_tokens:,} ({limit}): "
        f"the {which} {unread} not read."
    )
