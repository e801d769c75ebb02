"""Views of the web page. Each view returns results of library functions, pooled, truncated or paged if they are large.

To add a view, for example `lens`:

1. Write `views/lens.py` (or a folder) with

   - `class LensQuestion(TextQuestion)` from `app.server.view`: a pydantic model with bounds for each field, which
     refuses unknown fields;
   - `answer(opened, question) -> dict | Binary`. It runs in a thread that holds `opened.lock`; therefore hooks and
     patches are safe if the view removes them again. `opened.subject(text, target)` returns the model's input, cached;
     `opened.model` is the `AnyTextModel`; `opened.cached(key, make, size)` caches results within a budget of bytes;
     `opened.later(name, make)` calls `make` in the background and returns None until it is done. `make` must use
     `opened.copy()`, and the page repeats the request, for example while the response is `{"ready": False}`;
   - `python(opened, question) -> str`: a script that prints the same numbers with the library's public functions;
     `app.server.view.script` writes its beginning, and `repr` quotes the user's text;
   - `VIEW = PageView(LensQuestion, answer, python)`.

2. Add it to `VIEWS` below. Then `POST /api/runs/RUN/lens` works. `run`, `version`, `python` and `text_notes` are
   added to each response, numbers that are not finite become null, and a response above 1 MiB is refused: pool,
   truncate or page it.
3. Raise a `GlassError` for errors that the user can correct (`RefusedRequestError` for a status other than 400): the
   page receives `{"error": {"what": …, "remedy": …}}`.
4. Document the fields of the response in the module's docstring, which is the specification for the page. Test the
   numbers of the view and of its script against the library to 1e-6, for all families that have the view.
"""

from __future__ import annotations

from typing import Any

from glassformer.app.server.request_errors import RefusedRequestError
from glassformer.app.server.view import PageView
from glassformer.app.server.views import (
    ablation,
    beams,
    compare,
    contrast,
    embeddings,
    importance,
    lens,
    loss,
    machines,
    positions,
    probes,
    receipt,
    replay,
    sampling,
    tape,
    tokens,
    verification,
    write,
)
from glassformer.app.server.views.attention import alignment, focus, head_map, heads, roles, score
from glassformer.base.errors import nearest

VIEWS: dict[str, PageView[Any]] = {
    "write": write.VIEW,
    "sampling": sampling.VIEW,
    "beams": beams.VIEW,
    "ablation": ablation.VIEW,
    "compare": compare.VIEW,
    "contrast": contrast.VIEW,
    "machines": machines.VIEW,
    "tokens": tokens.VIEW,
    "tape": tape.VIEW,
    "attention": head_map.VIEW,
    "score": score.VIEW,
    "heads": heads.VIEW,
    "roles": roles.VIEW,
    "focus": focus.VIEW,
    "alignment": alignment.VIEW,
    "receipt": receipt.VIEW,
    "lens": lens.VIEW,
    "importance": importance.VIEW,
    "embeddings": embeddings.VIEW,
    "positions": positions.VIEW,
    "replay": replay.VIEW,
    "loss": loss.VIEW,
    "probes": probes.VIEW,
    "verification": verification.VIEW,
}
"""Views by name."""


def find_view(name: str) -> PageView[Any]:
    """Return the view called `name`.

    Raises:
        GlassError: there is no such view.
    """
    if name not in VIEWS:
        raise RefusedRequestError(f"there is no view {name!r}", nearest(name, VIEWS), 404)
    return VIEWS[name]
