"""Errors of the server: their HTTP status, and their JSON body."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from glassformer.base.errors import GlassError, ShortMemoryError
from glassformer.base.wording import counted

BAD_REQUEST = 400
"""HTTP status of a `GlassError` that is neither a `RefusedRequestError` nor a `ShortMemoryError`."""
MEMORY_REMEDY = "Use a shorter text, request fewer texts, or close other programs."
"""Second line of an error about lack of memory."""
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
"""OpenAI's error types, by HTTP status."""


class RefusedRequestError(GlassError):
    """`GlassError` with an HTTP status.

    Args:
        problem, remedy: as for `GlassError`.
        status: HTTP status.
    """

    def __init__(self, problem: str, remedy: str, status: int = BAD_REQUEST) -> None:
        super().__init__(problem, remedy)
        self.status = status


def status_of(error: GlassError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, ShortMemoryError):
        return 503
    return error.status if isinstance(error, RefusedRequestError) else BAD_REQUEST


def as_json(error: GlassError) -> dict[str, Any]:
    """Return the JSON body of an error response: `what` and `remedy`, and the fields of OpenAI's errors.

    These are `message` (`what` and `remedy`, one per line), `type` (from the status), `param` (the name of the invalid
    parameter, or null) and `code` (a machine-readable error code, or null).
    """
    status = status_of(error)
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    openai_fields = {"param": getattr(error, "parameter", None), "code": getattr(error, "code", None)}
    return {
        "error": {"what": error.problem, "remedy": error.remedy, "message": str(error), "type": kind, **openai_fields}
    }


def from_validation_error(error: ValidationError, remedy: str) -> RefusedRequestError:
    """Convert a validation error to a `RefusedRequestError` (status 422) that describes its first problem."""
    first_problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    name = " ".join(".".join(map(str, first_problem["loc"])).split())[:100]  # an unknown field may have any name
    suffix = f" (and {counted(error.error_count() - 1, 'more problems')})" if error.error_count() > 1 else ""
    problem = (
        f"{name}: {first_problem['msg']}{suffix}" if name else f"the body is not valid: {first_problem['msg']}{suffix}"
    )
    return RefusedRequestError(problem, remedy, 422)
