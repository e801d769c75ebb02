"""ASGI application: the page and its assets, the list of runs, their views and events, and error responses.

::

    GET  /                        the page
    GET  /api/runs                {"runs": [metadata of each run]}, see `listing`
    GET  /api/views               {"views": [names], "questions": {name: JSON schema of its body}}
    POST /api/runs/RUN/VIEW       the response of a view, see `views`
    POST /api/runs/RUN/write/stream   streamed generated text, see `writing`
    POST /api/runs/RUN/keep       save a new run without some heads, see `keep_pruned`
    GET  /api/runs/RUN/events     metrics and checkpoints of a run that is training, see `events`

The routes of the OpenAI-compatible API are in `openai.routes`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio import from_thread, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from glassformer.app.server.access import Access, AccessMiddleware
from glassformer.app.server.bundle import PAGE, page_routes
from glassformer.app.server.engine import Engines
from glassformer.app.server.events import events_of
from glassformer.app.server.json_response import json_response
from glassformer.app.server.keep_pruned import save_pruned_run
from glassformer.app.server.listing import Listing
from glassformer.app.server.openai import routes as api_routes
from glassformer.app.server.registry import ModelRegistry
from glassformer.app.server.request_errors import RefusedRequestError, as_json, status_of
from glassformer.app.server.workers import Workers
from glassformer.app.server.writing import writing_of
from glassformer.base.errors import GlassError

if TYPE_CHECKING:
    from glassformer.app.server.view import Reply

SEARCHES = 2
"""Maximum number of parallel beam searches."""


def make_app(registry: ModelRegistry, access: Access, page: Path = PAGE, engines: Engines | None = None) -> Starlette:
    """Return the ASGI application of the server.

    Args:
        registry: served runs.
        access: access rules.
        page: folder of the built page.
        engines: engines that generate text for these runs; they are closed when the application stops. None: new
            engines.
    """
    listing = Listing(registry)
    text_engines = engines or Engines(registry)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        """Create the thread pools, and load the first run in the background while the browser loads the page."""
        app.state.workers = Workers()
        app.state.searchers = Workers(SEARCHES)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_open_first, app.state.workers, registry)
            yield
            tasks.cancel_scope.cancel()
        await to_thread.run_sync(text_engines.close)

    async def runs(request: Request) -> Response:
        return json_response({"runs": await request.app.state.workers(listing.all)})

    async def views(request: Request) -> Response:
        return json_response(await request.app.state.workers(_views))

    async def view(request: Request) -> Response:
        run = request.path_params["run"]
        name = request.path_params["view"]
        registry.run(run)  # raises an error for an unknown name, before a lock is created for it
        reply = await request.app.state.workers.of_run(run, _reply, registry, run, name, await request.body(), request)
        return Response(reply.body, media_type="application/octet-stream" if reply.binary else "application/json")

    async def events(request: Request) -> Response:
        return await events_of(request, registry, request.path_params["run"])

    async def stream(request: Request) -> Response:
        return await writing_of(request, registry, text_engines, request.path_params["run"])

    async def keep(request: Request) -> Response:
        result = await request.app.state.workers(
            save_pruned_run, registry, request.path_params["run"], await request.body()
        )
        return json_response(result)

    routes: list[BaseRoute] = [
        Route("/api/runs", runs, methods=["GET"]),
        Route("/api/views", views, methods=["GET"]),
        Route("/api/runs/{run}/events", events, methods=["GET"]),
        Route("/api/runs/{run}/write/stream", stream, methods=["POST"]),
        Route("/api/runs/{run}/keep", keep, methods=["POST"]),
        Route("/api/runs/{run}/{view}", view, methods=["POST"]),
        *api_routes(registry, text_engines),
        *page_routes(page),
    ]
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(AccessMiddleware, access=access)],
        exception_handlers={GlassError: _error_response, HTTPException: _not_found},
    )


def _reply(registry: ModelRegistry, run: str, view: str, body: bytes, request: Request) -> Reply:
    """Return the response of a view; if the client has disconnected, raise an error instead of computing it."""
    from glassformer.app.server.views import find_view  # imported here because importing torch is slow

    page_view = find_view(view)
    question = page_view.parse(body)
    others = [registry.open(name) for name in page_view.others(question)]
    return page_view.reply(registry.open(run), question, others, lambda: from_thread.run(request.is_disconnected))


def _views() -> dict[str, Any]:
    """Return the names of the views, and the JSON schema of each request body."""
    from glassformer.app.server.views import VIEWS

    return {"views": list(VIEWS), "questions": {name: v.question.model_json_schema() for name, v in VIEWS.items()}}


async def _open_first(workers: Workers, registry: ModelRegistry) -> None:
    """Load the first run in advance, so that its first request is fast; ignore errors, which that request reports."""
    for name in registry.names()[:1]:
        try:
            await workers(registry.open, name)
        except GlassError:
            return
        await workers(_views)


async def _error_response(request: Request, error: Exception) -> Response:
    """Return the response for a `GlassError`: JSON for the APIs, otherwise plain text."""
    assert isinstance(error, GlassError)
    if request.url.path.startswith(("/api/", "/v1/")):
        return json_response(as_json(error), status_of(error))
    return PlainTextResponse(f"{error}\n", status_of(error))


async def _not_found(request: Request, error: Exception) -> Response:
    """Return the response for an unknown path, or for a path that does not support the method."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    if error.status_code == 405:
        refusal = RefusedRequestError(
            f"{path} does not support {request.method}",
            "Use a method listed in the Allow header of this response.",
            405,
        )
    else:
        refusal = RefusedRequestError(
            f"unknown path {path}", "Open the page at /, or list the runs at /api/runs.", error.status_code
        )
    response = await _error_response(request, refusal)
    response.headers.update(error.headers or {})
    return response
