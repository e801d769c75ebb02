"""Text as it is written, as server-sent events: `POST /api/runs/RUN/write/stream` with the body of the view `write`.

::

    data: {"text": "He said"}                                      again and again: whole characters
    data: {"ended": "end", "tokens": 40, "score": null}            at last; of beam search with its score
    data: {"error": {"what": …, "remedy": …}}                      instead, where it cannot go on

Who closes the stream stops the writing: drawn text, which the run's engine writes beside all others, at its next token,
and beam search at its next step.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from threading import Event
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response

from glassformer.app.server.engine import Engine, Engines, Order, TextJob
from glassformer.app.server.registry import ModelRegistry
from glassformer.app.server.request_errors import as_json
from glassformer.app.server.workers import Workers
from glassformer.base.errors import GlassError

if TYPE_CHECKING:
    from glassformer.app.server.views.write import WriteQuestion


async def writing_of(request: Request, registry: ModelRegistry, engines: Engines, name: str) -> Response:
    """The stream of one text.

    Raises:
        GlassError: there is no such run, it writes no text, the body is no question, or the queue is full.
    """
    question = await to_thread.run_sync(_asked, await request.body())
    engine = engines.engine(name)
    loaded = await to_thread.run_sync(engine.load)  # refuses a run that writes no text
    if question.beams > 1:
        pieces = _searched(request.app.state.searchers, registry, name, question)
    else:
        pieces = await _drawn(engine, loaded, question)

    async def events() -> AsyncIterator[ServerSentEvent]:
        try:
            async for piece in pieces:
                yield ServerSentEvent(json.dumps(piece, ensure_ascii=False))
        except GlassError as error:
            yield ServerSentEvent(json.dumps(as_json(error), ensure_ascii=False))

    return EventSourceResponse(events(), send_timeout=10)


def _asked(body: bytes) -> WriteQuestion:
    from glassformer.app.server.views import write

    return write.VIEW.asked(body)


async def _drawn(engine: Engine, loaded: Any, question: WriteQuestion) -> AsyncIterator[dict[str, Any]]:
    """One row of the engine's batch; it is submitted at once, so that a full queue is a status and not an event."""
    from glassformer.app.server.views.write import settings_of

    ids = await to_thread.run_sync(loaded.text.prompt_ids, question.text)
    order = Order()
    job = TextJob(order, loaded, ids, settings_of(loaded.text, question))
    engine.submit([job])

    async def pieces() -> AsyncIterator[dict[str, Any]]:
        try:
            async for found in order.pieces():
                text = "".join(piece.text for piece in found)
                if text:
                    yield {"text": text}
                if found[-1].last:
                    yield {"ended": found[-1].ended, "tokens": job.count, "score": None}
        finally:
            order.cancelled = True

    return pieces()


class _StoppedError(Exception):
    """Nobody waits for the search any more."""


async def _searched(
    searchers: Workers, registry: ModelRegistry, name: str, question: WriteQuestion
) -> AsyncIterator[dict[str, Any]]:
    """Beam search has its text when it is over."""
    stopped = Event()
    try:
        sample = await searchers(_search, registry, name, question, stopped)
        if sample is not None:
            yield {"text": sample.text}
            yield {"ended": sample.ended, "tokens": sample.tokens, "score": sample.score}
    finally:
        stopped.set()


def _search(registry: ModelRegistry, name: str, question: WriteQuestion, stopped: Event) -> Any:
    """The likeliest text; None where nobody waits for it any more."""
    from glassformer.app.server.views.write import settings_of
    from glassformer.tasks import TextModel, Translator

    model = registry.open(name).copy().text_model
    assert isinstance(model, TextModel | Translator)

    def watch(look: object) -> None:
        if stopped.is_set():
            raise _StoppedError

    try:
        return model.best([question.text], settings_of(model, question), 1, watch)[0][0]
    except _StoppedError:
        return None
