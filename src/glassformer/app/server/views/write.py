"""Write: the output of the run for a text, by its task, and the parts copied from the training text.

The response for a run that generates text::

    {"kind": "text", "text": …, "tokens": 40 | null, "ended": "end" | "stop" | "length" | null, "score": -1.2 | null,
     "copied": {"why": null | "…", "least": 16, "share": 0.21, "held_out_share": 0.05, "copied": 0.17, "longest": 40,
                "held_out_longest": 31, "held_out_characters": 4007, "read": 1003854, "whole": true,
                "matches": [{"start": 0, "length": 17, "position": 5120, "before": …, "after": …}],
                "cover": [17, 17, …]}}

The figures of `copied` are those of `glassformer.evaluation.copying.CopyMeter`; `matches` are its first `MOST_MATCHES`
matches. `cover` has, for each character (Unicode code point), the length of the longest
match that contains it, or 0. `read` is the number of characters of the training text that were searched, and `whole` is
true if this is the whole text; the search stops after `SECONDS`, or after `MOST_READ` characters. `why` is the reason
if the training text could not be searched. With `written`, the view searches for this text, which was generated before,
for example by the stream (see `app.server.writing`), and generates nothing.

A chat run reads `history`, and then `text` as the next question.

The response for a classifier is ``{"kind": "label", "labels": [{"name": "ham", "probability": 0.9}]}``, and for a run
of task masked ``{"kind": "holes", "filled": …, "holes": [[{"id": 5, "text": " old", "probability": 0.4}]]}``; the
likeliest label or token is first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import MOST_CHARACTERS, PageView, Text, ViewQuestion, script
from glassformer.app.server.views.text_case import refuse_unencoded
from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.evaluation.copying import copy_meter, cover
from glassformer.evaluation.training_text import held_out_text, training_text
from glassformer.tasks import AnyTextModel, ChatModel, MaskFiller, TextClassifier, TextModel, Translator
from glassformer.text.chat_template import Message

MOST_READ = 30_000_000
"""Approximate maximum number of characters of the training text to search."""
SECONDS = 10.0
"""Approximate maximum time of the search in seconds, during which other views of the run wait."""
MOST_WRITTEN = 50_000
"""Maximum number of characters of a text to search for."""
MOST_MATCHES = 500
"""Maximum number of matches to return."""
MOST_MESSAGES = 1_000
"""Maximum number of messages before the last question of a conversation."""
Stop = Annotated[str, Field(min_length=1, max_length=200)]


class ChatMessage(ViewQuestion):
    """Earlier message of a conversation.

    Attributes:
        role: author of the message.
        content: text of the message.
    """

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(max_length=MOST_CHARACTERS)]


class WriteQuestion(ViewQuestion):
    """Request for the output of a run on a text.

    Attributes:
        text: text to continue, translate, summarize, classify or fill; for a chat run, the question.
        history: for a chat run, the messages before the question, oldest first.
        tokens, temperature, top_k, top_p, min_p, repetition_penalty, seed, beams, length_penalty, stop: as in the
            settings of `sample`; for runs that generate text.
        top: for a run of task masked, the number of candidates for each mask.
        written: generated text to search for in the training text, instead of generating a text.
        least: smallest minimum number of characters of a match; held-out text may require more.
    """

    text: Text
    history: Annotated[tuple[ChatMessage, ...], Field(max_length=MOST_MESSAGES)] = ()
    tokens: Annotated[int, Field(ge=1, le=2_048)] = 100
    temperature: Annotated[float, Field(ge=0, le=10)] = 0.8
    top_k: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=1, le=10)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    beams: Annotated[int, Field(ge=1, le=16)] = 1
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 0.6
    stop: Annotated[tuple[Stop, ...], Field(max_length=4)] = ()
    top: Annotated[int, Field(ge=1, le=50)] = 8
    written: Annotated[str, Field(max_length=MOST_WRITTEN)] | None = None
    least: Annotated[int, Field(ge=4, le=1_000)] = 12

    def read_texts(self) -> tuple[list[str], list[str | None]]:
        """Return the earlier messages and the text."""
        return [*(message.content for message in self.history), self.text], []


SETTINGS = (
    "tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "seed",
    "beams",
    "length_penalty",
    "stop",
)


def settings_of(model: AnyTextModel, question: WriteQuestion) -> SampleConfig:
    """Return the generation settings of a request."""
    return model.config.sample.replace(**{name: getattr(question, name) for name in SETTINGS})


def refuse_history(name: str, model: AnyTextModel, question: WriteQuestion) -> None:
    """Raise a `GlassError` if `history` was given to a run that is not a chat run."""
    if question.history and not isinstance(model, ChatModel):
        raise GlassError(
            f"history was given, but {name} does not answer in conversations",
            "Remove history, or use a run of task chat.",
        )


def conversation_of(model: ChatModel, question: WriteQuestion) -> list[Message]:
    """Return the messages to answer: the question, and the latest messages of the history that fit into the context.

    System messages at the beginning are always included; if possible, room is left for the answer.

    Raises:
        GlassError: the question, with the system messages at the beginning, is longer than the context.
    """
    messages: list[Message] = [{"role": each.role, "content": each.content} for each in question.history]
    messages.append({"role": "user", "content": question.text})
    first = next(index for index, message in enumerate(messages) if message["role"] != "system")
    return model.fit_to_context(messages, question.tokens, first)


def answer(opened: ServedModel, question: WriteQuestion) -> dict[str, Any]:
    """Return the generated text and its matches in the training text, the labels, or the candidates for each mask."""
    model = opened.model
    refuse_history(opened.name, model, question)
    if isinstance(model, TextClassifier):
        (prediction,) = model.classify([question.text])
        labels = [{"name": name, "probability": probability} for name, probability in prediction.probabilities.items()]
        return {"kind": "label", "labels": labels}
    if isinstance(model, MaskFiller):
        candidates_per_mask = model.fill(question.text, question.top)
        return {
            "kind": "holes",
            "filled": model.filled(question.text, candidates_per_mask),
            "holes": [
                [{"id": each.token, "text": each.text, "probability": each.probability} for each in candidates]
                for candidates in candidates_per_mask
            ],
        }
    generated: dict[str, Any] = {"text": question.written, "tokens": None, "ended": None, "score": None}
    if question.written is None:
        settings = settings_of(model, question)
        if isinstance(model, ChatModel):
            sample = model.answer(conversation_of(model, question), settings)
        else:
            (sample,) = model.generate([question.text], settings)
        generated = {"text": sample.text, "tokens": sample.tokens, "ended": sample.ended, "score": sample.score}
    return {"kind": "text", **generated, "copied": _copied(opened, model, generated["text"], question.least)}


def _copied(opened: ServedModel, model: TextModel | Translator, text: str, least: int) -> dict[str, Any]:
    """Return the matches of a text in the training text, or the reason why there are none."""
    counter = _CharacterCounter()
    try:
        refuse_unencoded(opened)
        meter = copy_meter(text, counter.count(training_text(opened.run)), held_out_text(opened.run), least)
    except GlassError as error:
        return {"why": error.problem, "least": least, "read": 0, "whole": False, "matches": [], "cover": []}
    return {
        "why": None,
        **meter.facts(),
        "read": counter.characters,
        "whole": counter.complete,
        "matches": [asdict(match) for match in meter.matches[:MOST_MATCHES]],
        "cover": cover(len(text), meter.matches),
    }


class _CharacterCounter:
    """Counter of the characters read from a text; it stops the reading at `MOST_READ` characters or after `SECONDS`."""

    def __init__(self) -> None:
        self.characters = 0
        self.complete = True

    def count(self, pieces: Iterable[str]) -> Iterator[str]:
        """Yield the pieces of a text until a limit is reached, and count their characters."""
        begun = time.monotonic()
        for piece in pieces:
            if self.characters >= MOST_READ or time.monotonic() - begun > SECONDS:
                self.complete = False
                return
            self.characters += len(piece)
            yield piece


def python(opened: ServedModel, question: WriteQuestion) -> str:
    """Return a script that prints the text and its matches, the labels, or the candidates for each mask."""
    text = question.text
    if isinstance(opened.model, TextClassifier):
        return script(
            opened,
            f"(found,) = model.classify([{text!r}])",
            "for name, probability in found.probabilities.items():",
            "    print(probability, name)",
        )
    if isinstance(opened.model, MaskFiller):
        return script(
            opened,
            f"for hole in model.fill({text!r}, {question.top}):",
            "    for each in hole:",
            "        print(each.probability, each.token, repr(each.text))",
        )
    settings = ", ".join(f"{name}={getattr(question, name)!r}" for name in SETTINGS)
    generation_lines = [f"(sample,) = model.generate([{text!r}], settings)"]
    if isinstance(opened.model, ChatModel):
        messages = conversation_of(opened.model, question)
        generation_lines = [
            "messages = [",
            *(f"    {message!r}," for message in messages),
            "]",
            "sample = model.answer(messages, settings)",
        ]
    return script(
        opened,
        f"settings = model.config.sample.replace({settings})",
        *generation_lines,
        "print(repr(sample.text))",
        f"meter = copy_meter(sample.text, training_text(run), held_out_text(run), {question.least})",
        "print(meter.copied, meter.share, meter.held_out_share)",
        "for match in meter.matches:",
        "    print(match.start, match.length, match.position)",
        imports=[
            "from glassformer.evaluation.copying import copy_meter",
            "from glassformer.evaluation.training_text import held_out_text, training_text",
        ],
    )


VIEW = PageView(WriteQuestion, answer, python)
