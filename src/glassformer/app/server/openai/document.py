"""OpenAPI document of the API, built from the request bodies."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic.json_schema import models_json_schema

from glassformer.app.server.openai.request_bodies import ChatBody, CompletionBody
from glassformer.base.version import __version__


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {kind: {"schema": schema}}}


JSON = "application/json"
TEXT = "text/plain"
EVENTS = "text/event-stream"
ACCESS_ERRORS = {
    401: "the token is missing or wrong",
    403: "the request came from a page of another origin",
    421: "the host name is not a name of the server",
}
"""HTTP status -> meaning, for the access errors of all paths."""
GENERATION_ERRORS = {
    400: "a parameter is invalid, unknown or not supported, or the run does not support the request",
    404: "no run with that name is served",
    408: "the body did not arrive in time",
    409: "the run has no checkpoint yet",
    413: "the body is too large",
    429: "the queue is full, in which case Retry-After gives the seconds to wait, or too many searches wait",
    503: "the server is stopping, or there is not enough memory",
}
"""HTTP status -> meaning, for the errors of the paths that generate text."""
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message"],
            "properties": {
                "message": {"type": "string", "description": "two lines: the problem, and the remedy"},
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
        "notes": {
            "type": "array",
            "items": {"type": "string"},
            "description": "notes on the prompts and the run, such as unknown characters; absent if none",
        },
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
    "properties": {"data": {"type": "string", "description": "a chunk of the response as JSON; finally [DONE]"}},
}
HEALTH = {
    "type": "object",
    "required": ["status", "runs"],
    "properties": {"status": {"const": "ok"}, "runs": {"type": "integer"}},
}


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document. It is cached: do not change it."""
    _, schemas = models_json_schema(
        [(CompletionBody, "validation"), (ChatBody, "validation")], ref_template="#/components/schemas/{model}"
    )
    response_schemas = {"Error": ERROR, "Answer": ANSWER, "Model": MODEL, "Models": MODELS, "Health": HEALTH}
    model_parameter = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "glassformer", "version": __version__, "description": "OpenAI-compatible API for your runs."},
        "security": [{"token": []}],
        "paths": {
            "/v1/models": {"get": _get("list the runs that generate text", "Models")},
            "/v1/models/{model}": {
                "get": {
                    **_get("get one run", "Model", {404: "no run with that name generates text"}),
                    "parameters": [model_parameter],
                }
            },
            "/v1/completions": {"post": _post("continue prompts, or translate or summarize sources", "CompletionBody")},
            "/v1/chat/completions": {"post": _post("generate the next message of a conversation", "ChatBody")},
            "/health": {"get": {**_get("check that the server answers", "Health"), "security": []}},
            "/metrics": {"get": _get("get metrics for Prometheus", None, kind=TEXT)},
            "/openapi.json": {"get": _get("get this document", None)},
        },
        "components": {
            "schemas": {**schemas.get("$defs", {}), **response_schemas},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _get(
    summary: str, schema_name: str | None, errors: dict[int, str] | None = None, kind: str = JSON
) -> dict[str, Any]:
    """Return the entry of a GET path; `schema_name` is the name of the response schema (None: any content)."""
    content = _content(kind, _ref(schema_name) if schema_name else {})
    return {
        "summary": summary,
        "responses": {"200": {"description": summary, **content}, **_errors(errors or {}, TEXT)},
    }


def _post(summary: str, body: str) -> dict[str, Any]:
    """Return the entry of a POST path; the response is JSON, or a stream of JSON events with stream = true."""
    answer = {JSON: {"schema": _ref("Answer")}, EVENTS: {"schema": EVENT}}
    return {
        "summary": summary,
        "requestBody": {"required": True, **_content(JSON, _ref(body))},
        "responses": {"200": {"description": summary, "content": answer}, **_errors(GENERATION_ERRORS)},
    }


def _errors(errors: dict[int, str], *kinds: str) -> dict[str, Any]:
    """Return the entries of error responses, whose content is JSON or has one of the media types in `kinds`."""
    statuses = sorted({**ACCESS_ERRORS, **errors}.items())
    content = {JSON: {"schema": _ref("Error")}, **{kind: {"schema": {"type": "string"}} for kind in kinds}}
    return {str(status): {"description": meaning, "content": content} for status, meaning in statuses}
