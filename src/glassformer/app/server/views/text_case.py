"""Helpers shared by the views of a text: attribution cases, look-up of tokens by name, and script lines."""

from __future__ import annotations

from typing import Any

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import TextQuestion, script
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted, listed
from glassformer.inspection.attribution import AttributionCase, case_of
from glassformer.inspection.explain import Subject
from glassformer.runs.run_text import stored_text
from glassformer.tasks import AnyTextModel, Translator

MOST_TRACE = 2 << 30
"""Maximum size in bytes of all scores and weights of one pass, for views that need them at the same time."""


def end_of(model: AnyTextModel, question: TextQuestion) -> int | None:
    """Return the id of the end token if a target was given to a run that has targets, else None."""
    return model.tokenizer.end_id if isinstance(model, Translator) and question.target is not None else None


def case_at(
    opened: ServedModel, question: TextQuestion, answer: int | None = None, everywhere: bool = False
) -> AttributionCase:
    """Return the attribution case of a text; see `case_of`."""
    subject = opened.subject(question.text, question.target)
    return case_of(subject, answer, end_of(opened.model, question), everywhere)


def column_at(case: AttributionCase, position: int | None) -> int:
    """Return the index of the output at a position; None: the last one.

    Raises:
        GlassError: there is no output at that position.
    """
    positions = [output.place for output in case.outputs]
    if position is None:
        return len(positions) - 1
    if position not in positions:
        choices = listed(list(map(str, positions)), 8)
        raise GlassError(f"there is no answer at position {position}", f"Choose one of: {choices}.")
    return positions.index(position)


def labels_of(subject: Subject) -> dict[str, Any]:
    """Return the token texts: `row` for the stack before the output head; `source` for a separate source, else None."""
    if subject.target_labels is None:
        return {"row": list(subject.labels), "source": None}
    return {"row": list(subject.target_labels), "source": list(subject.labels)}


def longest_input(subject: Subject) -> str:
    """Return a phrase with the number of tokens of the text or of its target, whichever is longer."""
    target = len(subject.target_ids or ())
    if target > len(subject.ids):
        return f"the target has {counted(target, 'tokens')}"
    return f"the text has {counted(len(subject.ids), 'tokens')}"


def refuse_long(subject: Subject) -> None:
    """Raise a `GlassError` if all scores and weights of the pass would not fit in `MOST_TRACE`."""
    config = subject.model.config
    S = len(subject.ids)
    T = S if subject.target_ids is None else len(subject.target_ids)
    cells = config.layers * T * T
    if subject.target_ids is not None:
        cells += config.layers * T * S + (config.encoder_layers or config.layers) * S * S
    size = 12 * config.heads * cells  # scores, scaled, weights: 4 bytes each
    if size > MOST_TRACE:
        max_tokens = int(max(T, S) * (MOST_TRACE / size) ** 0.5)
        raise GlassError(
            f"{longest_input(subject)}: attention scores and weights would take {size / 2**30:.1f} GiB, "
            f"but at most {MOST_TRACE / 2**30:g} GiB are allowed",
            f"Give inputs of at most about {max_tokens:,} tokens, or use the attention map of one head.",
        )


def refuse_unencoded(opened: ServedModel) -> None:
    """Raise a `GlassError` if the encoded training text is not available, instead of encoding the text again.

    Encoding can take minutes, during which the run's lock would be held and its views blocked.
    """
    stored_text(opened.run.files, opened.run.config)


def case_lines(
    opened: ServedModel, question: TextQuestion, token: str | None = None, everywhere: bool = False
) -> list[str]:
    """Return the lines of a script that create `subject` and `case`."""
    arguments = "" if token is None else f", {opened.model.output_id(token)}"
    if end_of(opened.model, question) is not None:
        arguments += ", end=model.tokenizer.end_id"
    arguments += ", everywhere=True" if everywhere else ""
    target = "" if question.target is None else f", {question.target!r}"
    return [
        "from glassformer.inspection.attribution import case_of",
        "from glassformer.inspection.explain import unshortened_subject_of",
        "",
        f"subject = unshortened_subject_of(model, {question.text!r}{target})",
        f"case = case_of(subject{arguments})",
    ]


def case_script(
    opened: ServedModel, question: TextQuestion, *lines: str, token: str | None = None, everywhere: bool = False
) -> str:
    """Return a script that loads the run, creates the case and runs the given lines."""
    return script(opened, *case_lines(opened, question, token, everywhere), *lines)
