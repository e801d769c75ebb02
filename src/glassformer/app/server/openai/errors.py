"""Errors in OpenAI's format: a message, a type, the invalid parameter, and a code."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.responses import Response

from glassformer.app.server.engine.engine import BusyError
from glassformer.app.server.json_response import json_response
from glassformer.app.server.request_errors import RefusedRequestError, as_json, status_of
from glassformer.base.errors import GlassError

Body = TypeVar("Body", bound=BaseModel)
CODES = {404: "model_not_found", 429: "queue_full"}
UNSUPPORTED_REMEDIES = {
    "best_of": "remove it, or give the value of n",
    "frequency_penalty": "remove it, or give 0",
    "presence_penalty": "remove it, or give 0",
    "logit_bias": "remove it",
    "suffix": "remove it",
    "tools": "remove it",
    "response_format": 'remove it, or give {"type": "text"}',
    "modalities": 'remove it, or give ["text"]',
}
"""Unsupported parameter of OpenAI's API -> remedy in the error."""


class BadRequestError(RefusedRequestError):
    """Invalid request (status 400).

    Args:
        problem, remedy: as for `GlassError`.
        parameter: name of the invalid parameter; None: the whole body.
        code: error code for programs; None: no code.
    """

    def __init__(self, problem: str, remedy: str, parameter: str | None = None, code: str | None = None) -> None:
        super().__init__(problem, remedy, 400)
        self.parameter = parameter
        self.code = code


def error_body(error: GlassError) -> dict[str, Any]:
    """Return the body of an error response."""
    body = as_json(error)
    body["error"]["code"] = body["error"]["code"] or CODES.get(status_of(error))
    return body


def refusal(error: GlassError) -> Response:
    """Return the error response, with `Retry-After` if the queue is full."""
    headers = {"retry-after": str(error.seconds)} if isinstance(error, BusyError) else {}
    return json_response(error_body(error), status_of(error), headers)


def read_body(kind: type[Body], data: bytes) -> Body:
    """Parse the body of a request.

    Raises:
        BadRequestError: the body is not JSON, has an unknown field, or is not valid.
    """
    try:
        value = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise BadRequestError(
            f"the body is not JSON: {str(error)[:200]}", "Send UTF-8 JSON, as in docs/serve.md."
        ) from None
    if not isinstance(value, dict):
        raise BadRequestError("the body is not a JSON object", "Send a JSON object, as in docs/serve.md.")
    unknown = next(
        (name for name in value if name not in kind.model_fields), None
    )  # report only the first: there may be very many
    if unknown is not None:
        problem = f"unknown parameter {unknown[:60]!r}"
        remedy = "Remove it; docs/serve.md lists the parameters."
        raise BadRequestError(problem, remedy, unknown[:60], "unknown_parameter")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise _as_bad_request(error) from None


def _as_bad_request(error: ValidationError) -> BadRequestError:
    """Convert a validation error to a `BadRequestError` that describes its first problem.

    If the field allows several types, a problem with the value is reported rather than a mismatch of the type.
    """
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    same_field = [each for each in problems if each["loc"][:1] == problems[0]["loc"][:1]]
    reported = next((each for each in same_field if not each["type"].endswith("_type")), problems[0])
    name = str(reported["loc"][0]) if reported["loc"] else None
    if name is None:
        return BadRequestError(
            reported["msg"].removeprefix("Value error, "), "See docs/serve.md for the allowed values."
        )
    if name in UNSUPPORTED_REMEDIES:
        problem = f"{name} is not supported"
        remedy = f"To continue without it, {UNSUPPORTED_REMEDIES[name]}."
        return BadRequestError(problem, remedy, name, "unsupported_parameter")
    path = ".".join(str(part) for part in reported["loc"] if not set(str(part)) & set("[-"))  # without names of types
    return BadRequestError(f"{path}: {reported['msg']}", "See docs/serve.md for the allowed values.", name)
