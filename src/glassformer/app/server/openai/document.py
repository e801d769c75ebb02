"""The OpenAPI document, made from the bodies."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic.json_schema import models_json_schema

from glassformer import __version__
from glassformer.app.server.openai.request_bodies import ChatBody, CompletionBody


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {kind: {"schema": schema}}}


JSON = "application/json"
TEXT = "text/plain"
EVENTS = "text/event-stream"
ALWAYS = {
    401: "the token of the server is missing or another one",
    403: "a page of another origin asked",
    421: "the server was asked under another name than its own",
}
"""Before a request reaches the API."""
WRITING = {
    400: "a parameter is wrong, unknown or not supported, or the run cannot do it",
    404: "no run of that name is served",
    408: "the body did not come in time",
    409: "the run has no checkpoint yet",
    413: "the body is too large",
    429: "the queue is full: Retry-After says when to ask again",
    503: "the server is stopping",
}
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message"],
            "properties": {
                "message": {"type": "string", "description": "two lines: what happened, and what to do"},
                "what": {"type": "string"},
                "remedy": {"type": "string"},
                "type": {"type": ["string", "null"]},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
ANSWER = {
    "type": "object",
    "required": ["id", "object", "created", "model", "choices"],
    "properties": {
        "id": {"type": "string"},
        "object": {"type": "string"},
        "created": {"type": "integer"},
        "model": {"type": "string"},
        "choices": {"type": "array", "items": {"type": "object", "required": ["index", "finish_reason"]}},
        "usage": {"type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens"]},
    },
}
MODEL = {
    "type": "object",
    "required": ["id", "object", "created", "owned_by"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "model"},
        "created": {"type": "integer"},
        "owned_by": {"type": "string"},
    },
}
MODELS = {
    "type": "object",
    "required": ["object", "data"],
    "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": _ref("Model")}},
}
EVENT = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"type": "string", "description": "a part of the answer as JSON; in the end [DONE]"}},
}
HEALTH = {
    "type": "object",
    "required": ["status", "runs"],
    "properties": {"status": {"const": "ok"}, "runs": {"type": "integer"}},
}


@cache
def document() -> dict[str, Any]:
    """The API as OpenAPI 3.1 describes it; not to be changed."""
    _, schemas = models_json_schema(
        [(CompletionBody, "validation"), (ChatBody, "validation")], ref_template="#/components/schemas/{model}"
    )
    named = {"Error": ERROR, "Answer": ANSWER, "Model": MODEL, "Models": MODELS, "Health": HEALTH}
    name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "glassformer", "version": __version__, "description": "The API of OpenAI, for your runs."},
        "security": [{"token": []}],
        "paths": {
            "/v1/models": {"get": _get("the runs that write text", "Models")},
            "/v1/models/{model}": {
                "get": {**_get("one run", "Model", {404: "no run of that name writes text"}), "parameters": [name]}
            },
            "/v1/completions": {"post": _post("texts that go on after a prompt", "CompletionBody")},
            "/v1/chat/completions": {"post": _post("the next turn of a conversation", "ChatBody")},
            "/health": {"get": {**_get("whether the server answers", "Health"), "security": []}},
            "/metrics": {"get": _get("counters, for Prometheus", None, kind=TEXT)},
            "/openapi.json": {"get": _get("this document", None)},
        },
        "components": {
            "schemas": {**schemas.get("$defs", {}), **named},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _get(what: str, answer: str | None, errors: dict[int, str] | None = None, kind: str = JSON) -> dict[str, Any]:
    """An address that is read; `answer` names the schema of what comes back, None: anything."""
    content = _content(kind, _ref(answer) if answer else {})
    return {"summary": what, "responses": {"200": {"description": what, **content}, **_errors(errors or {}, TEXT)}}


def _post(what: str, body: str) -> dict[str, Any]:
    """An address that writes; the answer is JSON, or with stream = true events of such JSON."""
    answer = {JSON: {"schema": _ref("Answer")}, EVENTS: {"schema": EVENT}}
    return {
        "summary": what,
        "requestBody": {"required": True, **_content(JSON, _ref(body))},
        "responses": {"200": {"description": what, "content": answer}, **_errors(WRITING)},
    }


def _errors(more: dict[int, str], *kinds: str) -> dict[str, Any]:
    """Errors are JSON; outside of /v1 some are text."""
    told = sorted({**ALWAYS, **more}.items())
    content = {JSON: {"schema": _ref("Error")}, **{kind: {"schema": {"type": "string"}} for kind in kinds}}
    return {str(status): {"description": what, "content": content} for status, what in told}
