"""Chat with a model that was trained on conversations (glass train --task chat) or that has a chat template.

  glass chat runs/talk
  glass chat runs/talk "Ada lives in Oslo. Ben has the crow. Where does Ada live?"
  glass chat runs/talk --system "Answer in one word." --temperature 0

Without QUESTION, questions are read line by line, and the model reads the conversation so far. /new begins a new
conversation; /quit or the end of the input (Ctrl-D) ends the program. When the conversation no longer fits into the
context, its oldest questions and answers are dropped, and a note is printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.app.cli.backend_option import add_backend
from glassformer.app.cli.generate import names_backend, refuse_unused_penalty, sampling_changes, stop_changes
from glassformer.app.cli.settings import add_section_flags
from glassformer.app.cli.texts import warn_unknown
from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.base.report import SimpleReport, emit

if TYPE_CHECKING:
    from glassformer.tasks import ChatModel
    from glassformer.text.chat_template import Message

PROMPT = "> "
NEW = "/new"
QUIT = "/quit"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass chat`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "question", nargs="?", metavar="QUESTION", help="a single question (default: read questions line by line)"
    )
    parser.add_argument("--system", metavar="TEXT", help="system message at the beginning of the conversation")
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="checkpoint to load (default: best)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    parser.add_argument(
        "--precision", choices=("auto", "fp32", "bf16"), default="fp32", help="floating-point precision (default: fp32)"
    )
    add_backend(parser)
    group = parser.add_argument_group("sampling (defaults: the run's own [sample] settings)")
    add_section_flags(group, "sample", SampleConfig, leave_out=("prompt",))


def run(arguments: argparse.Namespace) -> int:
    """Answer one question, or hold a conversation."""
    from glassformer.backends.choosing import choose_engine
    from glassformer.runs.opening import OpenedRun

    opened = OpenedRun.load(arguments.run, arguments.checkpoint, arguments.device, arguments.precision)
    model = opened.chat_model
    flags = {key: value for key, value in vars(arguments).items() if key.startswith("sample.") and value is not None}
    settings = opened.config.with_changes({**flags, **stop_changes(flags), **sampling_changes(flags)}).sample
    refuse_unused_penalty(flags, settings)
    model.engine = choose_engine(arguments.backend, model.model, settings, 1)
    if names_backend(arguments.backend, model):
        print(f"--- {model.backend}, {model.precision}", file=sys.stderr)
    if arguments.system is not None and not arguments.system.strip():
        raise GlassError("--system is empty", "Give a text, or remove --system.")
    if arguments.system is not None:
        warn_unknown(model, [arguments.system])
    system_messages: list[Message] = [{"role": "system", "content": arguments.system}] if arguments.system else []
    if arguments.question is not None:
        warn_unknown(model, [arguments.question])
        return _answer_one(model, system_messages, arguments.question, settings, arguments.json)
    if arguments.json:
        raise GlassError("--json was given without QUESTION", "Give QUESTION; a conversation has no JSON output.")
    _talk(model, system_messages, settings)
    return 0


def _answer_one(
    model: ChatModel, system_messages: Sequence[Message], question: str, settings: SampleConfig, as_json: bool
) -> int:
    messages: list[Message] = [*system_messages, {"role": "user", "content": question}]
    messages = model.fit_to_context(messages, settings.tokens, len(system_messages))
    pieces = model.reply(messages, settings)
    if as_json:
        text = "".join(pieces)
        facts = {"question": question, "text": text, "backend": model.backend, "precision": model.precision}
        emit(SimpleReport(facts, [text]), as_json)
        return 0
    _show(pieces)
    return 0


def _talk(model: ChatModel, system_messages: Sequence[Message], settings: SampleConfig) -> None:
    """Read questions and print their answers until the input ends; handle `/new` and `/quit`."""
    messages = list(system_messages)
    for question in _questions():
        if question == QUIT:
            return
        if question == NEW:
            messages = list(system_messages)
            continue
        warn_unknown(model, [question])
        conversation: list[Message] = [*messages, {"role": "user", "content": question}]
        try:
            messages = model.fit_to_context(conversation, settings.tokens, len(system_messages))
        except GlassError as error:  # the conversation continues without this question
            print(error, file=sys.stderr)
            continue
        if forgotten := len(conversation) - len(messages):
            print(f"the context is full: the oldest {forgotten} messages were dropped", file=sys.stderr)
        answer = _show(model.reply(messages, settings)).strip()
        messages.append({"role": "assistant", "content": answer})


def _questions() -> Iterator[str]:
    """Yield the non-blank lines of standard input, without surrounding white space; at a terminal, print prompts."""
    while True:
        if sys.stdin.isatty():
            print(PROMPT, end="", flush=True)
        try:
            line = sys.stdin.readline()
        except UnicodeDecodeError:
            raise GlassError(f"standard input is not {sys.stdin.encoding}", "Convert it to UTF-8.") from None
        if not line:
            return
        if line.strip():
            yield line.strip()


def _show(pieces: Iterator[str]) -> str:
    """Print an answer as it is generated, and return it."""
    text = ""
    for piece in pieces:
        print(piece, end="", flush=True)
        text += piece
    print()
    return text
