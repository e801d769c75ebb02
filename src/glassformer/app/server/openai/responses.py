"""Responses of the API: all texts at once, or a stream of events; generation stops when the client disconnects."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from threading import Event
from typing import Any

import anyio
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from glassformer.app.server.engine import Engine, GenerationRequest
from glassformer.app.server.engine.jobs import TextPiece
from glassformer.app.server.json_response import json_response
from glassformer.app.server.openai.errors import error_body
from glassformer.app.server.openai.response_bodies import Choice, ResponseBuilder, Usage
from glassformer.app.server.workers import Workers
from glassformer.base.errors import GlassError

CLIENT_CLOSED_REQUEST = 499
"""Conventional status of a response to a client that has disconnected, and therefore does not receive it."""


@dataclass(frozen=True)
class PendingResponse:
    """Parsed request, ready to be answered.

    Attributes:
        engine: engine of the run.
        generation: generation request with its jobs.
        builder: builder of the response bodies.
        prompt_tokens: number of prompt tokens; each prompt counts once, even if several texts are generated for it.
        search: function that returns all texts without the engine, usually by a beam search that stops when the `Event`
            passed to the function is set; None: the engine generates the texts.
    """

    engine: Engine
    generation: GenerationRequest
    builder: ResponseBuilder
    prompt_tokens: int
    search: Callable[[Event], list[TextPiece]] | None = None

    @property
    def usage(self) -> Usage:
        """Token counts of the prompts and of the texts so far."""
        return Usage(self.prompt_tokens, sum(job.count for job in self.generation.jobs))


async def start_generation(request: Request, pending: PendingResponse, searchers: Workers) -> bool:
    """Submit the generation request to its engine, or run its `search`.

    Returns:
        False if the client disconnected during the search, else True.

    Raises:
        GlassError: the queue is full, the server is stopping, or the search fails.
    """
    if pending.search is None:
        pending.engine.submit(pending.generation.jobs)
        return True
    stopped = Event()
    pieces = list[TextPiece]()
    failed = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_on_disconnect, request, tasks.cancel_scope)
        try:
            pieces = await searchers(pending.search, stopped)
        except GlassError as error:
            failed = error
        finally:
            stopped.set()
        tasks.cancel_scope.cancel()
    if failed is not None:
        raise failed
    pending.engine.count(pending.generation.jobs)
    for piece in pieces:
        pending.generation.put(piece)
    return bool(pieces)


async def complete_response(request: Request, pending: PendingResponse) -> Response:
    """Return the response with all texts of a submitted generation request.

    If the client disconnects, return an empty response with status 499.

    Raises:
        GlassError: the generation of a text failed.
    """
    choices = [Choice(job.choice) for job in pending.generation.jobs]
    failed: GlassError | None = None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on_disconnect, request, tasks.cancel_scope)
            try:
                async for pieces in pending.generation.pieces():
                    for piece in pieces:
                        choices[piece.choice].add(piece)
            except GlassError as error:
                failed = error
            tasks.cancel_scope.cancel()
    finally:
        pending.generation.cancelled = True
    if failed is not None:
        raise failed
    if any(choice.reason is None for choice in choices):
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    return await to_thread.run_sync(lambda: json_response(pending.builder.complete(choices, pending.usage)))


async def _cancel_on_disconnect(request: Request, scope: anyio.CancelScope) -> None:
    """Cancel `scope` when the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class Stream(StreamingResponse):
    """Response as server-sent events; when it ends for any reason, the generation request is cancelled.

    Args:
        pending: request that is already submitted.
        usage: whether the last chunk has the token counts.
    """

    def __init__(self, pending: PendingResponse, usage: bool) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(_events(pending, usage), 200, headers, "text/event-stream")
        self._generation = pending.generation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, as ASGI requires, and cancel the generation request at its end."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._generation.cancelled = True


async def _events(pending: PendingResponse, usage: bool) -> AsyncIterator[bytes]:
    builder = pending.builder
    count = len(pending.generation.jobs)
    choices = [Choice(index) for index in range(count)]
    if first := builder.first_chunks(count):
        yield b"".join(map(_event, first))
    try:
        async for pieces in pending.generation.pieces():
            for piece in pieces:
                choices[piece.choice].add(piece)
            ready = sorted({piece.choice for piece in pieces if choices[piece.choice].has_content})
            if ready:
                yield b"".join(_event(builder.chunk(choices[index])) for index in ready)
            for index in ready:
                choices[index] = Choice(index)
    except GlassError as error:
        yield _event(error_body(error))
        return
    if usage:
        yield _event(builder.usage_chunk(pending.usage))
    yield b"data: [DONE]\n\n"


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n\n"
