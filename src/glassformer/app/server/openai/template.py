"""Chat templates: from a conversation to the tokens that the model reads, and what ends its answer.

A template is Jinja, as in Hugging Face's libraries: it is given `messages`, `add_generation_prompt`, `bos_token` and
`eos_token`, and may call `raise_exception(message)` and `strftime_now(format)`. It runs in a sandbox, and comes from
the run folder, never from a request.
"""

from __future__ import annotations

import datetime
import json
import re
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from glassformer.app.server.openai.errors import BadRequestError
from glassformer.base.errors import GlassError
from glassformer.text.tokenizers import Tokenizer

FILE = "chat_template.jinja"
TURNS = ("glassformer-first-question", "glassformer-answer", "glassformer-second-question")
"""Stand in a conversation for texts, to see what the template writes between them."""
HIDDEN = "\ue000{}\ue001"
"""Stands for the name of a special token that a person wrote: it stays text."""


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks what an assistant says; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012 Jinja's own name and kind

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller: Any) -> Any:
        return caller()


class ChatTemplate:
    """The chat template of a run.

    Args:
        source: its text.
        tokenizer: of the run.

    Raises:
        GlassError: it is no template.
    """

    def __init__(self, source: str, tokenizer: Tokenizer) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        environment.filters["tojson"] = _to_json
        environment.globals.update(raise_exception=_raise, strftime_now=_now)
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise GlassError(f"{FILE} is no template: {error}", "Put it right in the run folder.") from None
        self._tokenizer = tokenizer
        names = {tokenizer.token_text(id): id for id in tokenizer.special}
        self._special = {name: id for name, id in names.items() if name and name in source} | self._framing()
        self._cut = re.compile("|".join(map(re.escape, sorted(self._special, key=len, reverse=True))) or r"(?!)")

    @classmethod
    def of_run(cls, folder: Path, tokenizer: Tokenizer) -> ChatTemplate:
        """The template of a run folder.

        Raises:
            GlassError: there is none, or it is none.
        """
        try:
            return cls((folder / FILE).read_text(encoding="utf-8"), tokenizer)
        except FileNotFoundError:
            raise BadRequestError(
                f"{folder.name} has no chat template, so it does not know how conversations are written",
                f"Use /v1/completions, or put the template that it was trained with into its folder as {FILE}.",
                "model",
                "no_chat_template",
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise GlassError(f"{FILE} cannot be read: {error}", "Put it right in the run folder.") from None

    def ids(self, messages: list[dict[str, str]]) -> list[int]:
        """Return the token ids of a conversation, up to the beginning of the assistant's next turn.

        Raises:
            GlassError: the template refuses it, or it is not valid Unicode.
        """
        hidden = [{name: self._hide(text) for name, text in message.items()} for message in messages]
        text = self._render(hidden, next_turn=True)
        ids = list[int]()
        at = 0
        for found in self._cut.finditer(text):
            ids += [*self._tokenizer.encode(self._show(text[at : found.start()])), self._special[found.group()]]
            at = found.end()
        return [*ids, *self._tokenizer.encode(self._show(text[at:]))]

    @cached_property
    def ending(self) -> tuple[tuple[str, ...], frozenset[int]]:
        """Stop texts and stop ids of an answer: the text or special token before the next question."""
        question, answer, other = TURNS
        roles = zip(("user", "assistant", "user"), TURNS, strict=True)
        text = self._render([{"role": role, "content": content} for role, content in roles], next_turn=False)
        between = text.partition(answer)[2].partition(other)
        if question not in text or not between[1]:
            return (), frozenset()
        special = self._cut.search(between[0])
        if special is not None:
            return (), frozenset({self._special[special.group()]})
        stop = between[0].rstrip() or between[0]
        return ((stop,) if stop else ()), frozenset()

    def _render(self, messages: list[dict[str, str]], next_turn: bool) -> str:
        names = {name: self._tokenizer.token_text(id) for name, id in self._roles().items()}
        try:
            return self._template.render(messages=messages, add_generation_prompt=next_turn, **names)
        except TemplateError as error:
            problem = f"the chat template refuses this conversation: {error}"
            raise BadRequestError(problem, "Send turns as the model was trained on.", "messages") from None
        except Exception as error:  # a template is a program, and may fail in any way
            problem = f"the chat template fails: {type(error).__name__}: {str(error)[:200]}"
            raise BadRequestError(problem, f"Put {FILE} right in the run folder.", "messages") from None

    def _roles(self) -> dict[str, int]:
        return {"bos_token": self._tokenizer.start_id, "eos_token": self._tokenizer.end_id}

    def _framing(self) -> dict[str, int]:
        return {self._tokenizer.token_text(id): id for id in self._roles().values()}

    def _hide(self, text: str) -> str:
        return self._cut.sub(lambda found: HIDDEN.format(list(self._special).index(found.group())), text)

    def _show(self, text: str) -> str:
        for index, name in enumerate(self._special):
            text = text.replace(HIDDEN.format(index), name)
        return text


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    """JSON as it is, without the escapes that Jinja adds for web pages."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)
