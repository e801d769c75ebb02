"""Routes of the API.

::

    GET  /v1/models, /v1/models/NAME    the runs that generate text
    POST /v1/completions                continuations of prompts; translations and summaries of sources
    POST /v1/chat/completions           the next message of a conversation, if the run has a chat template
    GET  /health                        {"status": "ok", "runs": number of runs}
    GET  /metrics                       metrics for Prometheus
    GET  /openapi.json                  the OpenAPI document of these routes
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from glassformer.app.server.engine import Engine, Engines, GenerationRequest
from glassformer.app.server.json_response import json_response
from glassformer.app.server.openai.document import document
from glassformer.app.server.openai.errors import read_body, refusal
from glassformer.app.server.openai.request_bodies import ChatBody, CompletionBody, SamplingBody
from glassformer.app.server.openai.responses import (
    CLIENT_CLOSED_REQUEST,
    PendingResponse,
    Stream,
    complete_response,
    start_generation,
)
from glassformer.app.server.registry import ModelRegistry
from glassformer.app.server.request_errors import MEMORY_REMEDY, RefusedRequestError
from glassformer.base.config import WRITERS
from glassformer.base.errors import GlassError, convert_memory_errors
from glassformer.runs.folder import open_run

Handler = Callable[[Request], Awaitable[Response]]
Body = TypeVar("Body", bound=SamplingBody)


def routes(registry: ModelRegistry, engines: Engines) -> list[Route]:
    """Return the routes of the API.

    Args:
        registry: served runs.
        engines: engines of the registry; the caller closes them.
    """

    async def models(request: Request) -> Response:
        return json_response({"object": "list", "data": await to_thread.run_sync(_models, registry)})

    async def model(request: Request) -> Response:
        return json_response(await to_thread.run_sync(_model, registry, request.path_params["model"]))

    async def completions(request: Request) -> Response:
        from glassformer.app.server.openai.generation_requests import prepare_completion

        return await _generate(request, engines, CompletionBody, prepare_completion)

    async def chat(request: Request) -> Response:
        from glassformer.app.server.openai.generation_requests import prepare_chat

        return await _generate(request, engines, ChatBody, prepare_chat)

    async def health(request: Request) -> Response:
        return json_response({"status": "ok", "runs": len(registry.names())})

    async def metrics(request: Request) -> Response:
        return Response(engines.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(request: Request) -> Response:
        return json_response(document())

    def route(path: str, method: str, handler: Handler) -> Route:
        return Route(path, _with_metrics(engines, path, handler), methods=[method])

    return [
        route("/v1/models", "GET", models),
        route("/v1/models/{model}", "GET", model),
        route("/v1/completions", "POST", completions),
        route("/v1/chat/completions", "POST", chat),
        route("/health", "GET", health),
        route("/metrics", "GET", metrics),
        route("/openapi.json", "GET", openapi),
    ]


def _with_metrics(engines: Engines, path: str, handler: Handler) -> Handler:
    """Return a handler that counts its responses in the metrics and sends errors in OpenAI's format."""

    async def endpoint(request: Request) -> Response:
        try:
            response = await handler(request)
        except GlassError as error:
            response = refusal(error)
        engines.metrics.requests.labels(path, response.status_code).inc()
        return response

    return endpoint


async def _generate(
    request: Request,
    engines: Engines,
    kind: type[Body],
    prepare_response: Callable[[Engine, Body, GenerationRequest], PendingResponse],
) -> Response:
    """Parse the body, submit the generation request, and return the whole response or a stream."""
    data = await request.body()
    generation = GenerationRequest()

    def prepare() -> tuple[Body, PendingResponse]:
        body = read_body(kind, data)
        with convert_memory_errors(MEMORY_REMEDY):
            return body, prepare_response(engines.engine(body.model), body, generation)

    body, pending = await to_thread.run_sync(prepare)
    if not await start_generation(request, pending, request.app.state.searchers):
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    return Stream(pending, body.includes_usage) if body.stream else await complete_response(request, pending)


def _models(registry: ModelRegistry) -> list[dict[str, Any]]:
    """Return the runs that generate text, except runs whose settings cannot be read."""
    models = []
    for name in registry.names():
        try:
            models.append(_model(registry, name))
        except GlassError:
            continue
    return models


def _model(registry: ModelRegistry, name: str) -> dict[str, Any]:
    run = open_run(registry.run(name).folder)
    task = run.config().train.task
    if task not in WRITERS:
        raise RefusedRequestError(
            f"{name} was trained with train.task = {task}: it does not generate text",
            "Choose a run from /v1/models, which lists the runs that generate text.",
            404,
        )
    created = int((run.folder / "config.toml").stat().st_mtime)
    return {"id": name, "object": "model", "created": created, "owned_by": "glassformer"}
