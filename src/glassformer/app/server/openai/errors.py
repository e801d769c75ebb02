"""Errors as OpenAI's clients expect them: a message, a type, the parameter that is wrong, and a code."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.responses import Response

from glassformer.app.server.engine.engine import BusyError
from glassformer.app.server.request_errors import RefusedRequestError, as_json, status_of
from glassformer.base.errors import GlassError

Body = TypeVar("Body", bound=BaseModel)
CODES = {404: "model_not_found", 429: "queue_full"}
NEUTRAL = {
    "best_of": "leave it out, or give the same as n",
    "frequency_penalty": "leave it out, or give 0",
    "presence_penalty": "leave it out, or give 0",
    "logit_bias": "leave it out",
    "suffix": "leave it out",
    "tools": "leave it out",
    "response_format": 'leave it out, or give {"type": "text"}',
    "modalities": 'leave it out, or give ["text"]',
}
"""What of OpenAI's is not supported here, and what to do."""


class BadRequestError(RefusedRequestError):
    """A request that cannot be answered as it is.

    Args:
        problem, remedy: as of `GlassError`.
        parameter: the name of what is wrong; None: the whole of it.
        code: a word for programs.
    """

    def __init__(self, problem: str, remedy: str, parameter: str | None = None, code: str | None = None) -> None:
        super().__init__(problem, remedy, 400)
        self.parameter = parameter
        self.code = code


def error_body(error: GlassError) -> dict[str, Any]:
    """The body of an answer that is an error."""
    body = as_json(error)
    body["error"]["code"] = body["error"]["code"] or CODES.get(status_of(error))
    return body


def refusal(error: GlassError) -> Response:
    """The answer that is an error."""
    headers = {"retry-after": str(error.seconds)} if isinstance(error, BusyError) else {}
    return json_response(error_body(error), status_of(error), headers)


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Every script as it is; a lone surrogate, which is no Unicode, as an escape."""
    body = json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace")
    return Response(body, status, headers, media_type="application/json")


def read_body(kind: type[Body], data: bytes) -> Body:
    """The body of a request.

    Raises:
        BadRequestError: it is no JSON, or not what is asked for.
    """
    try:
        value = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise BadRequestError(f"the body is no JSON: {str(error)[:200]}", "Send UTF-8, as docs/api.md shows.") from None
    if not isinstance(value, dict):
        raise BadRequestError("the body is no JSON object", "Send one, as docs/api.md shows.")
    unknown = next((name for name in value if name not in kind.model_fields), None)  # first: there may be very many
    if unknown is not None:
        problem = f"{unknown[:60]!r} is not known here"
        remedy = "Leave it out; docs/api.md lists what is known."
        raise BadRequestError(problem, remedy, unknown[:60], "unknown_parameter")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise _as_bad_request(error) from None


def _as_bad_request(error: ValidationError) -> BadRequestError:
    """Convert a validation error to a `BadRequestError` about its first fault.

    For a field that allows several types, prefer the fault of the type that was given to a type mismatch.
    """
    found = error.errors(include_url=False, include_context=False, include_input=False)
    same = [each for each in found if each["loc"][:1] == found[0]["loc"][:1]]
    first = next((each for each in same if not each["type"].endswith("_type")), found[0])
    name = str(first["loc"][0]) if first["loc"] else None
    if name is None:
        return BadRequestError(first["msg"].removeprefix("Value error, "), "See docs/api.md for what is allowed.")
    if name in NEUTRAL:
        problem = f"{name} is not supported"
        remedy = f"To go on without it, {NEUTRAL[name]}."
        return BadRequestError(problem, remedy, name, "unsupported_parameter")
    place = ".".join(str(part) for part in first["loc"] if not set(str(part)) & set("[-"))  # without names of forms
    return BadRequestError(f"{place}: {first['msg']}", "See docs/api.md for what is allowed.", name)
