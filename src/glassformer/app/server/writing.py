"""Stream generated text as server-sent events: `POST /api/runs/RUN/write/stream` with the body of the view `write`.

::

    data: {"forgotten": 2}                                         first, if messages do not fit into the context:
                                                                   the number of oldest messages left out
    data: {"text": "He said"}                                      repeatedly: new text; only complete characters
                                                                   (beam search: once, with the whole text)
    data: {"ended": "end", "tokens": 40, "score": null}            last event; `score` is a number for beam search
    data: {"error": {"what": …, "remedy": …}}                      last event if the generation fails

If the client closes the stream, sampling stops at the next token, and beam search at the next step. The run's engine
batches the sampled texts of all requests.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from threading import Event
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response

from glassformer.app.server.engine import Engine, Engines, GenerationRequest, TextJob
from glassformer.app.server.registry import ModelRegistry
from glassformer.app.server.request_errors import as_json
from glassformer.app.server.workers import Workers
from glassformer.base.errors import GlassError

if TYPE_CHECKING:
    from glassformer.app.server.engine.loaded import LoadedCheckpoint
    from glassformer.app.server.views.write import WriteQuestion
    from glassformer.tasks import Sample
    from glassformer.text.chat_template import Message


async def writing_of(request: Request, registry: ModelRegistry, engines: Engines, name: str) -> Response:
    """Return the streamed response for one text.

    Raises:
        GlassError: there is no such run, it has no checkpoint yet or does not generate text, the body is not valid,
            the body has a `history` although the run is not a chat run, or the queue is full.
    """
    question = await to_thread.run_sync(_parse, await request.body())
    from glassformer.app.server.views.write import refuse_history  # imported here because it imports torch

    engine = engines.engine(name)
    loaded = await to_thread.run_sync(engine.load)  # raises an error if the run does not generate text
    refuse_history(name, loaded.text_model, question)
    if question.beams > 1:
        pieces = _search_events(request.app.state.searchers, registry, name, question)
    else:
        pieces = await _sampled_events(engine, loaded, question)

    async def events() -> AsyncIterator[ServerSentEvent]:
        try:
            async for piece in pieces:
                yield ServerSentEvent(json.dumps(piece, ensure_ascii=False))
        except GlassError as error:
            yield ServerSentEvent(json.dumps(as_json(error), ensure_ascii=False))

    return EventSourceResponse(events())


def _parse(body: bytes) -> WriteQuestion:
    from glassformer.app.server.views import write

    return write.VIEW.parse(body)


async def _sampled_events(
    engine: Engine, loaded: LoadedCheckpoint, question: WriteQuestion
) -> AsyncIterator[dict[str, Any]]:
    """Submit a text to the engine, and return an iterator over its events.

    The text is submitted before the response starts, so that a full queue results in an HTTP error and not in an event.
    """
    generation = GenerationRequest()
    job, forgotten = await to_thread.run_sync(_job, generation, loaded, question)
    engine.submit([job])

    async def pieces() -> AsyncIterator[dict[str, Any]]:
        try:
            if forgotten:
                yield {"forgotten": forgotten}
            async for new_pieces in generation.pieces():
                text = "".join(piece.text for piece in new_pieces)
                if text:
                    yield {"text": text}
                if new_pieces[-1].last:
                    yield {"ended": new_pieces[-1].ended, "tokens": job.count, "score": None}
        finally:
            generation.cancelled = True

    return pieces()


def _job(generation: GenerationRequest, loaded: LoadedCheckpoint, question: WriteQuestion) -> tuple[TextJob, int]:
    """Return the job that generates a text, and the number of messages omitted from its conversation."""
    from glassformer.app.server.views.write import conversation_of, settings_of
    from glassformer.tasks import ChatModel

    model = loaded.text_model
    settings = settings_of(model, question)
    if not isinstance(model, ChatModel):
        return TextJob(generation, loaded, model.prompt_ids(question.text), settings), 0
    messages = conversation_of(model, question)
    ids = model.conversation_ids(messages)
    job = TextJob(generation, loaded, ids, model.with_stop_strings(settings), extra_end_ids=model.extra_end_ids)
    return job, _left_out(question, messages)


def _left_out(question: WriteQuestion, messages: Sequence[Message]) -> int:
    """Return the number of messages of a conversation that do not fit into the context."""
    return len(question.history) + 1 - len(messages)


class _StoppedError(Exception):
    """Raised to stop a beam search after the client has closed the stream."""


async def _search_events(
    searchers: Workers, registry: ModelRegistry, name: str, question: WriteQuestion
) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of a text found by beam search, after the search has ended."""
    stopped = Event()
    try:
        result = await searchers(_search, registry, name, question, stopped)
        if result is not None:
            sample, forgotten = result
            if forgotten:
                yield {"forgotten": forgotten}
            yield {"text": sample.text}
            yield {"ended": sample.ended, "tokens": sample.tokens, "score": sample.score}
    finally:
        stopped.set()


def _search(registry: ModelRegistry, name: str, question: WriteQuestion, stopped: Event) -> tuple[Sample, int] | None:
    """Return the best text of beam search, and the number of omitted messages; None if the client closed the stream."""
    from glassformer.app.server.views.write import conversation_of, settings_of
    from glassformer.tasks import ChatModel, TextModel, Translator

    model = registry.open(name).copy().text_model
    assert isinstance(model, TextModel | Translator)

    def watch(step: object) -> None:
        if stopped.is_set():
            raise _StoppedError

    prompt: str | list[int] = question.text
    forgotten = 0
    if isinstance(model, ChatModel):
        messages = conversation_of(model, question)
        prompt = model.conversation_ids(messages)
        forgotten = _left_out(question, messages)
    try:
        return model.n_best([prompt], settings_of(model, question), 1, watch)[0][0], forgotten
    except _StoppedError:
        return None
