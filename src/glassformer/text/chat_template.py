"""Render a conversation as one text with a chat template, and locate the assistant's answers in the text.

A template is written in Jinja, as in Hugging Face's libraries: it receives `messages`, `add_generation_prompt`,
`bos_token` and `eos_token`, and may call `raise_exception(message)` and `strftime_now(format)`. It runs in a sandbox
with bounded work (`template_limits`), and comes from the settings or the folder of a run, never from a web request.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from typing import Any

from jinja2 import TemplateError, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.runtime import Context

from glassformer.base.errors import GlassError
from glassformer.text.records import END_MARK, START_MARK, Spans
from glassformer.text.special_names import MARK, SpecialNames
from glassformer.text.template_limits import WORK, BoundedEnvironment, Work, work_of

NO_NAMES = SpecialNames()
Message = Mapping[str, Any]
"""A message of a conversation, with the keys `role` and `content`; also `weight` = 0 if it is not in the loss."""
MOST_CHARACTERS = 100_000
"""Maximum size of a template, because compiling takes up to seconds; the largest published ones have about 30,000."""
MOST_INDENT = 16
MOST_DATE_CHARACTERS = 100


class _Generation(Extension):
    """Jinja extension for `{% generation %}…{% endgeneration %}` around an answer; it renders the body unchanged."""

    tags = {"generation"}  # noqa: RUF012 as Jinja declares it

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller: Any) -> Any:
        return caller()


class ChatTemplate:
    """A compiled chat template.

    Args:
        source: text of the template.

    Raises:
        GlassError: the text is too long, or not a valid template.
    """

    def __init__(self, source: str) -> None:
        if len(source) > MOST_CHARACTERS:
            raise GlassError(
                f"the chat template has {len(source):,} characters, but at most {MOST_CHARACTERS:,} are allowed",
                "Give a shorter template.",
            )
        environment = BoundedEnvironment([loopcontrols, _Generation])
        environment.add_filter("tojson", _to_json)
        environment.globals.update(raise_exception=_raise, strftime_now=_now)
        self.source = source
        self.unwritten_roles = lru_cache(maxsize=1000)(self._find_unwritten_roles)
        try:
            self._template = environment.from_string(source)
        except Exception as error:  # besides TemplateError: Python's errors if it compiles Jinja's code, or recursion
            raise GlassError(
                f"the chat template is not valid: {_message(error)}",
                "Correct data.chat_template or chat_template.jinja.",
            ) from None

    def render(self, messages: Sequence[Message], next_turn: bool, bos_token: str, eos_token: str) -> str:
        """Return a conversation as text.

        Args:
            messages: the conversation.
            next_turn: whether to add the text that precedes the assistant's next answer.
            bos_token: text of the start token.
            eos_token: text of the end token.

        Raises:
            GlassError: the template refuses the conversation, or fails.
        """
        variables = {
            "messages": messages,
            "add_generation_prompt": next_turn,
            "bos_token": bos_token,
            "eos_token": eos_token,
            WORK: Work(sum(len(message["content"]) for message in messages)),
        }
        try:
            text = self._template.render(variables)
            text.encode("utf-8")  # a template may write a lone surrogate
            return text
        except TemplateError as error:
            problem = f"the chat template refuses this conversation: {str(error)[:200]}"
            raise GlassError(problem, "Give messages that the template accepts, or another template.") from None
        except Exception as error:  # a template is a program, and may fail in any way
            problem = f"the chat template fails: {_message(error)}"
            raise GlassError(problem, "Correct data.chat_template or chat_template.jinja.") from None

    def _find_unwritten_roles(self, roles: tuple[str, ...], next_turn: bool) -> tuple[str, ...]:
        """Return the roles of messages that the template does not write, for a conversation with these roles.

        The result is empty if the template refuses such a conversation of placeholder messages.
        """
        messages = [{"role": role, "content": f"glassformer message {number}."} for number, role in enumerate(roles)]
        unwritten = set()
        with suppress(GlassError):
            text = self.render(messages, next_turn, START_MARK, END_MARK)
            lower_text = text.lower()
            for number, message in enumerate(messages):
                if message["content"] not in lower_text:
                    changed = [*messages]
                    changed[number] = {**message, "content": "another text"}
                    if self.render(changed, next_turn, START_MARK, END_MARK) == text:
                        unwritten.add(message["role"])
        return tuple(sorted(unwritten))

    def marked(self, messages: Sequence[Message], next_turn: bool, names: SpecialNames) -> str:
        """Return a conversation as text with a mark for each special token that the template writes.

        Args:
            messages: the conversation, in which names of special tokens are hidden (`SpecialNames.hide`).
            next_turn: whether to add the text that precedes the assistant's next answer.
            names: names of the special tokens that the template may write.

        Raises:
            GlassError: as in `render`.
        """
        return names.mark(self.render(messages, next_turn, START_MARK, END_MARK))

    def pieces(self, messages: Sequence[Message], next_turn: bool, names: SpecialNames = NO_NAMES) -> list[str]:
        """Return a conversation as pieces of text; every second piece is an answer with the mark or text that ends it.

        A mark replaces each special token that the template writes; an answer ends with the first mark after it. Each
        piece is encoded separately, so an answer has the same tokens in any position. There is only one piece if there
        is no answer, or if adding a message changes how the template renders earlier messages or the text before an
        answer.

        Raises:
            GlassError: as in `render`.
        """
        hidden = [{**message, "content": names.hide(message["content"])} for message in messages]
        rendered = self.marked(hidden, next_turn, names)
        borders = [0]
        for number, message in enumerate(hidden):
            if message["role"] == "assistant":
                prompt = self.marked(hidden[:number], True, names)
                answered = self.marked(hidden[: number + 1], False, names)
                if not rendered.startswith(answered):  # some templates end every conversation with an end token
                    answered = answered.removesuffix(END_MARK)
                if not answered.startswith(prompt) or not rendered.startswith(answered) or len(prompt) < borders[-1]:
                    return [names.show(rendered)]
                answer = answered.removeprefix(prompt)
                borders += [len(prompt), len(prompt) + _answer_length(answer, message["content"])]
        return [names.show(rendered[start:stop]) for start, stop in pairwise([*borders, len(rendered)])]

    def training_text(self, messages: Sequence[Message], names: SpecialNames = NO_NAMES) -> tuple[str, Spans]:
        """Return a conversation as one text, and the spans in that text of its answers, except answers of weight 0.

        A mark replaces each special token. A final end token is left out, because every row ends with one. An initial
        start token is left out if rows begin with one.

        Raises:
            GlassError: as in `render`; or there is no answer, or the answers cannot be located in the text.
        """
        pieces = self.pieces(messages, False, names)
        if len(pieces) < 2:
            raise GlassError(
                "the chat template changes the text of earlier messages, or the text before an answer, when a message "
                "is added, so answers cannot be located",
                "Use a template that appends each message and leaves the text before it unchanged.",
            )
        if names.starts:
            pieces[0] = pieces[0].removeprefix(START_MARK)
        text = "".join(pieces)
        trimmed = text.removesuffix(END_MARK)
        taught = [message.get("weight") != 0 for message in messages if message["role"] == "assistant"]
        spans = []
        start = 0
        for number, piece in enumerate(pieces):
            if number % 2 and taught[number // 2]:
                spans.append((start, min(start + len(piece), len(trimmed))))
            start += len(piece)
        return trimmed, tuple(spans)


def _answer_length(text: str, content: str) -> int:
    """Return the length of an answer and the special token that ends it; `len(text)` if there is no such token.

    Args:
        text: the answer, followed by text of the template.
        content: content of the message.
    """
    without_names = MARK.sub(lambda mark: END_MARK * len(mark.group()), text)  # a name may contain the answer
    start = without_names.rfind(content.strip())
    if start < 0:  # the template changed the answer
        return max((mark.end() for mark in MARK.finditer(text)), default=len(text))
    end_mark = MARK.search(text, start + len(content.strip()))
    return len(text) if end_mark is None else end_mark.end()


def _message(error: Exception) -> str:
    """Return the message of an error in one line; for errors that are not Jinja's, with their type."""
    text = " ".join(str(error).split())[:200]
    return text if isinstance(error, TemplateError) else f"{type(error).__name__}: {text}"


@pass_context
def _to_json(context: Context, value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    """Return a value as JSON, without the escapes that Jinja's own filter adds for web pages."""
    if (isinstance(indent, int) and indent > MOST_INDENT) or isinstance(indent, str):
        raise TemplateError(f"tojson(indent={str(indent)[:20]}), but at most {MOST_INDENT} are allowed")
    pieces = []
    for piece in json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent).iterencode(value):
        work_of(context).spend(len(piece))
        pieces.append(piece)
    return "".join(pieces)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _now(date_format: str) -> str:
    if len(date_format) > MOST_DATE_CHARACTERS or re.search(r"\d\d", date_format):  # strftime pads to a width
        raise TemplateError(f"strftime_now({date_format[:20]!r}) is not allowed")
    return datetime.datetime.now().strftime(date_format)
