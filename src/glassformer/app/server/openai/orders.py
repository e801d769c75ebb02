"""From the body of a request to an order: what the model reads, how it is drawn, and the form of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

from glassformer.app.server.engine import Engine, Order, TextJob
from glassformer.app.server.engine.jobs import TextPiece
from glassformer.app.server.openai.errors import BadRequestError
from glassformer.app.server.openai.request_bodies import MOST_TEXTS, OPENAI, ChatBody, CompletionBody
from glassformer.app.server.openai.response_bodies import ChatShape, CompletionShape
from glassformer.app.server.openai.responses import PendingAnswer
from glassformer.app.server.openai.template import ChatTemplate
from glassformer.base.config import SampleConfig
from glassformer.text.tokenizers import frame_of

if TYPE_CHECKING:
    from glassformer.app.server.engine.loaded import Loaded

DEFAULT_TOKENS = 16
"""Of a completion; OpenAI's own."""
MOST_SCORES = 1 << 18
"""Probabilities of an answer."""


def ask_completion(engine: Engine, body: CompletionBody, order: Order) -> PendingAnswer:
    """Texts that go on after prompts, or are written for sources. It may load the model: not for the event loop.

    Raises:
        GlassError: the run writes no text, or the model cannot read a prompt.
    """
    loaded = engine.load()
    own = loaded.text.config.sample if loaded.reads_whole else OPENAI
    tokens = body.max_tokens or (own.tokens if loaded.reads_whole else DEFAULT_TOKENS)
    try:
        search = body.search(tokens, own)
    except ValueError as error:
        raise BadRequestError(str(error), "Leave one of them out.") from None
    settings = body.settings(tokens, own=own)
    if body.best_of is not None and body.best_of != len(settings):
        raise BadRequestError("best_of is not supported", "Leave it out, or give the same as n.", "best_of")
    if len(body.prompts) * len(settings) > MOST_TEXTS:
        raise BadRequestError(
            f"{len(body.prompts)} prompts with {len(settings)} texts each are more than {MOST_TEXTS} texts",
            "Ask for fewer at once.",
            "prompt",
        )
    if body.echo and body.logprobs is not None:
        raise BadRequestError(
            "echo together with logprobs is not supported: the tokens of the prompt are not scored",
            "Leave one of them out; glass evaluate measures how well a model knows a text.",
            "echo",
        )
    _check_scores(len(body.prompts) * len(settings), settings[0].tokens, body.logprobs, "logprobs")
    prompts = [_read(loaded, prompt) for prompt in body.prompts]
    for ids in prompts:
        for each in settings:
            TextJob(order, loaded, ids, each, body.logprobs)
    before = [_echoed(loaded, prompt) if body.echo else "" for prompt in body.prompts for _ in settings]
    shape = CompletionShape(body.model, loaded.tokenizer, body.logprobs is not None, before)
    found = None if search is None else partial(_search, loaded, order, prompts, search, len(settings))
    return PendingAnswer(engine, order, shape, sum(map(len, prompts)), found)


class _StoppedError(Exception):
    """Nobody waits for the search any more."""


def _search(
    loaded: Loaded, order: Order, prompts: list[list[int]], settings: SampleConfig, wanted: int, stopped: Event
) -> list[TextPiece]:
    """The likeliest texts of each prompt, each in one piece, in the order of the order's jobs; none once `stopped`."""

    def watch(look: object) -> None:
        if stopped.is_set():
            raise _StoppedError

    try:
        found = loaded.searcher().best(prompts, settings, wanted, watch)
    except _StoppedError:
        return []
    samples = [sample for row in found for sample in row]
    for job, sample in zip(order.jobs, samples, strict=True):
        job.count = sample.tokens
    return [TextPiece(job.choice, each.text, ended=each.ended) for job, each in zip(order.jobs, samples, strict=True)]


def ask_chat(engine: Engine, body: ChatBody, order: Order) -> PendingAnswer:
    """The assistant's next turn. It may load the model: not for the event loop.

    Raises:
        GlassError: the run writes no text or has no chat template, or the template refuses the conversation.
    """
    loaded = engine.load()
    if loaded.reads_whole:
        problem = f"{loaded.name} writes a text for a text, and holds no conversations"
        raise BadRequestError(problem, "Use /v1/completions, with the source as the prompt.", "model")
    template = ChatTemplate.of_run(loaded.folder, loaded.tokenizer)
    ids = template.ids([message.plain() for message in body.messages])
    before = list(frame_of(loaded.tokenizer, loaded.text.config).before)
    if ids[: len(before)] != before:  # a template may write the start token itself
        ids = [*before, *ids]
    ids = ids or [loaded.tokenizer.start_id]
    _check_length(loaded, ids, "messages")
    stop, stop_ids = template.ending
    tokens = body.max_completion_tokens or body.max_tokens or loaded.text.config.sample.tokens
    scores = (body.top_logprobs or 0) if body.logprobs else None
    settings = body.settings(tokens, stop)
    _check_scores(len(settings), tokens, scores, "top_logprobs")
    for each in settings:
        TextJob(order, loaded, ids, each, scores, stop_ids)
    return PendingAnswer(engine, order, ChatShape(body.model, loaded.tokenizer, bool(body.logprobs)), len(ids))


def _read(loaded: Loaded, prompt: str | Sequence[int]) -> list[int]:
    """Return the token ids of a prompt; refuse a prompt that is too long or has ids outside the vocabulary."""
    if isinstance(prompt, str):
        unread = getattr(loaded.text, "unread_tokens", None)  # a translator would cut what is too long
        ids = loaded.text.prompt_ids(prompt)
        _check_length(loaded, ids, "prompt", 0 if unread is None else unread(prompt))
    else:
        ids = list(prompt)
        _check_length(loaded, ids, "prompt")
    most = loaded.vocabulary
    outside = next((id for id in ids if id >= most), None)
    if outside is not None:
        problem = f"the prompt holds the token {outside}, outside the vocabulary"
        raise BadRequestError(problem, f"Ids of this model go from 0 to {most - 1}.", "prompt")
    return ids


def _check_length(loaded: Loaded, ids: Sequence[int], name: str, unread: int = 0) -> None:
    """Refuse what the model would read only in part."""
    if len(ids) + unread > loaded.context:
        raise BadRequestError(
            f"{name} has {len(ids) + unread} tokens, and the model reads at most {loaded.context}",
            "Send less; what is written may go beyond that, and the beginning is then forgotten.",
            name,
            "context_length_exceeded",
        )


def _check_scores(texts: int, tokens: int, scores: int | None, name: str) -> None:
    """Refuse an answer of very many probabilities, which is kept whole until it is sent."""
    if scores is not None and texts * tokens * (1 + scores) > MOST_SCORES:
        raise BadRequestError(
            f"{texts} texts of {tokens} tokens with {1 + scores} probabilities each are more than {MOST_SCORES:,}",
            "Ask for fewer texts, tokens or probabilities at once.",
            name,
        )


def _echoed(loaded: Loaded, prompt: str | Sequence[int]) -> str:
    return prompt if isinstance(prompt, str) else loaded.reader.decode(prompt)
