"""JSON responses in UTF-8."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response in UTF-8, with lone surrogates escaped."""
    body = json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace")
    return Response(body, status, headers, media_type="application/json")
