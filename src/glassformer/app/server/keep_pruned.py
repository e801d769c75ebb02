"""Save a run without some heads as a new run: `POST /api/runs/RUN/keep` writes the new run and serves it.

The body is ``{"heads": ["dec.0.self.1"], "name": "book-small", "version": "step-000850.0123456789abcdef"}``;
the response is ``{"name": "book-small", "removed": […], "parameters": {"before": 12345, "after": 12000},
"command": "glass verify …"}``. The best checkpoint of the run is pruned. The request is refused if the
optional field `version` is given and is not the version of this checkpoint. The new folder is beside the folder of the
run; `name` is never a path (see `checked_name`).
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field, ValidationError

from glassformer.app.server.registry import ModelRegistry
from glassformer.app.server.request_errors import RefusedRequestError, from_validation_error
from glassformer.base.wording import quoted

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?|.*(\.|\.partial)", re.IGNORECASE)
"""Names that Windows reserves or cannot store, or that a run has while it is being written."""


def checked_name(name: str) -> str:
    """Return the name if it is valid for a run folder.

    A valid name has 1 to 64 letters, digits and characters . _ - in total, begins with a letter or digit, and does not
    match `RESERVED`.

    Raises:
        GlassError: the name is not valid.
    """
    if not NAME.fullmatch(name) or RESERVED.fullmatch(name):
        raise RefusedRequestError(
            f"{name[:80]!r} is not a valid name for a run",
            "Use 1 to 64 letters, digits and the characters . _ - and begin with a letter or digit. "
            "Names such as con and lpt1, and names that end with . or .partial, are reserved.",
        )
    return name


def save_pruned_run(registry: ModelRegistry, name: str, body: bytes) -> dict[str, Any]:
    """Write the run without the heads and serve it; return the body of the response.

    Raises:
        GlassError: there is no such run, the body or the name is not valid, the name is taken, the best checkpoint is
            not `version`, or the heads cannot be pruned.
    """
    from glassformer.app.server.view import Name, ViewQuestion
    from glassformer.inspection.pruning.chosen_heads import prune_chosen_heads

    class Keep(ViewQuestion):
        """Body of the request: the heads to remove, the new run's name, and the checkpoint's expected version."""

        heads: Annotated[tuple[Name, ...], Field(min_length=1, max_length=4_096)]
        name: Annotated[str, Field(min_length=1, max_length=100)]
        version: Annotated[str, Field(max_length=100)] | None = None

    try:
        request = Keep.model_validate_json(body)
    except ValidationError as error:
        raise from_validation_error(error, "Give `heads`, `name` and, optionally, `version`.") from None
    run = registry.run(name)
    out = run.folder.resolve().parent / checked_name(request.name)
    if request.name in registry.names() or out.exists():
        raise RefusedRequestError(f"the name {request.name} is already in use", "Choose another name.", 409)
    pruned = prune_chosen_heads(run.folder, out, request.heads, device=registry.device, version=request.version)
    return {
        "name": registry.add(pruned.folder),
        "removed": list(pruned.removed),
        "parameters": dict(zip(("before", "after"), pruned.parameters, strict=True)),
        "command": f"glass verify {quoted(pruned.folder)}",
    }
