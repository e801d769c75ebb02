"""Errors of the server: the two lines of each error, and its HTTP status."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from glassformer.base.errors import GlassError, ShortMemoryError

BAD_REQUEST = 400
"""The status of an error that has none of its own."""
SHORTER = "Ask about a shorter text, or for fewer texts; or close other programs."
"""What to do where memory is short."""
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
"""OpenAI's names for kinds of errors."""


class RefusedRequestError(GlassError):
    """`GlassError` with its own HTTP status.

    Args:
        problem, remedy: as of `GlassError`.
        status: of HTTP.
    """

    def __init__(self, problem: str, remedy: str, status: int = BAD_REQUEST) -> None:
        super().__init__(problem, remedy)
        self.status = status


def status_of(error: GlassError) -> int:
    """The status with which an error is answered."""
    if isinstance(error, ShortMemoryError):
        return 503
    return error.status if isinstance(error, RefusedRequestError) else BAD_REQUEST


def as_json(error: GlassError) -> dict[str, Any]:
    """The body of an answer that is an error: `what` and `remedy`, and what clients of OpenAI's read.

    These are `message`, both lines; `type`, by the status; `param`, the parameter that is wrong; `code`, a word.
    """
    status = status_of(error)
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    known = {"param": getattr(error, "parameter", None), "code": getattr(error, "code", None)}
    return {"error": {"what": error.problem, "remedy": error.remedy, "message": str(error), "type": kind, **known}}


def in_two_lines(error: ValidationError) -> RefusedRequestError:
    """Convert a validation error to a `RefusedRequestError` (status 422) about its first fault."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = " ".join(".".join(map(str, first["loc"])).split())[:100]  # an unknown field may have any name
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    problem = f"{place}: {first['msg']}{more}" if place else f"the body is not what is asked for: {first['msg']}{more}"
    return RefusedRequestError(problem, "See GET /api/views for the fields of each view and their bounds.", 422)
